"""Timing as it goes: sizes come in with epochs, checkpoints are taken, and the oracle judges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from perseid.coordinator.planners.delta_timing import Changes, oracle
from perseid.coordinator.planners.live_timing import PERIOD_SAMPLES, PROFILE_PERIODS, Timing, played
from perseid.coordinator.planners.random_sizes import Shape, draw_changes
from perseid.coordinator.planners.state_sizes import Point, Sizes

PERIOD_S = 200.0
EPOCH_S = 1.0


def saw_tooth(every_s: float, length_s: float, top: float = 1e8) -> Changes:
    sizes, changed, written = [Point(0.0, 0.0)], [Point(0.0, 0.0)], 0.0
    for number in range(1, int(length_s / every_s) + 2):
        at_s = number * every_s
        written += top
        sizes += [Point(at_s - 1.0, top), Point(at_s, 0.0)]
        changed += [Point(at_s - 1.0, written), Point(at_s, written)]
    return Changes(Sizes({"window": sizes}), {"window": changed})


@pytest.mark.drawn
@pytest.mark.parametrize(("shape", "within"), [("tmi", 1.1), ("bcp", 1.15), ("signalguru", 1.2)])
def test_it_writes_little_more_than_the_oracle(shape: Shape, within: float) -> None:
    """The periods after the first, of which there is no profile yet; the table's part included."""
    ours, blind = [], []
    for seed in range(2):
        changes = draw_changes(Random(seed), shape, 4000.0, age_s=3600.0)
        taken = played(changes, PERIOD_S, 4000.0)
        assert abs(len(taken) - 4000.0 / PERIOD_S) <= 2
        assert max(b - a for a, b in pairwise(taken)) <= 2 * PERIOD_S + EPOCH_S
        best = sum(p.bytes for p in oracle(changes, PERIOD_S)[2:])
        fixed = [n * PERIOD_S for n in range(1, 20)]
        ours.append(sum(p.bytes for p in changes.checkpoints(taken)[2:]) / best)
        blind.append(sum(p.bytes for p in changes.checkpoints(fixed)[2:]) / best)
    assert mean(ours) <= within < mean(blind)


def test_a_checkpoint_comes_with_the_first_growth_after_a_drop() -> None:
    """Windows of 130 s in periods of 200 s: every period has one drop or two."""
    changes = saw_tooth(130.0, 3000.0)
    taken = played(changes, PERIOD_S, 3000.0)
    lag_s = [time_s % 130.0 for time_s in taken[2:]]  # those before show that
    assert max(lag_s) <= 2 * EPOCH_S
    assert len(taken) in (14, 15)


def test_without_a_dynamic_operator_it_is_the_end_of_the_period() -> None:
    level = [Point(0.0, 50.0), Point(1e4, 60.0)]
    changes = Changes(Sizes({"table": level}), {"table": [Point(0.0, 0.0), Point(1e4, 1e4)]})
    taken = played(changes, PERIOD_S, 1001.0)
    assert taken == [200.0, 400.0, 600.0, 800.0, 1000.0]


def test_a_table_that_only_grows_is_not_dynamic() -> None:
    """It begins at nothing, but what a period changes of it is level."""
    grows = [Point(0.0, 0.0), Point(1e4, 1e9)]
    changes = Changes(Sizes({"table": grows}), {"table": grows})
    taken = played(changes, PERIOD_S, 1001.0)
    assert taken == [200.0, 400.0, 600.0, 800.0, 1000.0]


def test_a_period_ends_without_the_moment_that_its_profile_promised() -> None:
    """The window is never emptied again: at the latest the end of the period takes one."""
    calm = saw_tooth(50.0, 1000.0).sizes.operators["window"]
    points = [*(p for p in calm if p.time_s <= 1000.0), Point(3000.0, 4e9)]
    written = [Point(0.0, 0.0), Point(3000.0, 6e9)]
    changes = Changes(Sizes({"window": points}), {"window": written})
    taken = played(changes, PERIOD_S, 2400.0)
    late = [t for t in taken if t > 1200.0]
    assert len(late) >= 5
    assert all(b - a <= 2 * PERIOD_S + EPOCH_S for a, b in pairwise(late))


def test_no_checkpoint_twice_in_a_period() -> None:
    timing = Timing(30.0, 100.0)
    assert not timing.due(129.9)
    assert timing.due(130.0)
    timing = timing.took(131.0)  # late: the period that it belongs to began at 100
    assert (timing.begin_s, timing.taken) == (131.0, False)
    assert not timing.due(160.9)
    early = timing.took(140.0)  # at a small moment, or asked for
    assert not early.due(190.9)
    assert early.due(191.0)


def test_what_came_to_nothing_is_owed_at_once() -> None:
    timing = Timing(30.0, 100.0).took(110.0)
    assert not timing.due(111.0)
    assert timing.retry_pending().due(111.0)
    assert timing.retry_pending().took(112.0).begin_s == 112.0


def test_early_is_for_its_size_alone() -> None:
    """Not at a period's end, nor where one is owed, however small the state is by then."""
    timing = Timing(30.0, 0.0)
    for second in range(1, 101):
        timing = timing.seen(float(second), {"window": (second % 25 * 1000, 1000)})
        if timing.due(second):
            assert not timing.early(second)  # there is no profile yet
            timing = timing.took(second)
    small = timing.seen(101.0, {"window": (1000, 1000)}).seen(102.0, {"window": (2000, 1000)})
    assert small.due(102.0) and small.early(102.0)
    assert not small.took(102.0).early(103.0)
    assert small.due(120.0) and not small.early(120.0)
    assert small.retry_pending().due(102.0) and not small.retry_pending().early(102.0)


def test_another_set_of_operators_begins_a_new_profile() -> None:
    timing = Timing(30.0, 0.0).seen(1.0, {"a": (10, 10)}).seen(2.0, {"a": (12, 2)})
    assert [s.changed["a"] for s in timing.samples] == [10.0, 12.0]
    timing = timing.seen(3.0, {"a": (12, 0), "b": (1, 1)})
    assert [s.time_s for s in timing.samples] == [3.0]


def test_samples_are_bounded_and_keep_the_minima() -> None:
    timing = Timing(10.0, 0.0)
    for step in range(20_000):
        low = step % 1000 == 777
        timing = timing.seen(step * 0.01, {"a": (1 if low else 1000, 1)})
    assert len(timing.samples) <= (PROFILE_PERIODS + 3) * PERIOD_SAMPLES
    kept = [round(s.time_s, 2) for s in timing.samples if s.bytes["a"] == 1.0]
    assert kept[-3:] == [177.77, 187.77, 197.77]


def test_epochs_that_are_seen_at_once_are_one_sample() -> None:
    timing = Timing(30.0, 0.0).seen(1.0, {"a": (10, 10)}).seen(1.0, {"a": (30, 20)})
    (sample,) = timing.samples
    assert (sample.bytes["a"], sample.changed["a"]) == (30.0, 30.0)
    assert timing == replace(timing)
