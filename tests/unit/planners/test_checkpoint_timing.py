"""Checkpoint timing: turning points and profiles by hand, policies against the oracle."""

from __future__ import annotations

from random import Random
from statistics import mean

import numpy as np
import pytest

from perseid.coordinator.planners.checkpoint_timing import (
    FirstMinimum,
    Policy,
    Profile,
    Stopping,
    fixed,
    oracle,
    periods,
    played,
    profile,
)
from perseid.coordinator.planners.random_sizes import SHAPES, Shape, draw_sizes
from perseid.coordinator.planners.state_sizes import Point, Sizes, turning_points
from perseid.errors import BadInputError, UsageError


def points(*sizes: float, every_s: float = 1.0) -> list[Point]:
    return [Point(i * every_s, size) for i, size in enumerate(sizes)]


def bytes_of(checkpoints: list[Point]) -> float:
    return sum(point.bytes for point in checkpoints)


def test_turning_points_are_ends_and_extremes() -> None:
    assert turning_points(points(5, 5, 7, 9, 9, 4, 3, 8)) == [
        Point(0, 5), Point(1, 5), Point(4, 9), Point(6, 3), Point(7, 8),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_total_has_no_lower_point_between_turning_points(shape: Shape) -> None:
    sizes = draw_sizes(Random(3), shape, 900.0)
    everywhere = np.linspace(sizes.start_s, 900.0, 20_001)
    assert sizes.at(sizes.times()).min() <= sizes.at(everywhere).min()


def test_an_operator_is_dynamic_when_its_minimum_is_below_half_of_its_mean() -> None:
    saw, flat, half = points(0, 10, 0, 10), points(8, 9, 8, 9), points(5, 10, 5, 10)
    sizes = Sizes({"saw": saw, "flat": flat, "half": half})
    assert sizes.dynamic == ["saw"]


def test_the_profile_is_the_papers() -> None:
    """Two periods of 4 s with minima 30 and 50; the largest of the smallest is s_max."""
    sizes = Sizes({"a": points(90, 30, 90, 60, 90, 50, 95, 70, 90)})
    learned = profile(sizes, 4.0)
    assert (learned.s_min, learned.s_max) == (30, 50)
    assert [[p.bytes for p in period] for period in learned.minima] == [[30, 60], [50, 70]]
    assert [p.time_s for p in learned.minima[1]] == [1.0, 3.0]
    assert learned.ends == (90, 90)
    level = profile(Sizes({"a": points(90, 30, 90, 30, 90)}), 2.0)
    assert level.s_max == pytest.approx(36)  # relaxed by a fifth


def test_the_papers_policy_takes_the_first_minimum_in_alert_mode() -> None:
    """The minimum of 60 at 1 s is above s_max, that of 45 at 3 s is seen by the halving."""
    learned = Profile(8.0, ((Point(1.0, 50.0),),), (90.0,))
    sizes = Sizes({"a": points(100, 60, 110, 45, 90, 20, 90, 80, 95)})
    assert played(sizes, 8.0, FirstMinimum(learned)) == [Point(3.0, 45.0)]
    assert played(sizes, 8.0, FirstMinimum(Profile(8.0, ((Point(1.0, 5.0),),), (90.0,)))) == [
        Point(8.0, 95.0)
    ], "nothing below s_max: the end of the period"


def test_stopping_waits_for_less_early_and_takes_more_late() -> None:
    """The profile has seen a small minimum late in its periods."""
    learned = Profile(10.0, ((Point(2.0, 50.0), Point(8.0, 10.0)),) * 4, (100.0,) * 4)
    policy = Stopping(learned)
    assert not policy.about_to_grow(2.0, 50.0)
    assert policy.about_to_grow(2.0, 9.0)
    assert policy.about_to_grow(8.5, 50.0)  # nothing better comes


@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_are_within_a_tenth_of_the_oracle(shape: Shape) -> None:
    ours, first, blind = [], [], []
    for seed in range(20):
        learned = profile(draw_sizes(Random(1000 + seed), shape), 200.0)
        sizes = draw_sizes(Random(seed), shape)
        best = bytes_of(oracle(sizes, 200.0))
        ours.append(bytes_of(played(sizes, 200.0, Stopping(learned))) / best)
        first.append(bytes_of(played(sizes, 200.0, FirstMinimum(learned))) / best)
        blind.append(bytes_of(fixed(sizes, 200.0)) / best)
    assert 1 <= mean(ours) <= 1.1
    assert mean(ours) < mean(first) < mean(blind)


@pytest.mark.parametrize("shape", SHAPES)
def test_there_is_one_checkpoint_a_period_with_its_true_size(shape: Shape) -> None:
    sizes = draw_sizes(Random(5), shape, 1000.0)
    learned = profile(sizes, 100.0)
    policies: list[Policy] = [FirstMinimum(learned), Stopping(learned)]
    plans = [played(sizes, 100.0, p) for p in policies]
    for plan in [*plans, oracle(sizes, 100.0), fixed(sizes, 100.0)]:
        for start_s, taken in zip(periods(sizes, 100.0), plan, strict=True):
            assert start_s <= taken.time_s <= start_s + 100.0
            assert taken.bytes == pytest.approx(float(sizes.at([taken.time_s])[0]))
        assert bytes_of(plan) >= bytes_of(oracle(sizes, 100.0)) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("operators", "named"),
    [
        ({}, "no sizes"),
        ({"a": points(1)}, "operator a has 1 sizes"),
        ({"a": points(1, -1)}, "operator a at 1.0 s: -1 is no size"),
        ({"a": points(1, float("nan"))}, "nan is no size"),
        ({"a": [Point(1.0, 1), Point(1.0, 2)]}, "1.0 s does not come after 1.0 s"),
        ({"a": points(1, 2), "b": [Point(5.0, 1), Point(6.0, 1)]}, "no time in common"),
    ],
)
def test_what_cannot_be_is_refused_by_name(operators: dict[str, list[Point]], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        Sizes(operators)


def test_a_period_longer_than_what_is_known_is_refused() -> None:
    sizes = Sizes({"a": points(1, 2, 3)})
    for period_s, named in ((0.0, "the period is 0.0 s"), (5.0, "the sizes are of 2.0 s only")):
        with pytest.raises(UsageError, match=named):
            profile(sizes, period_s)
