"""Checkpoints that write changes: by hand, the oracle against all plans, ours against it."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from statistics import mean

import pytest

from perseid.coordinator.planners.checkpoint_timing import (
    Stopping,
    fixed,
    periods,
    played,
    profile,
)
from perseid.coordinator.planners.checkpoint_timing import oracle as oracle_of_sizes
from perseid.coordinator.planners.delta_stopping import DeltaStopping
from perseid.coordinator.planners.delta_stopping import played as played_by_changes
from perseid.coordinator.planners.delta_timing import Changes, oracle
from perseid.coordinator.planners.random_sizes import SHAPES, Shape, draw_changes
from perseid.coordinator.planners.state_sizes import Point, Sizes
from perseid.errors import BadInputError


def points(*values: float) -> list[Point]:
    return [Point(float(second), value) for second, value in enumerate(values)]


def bytes_of(checkpoints: list[Point]) -> float:
    return sum(point.bytes for point in checkpoints)


def times_of(checkpoints: list[Point]) -> list[float]:
    return [point.time_s for point in checkpoints]


def drawn(random: Random, seconds: int) -> Changes:
    sizes, changed = {}, {}
    for name in ("a", "b"):
        sizes[name] = points(*(random.uniform(0, 100) for _ in range(seconds + 1)))
        written = [0.0]
        for _ in range(seconds):
            written.append(written[-1] + random.choice([0.0, 5.0, 50.0]))
        changed[name] = points(*written)
    return Changes(Sizes(sizes), changed)


def test_a_part_is_a_delta_or_the_whole_state() -> None:
    """A table of 100 that changes by 10 a second, a window that is emptied at 3 s."""
    changes = Changes(
        Sizes({"table": points(*[100.0] * 5), "window": points(0, 40, 80, 4, 44)}),
        {"table": points(0, 10, 20, 30, 40), "window": points(0, 40, 80, 84, 124)},
    )
    assert changes.checkpoints([1.0, 2.0]) == [Point(1.0, 140.0), Point(2.0, 10.0 + 40.0)]
    assert changes.checkpoints([1.0, 3.0]) == [Point(1.0, 140.0), Point(3.0, 20.0 + 4.0)]
    assert changes.rates == {"table": 10.0, "window": 31.0}
    shown = changes.shown(2.0, changes.rates).operators  # 20 and 62 in a period
    assert [p.bytes for p in shown["table"]] == [20.0] * 5
    assert [p.bytes for p in shown["window"]] == [0.0, 40.0, 62.0, 4.0, 44.0]


def test_the_oracle_is_the_best_of_all_plans() -> None:
    for seed in range(1000):
        changes = drawn(Random(seed), 9)
        choices = [
            [t for t in changes.bends if start_s < t <= start_s + 3.0]
            for start_s in periods(changes.sizes, 3.0)
        ]
        choices[0].insert(0, 0.0)
        bends = changes.bends.tolist()
        written = {t: dict(zip(bends, changes.written(t, bends), strict=True)) for t in bends}
        whole = dict(zip(bends, changes.sizes.at(bends), strict=True))
        best = min(
            whole[plan[0]] + sum(written[last][t] for last, t in pairwise(plan))
            for plan in product(*choices)
        )
        found = oracle(changes, 3.0)
        assert bytes_of(found) == pytest.approx(best)
        assert found == changes.checkpoints(times_of(found))


def test_where_all_is_changed_all_the_time_it_is_the_oracle_of_sizes() -> None:
    changes = drawn(Random(1), 8)
    busy = Changes(
        changes.sizes,
        {name: points(*(1e6 * t for t in range(9))) for name in changes.sizes.operators},
    )
    assert oracle(busy, 4.0) == oracle_of_sizes(changes.sizes, 4.0)


@pytest.mark.parametrize(("shape", "within"), [("tmi", 1.05), ("bcp", 1.06), ("signalguru", 1.1)])
def test_a_growing_table_hides_nothing(shape: Shape, within: float) -> None:
    """By size the policy waits for totals that never come again; by what is written it does not."""
    ours, by_size, blind = [], [], []
    for seed in range(10):
        before = draw_changes(Random(1000 + seed), shape)
        changes = draw_changes(Random(seed), shape, age_s=3600.0)
        best = bytes_of(oracle(changes, 200.0))

        def written(plan: list[Point], changes: Changes = changes, best: float = best) -> float:
            return bytes_of(changes.checkpoints(times_of(plan))) / best

        taken = played_by_changes(changes, DeltaStopping(before, 200.0))
        assert taken == changes.checkpoints(times_of(taken))
        ours.append(bytes_of(taken) / best)
        learned = profile(before.sizes, 200.0)
        by_size.append(written(played(changes.sizes, 200.0, Stopping(learned))))
        blind.append(written(fixed(changes.sizes, 200.0)))
    assert 1 <= mean(ours) <= within
    assert mean(ours) <= mean(by_size) + 1e-9 < mean(blind)


@pytest.mark.parametrize("shape", SHAPES)
def test_one_checkpoint_a_period(shape: Shape) -> None:
    changes = draw_changes(Random(5), shape, 1000.0)
    ours = played_by_changes(changes, DeltaStopping(changes, 100.0))
    for found in (oracle(changes, 100.0), ours):
        for start_s, taken in zip(periods(changes.sizes, 100.0), found, strict=True):
            assert start_s <= taken.time_s <= start_s + 100.0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, "only one of sizes and changed bytes of a"),
        ({"a": points(0, 1, 2), "b": points(0, 1)}, "only one of sizes and changed bytes of b"),
        ({"a": points(0, 5, 4)}, "operator a at 2.0 s: 4 changed bytes so far, and 5 before"),
        ({"a": points(0, float("nan"), 4)}, "operator a at 1.0 s: nan is no size"),
    ],
)
def test_changes_that_cannot_be_are_named(changed: dict[str, list[Point]], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        Changes(Sizes({"a": points(1, 2, 3)}), changed)
