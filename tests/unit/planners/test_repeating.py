"""Sizes that repeat themselves: their length is found, and each period's moment is the best one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from perseid.coordinator.planners.delta_timing import Changes, oracle
from perseid.coordinator.planners.live_timing import played
from perseid.coordinator.planners.random_sizes import SHAPES, Shape, draw_changes
from perseid.coordinator.planners.repeating import STEPS, Planned, repetition
from perseid.coordinator.planners.state_sizes import Point, Sizes
from perseid.errors import UsageError

RATE = 1e5  # bytes a second
LAG_S = 2.0  # what a window holds of the next one when it is emptied


def windows(
    every_s: float, first_s: float, length_s: float, noise: Random | None = None
) -> Changes:
    """A window that is emptied each `every_s`, for the first time at `first_s`."""
    points = [Point(0.0, (every_s - first_s + LAG_S) * RATE)]
    for at_s in np.arange(first_s, length_s + every_s, every_s).tolist():
        late_s = at_s + (noise.uniform(0.0, 0.01 * every_s) if noise else 0.0)
        points += [Point(late_s, (every_s + LAG_S) * RATE), Point(late_s + 0.1, LAG_S * RATE)]
    end_s = points[-1].time_s
    return Changes(
        Sizes({"window": points}), {"window": [Point(0.0, 0.0), Point(end_s, RATE * end_s)]}
    )


def seen(changes: Changes, end_s: float) -> Changes:
    """What was sampled until then, once in 0.2 s."""
    times = np.arange(0.0, end_s + 0.01, 0.2)

    def curve(sizes: Sizes) -> list[Point]:
        return [Point(*p) for p in zip(times.tolist(), sizes.at(times).tolist(), strict=True)]

    return Changes(Sizes({"window": curve(changes.sizes)}), {"window": curve(changes.changed)})


@pytest.mark.parametrize("every_s", [13.0, 20.0, 30.0, 47.0, 60.0])
def test_the_length_of_windows_is_found(every_s: float) -> None:
    """Also where it is no multiple of the period, and ends vary by a hundredth of it."""
    for seed in range(5):
        changes = windows(every_s, 5.0, 160.0, Random(seed))
        found = repetition(seen(changes, 160.0), 20.0)
        assert found is not None
        times = round(found / every_s)
        assert times >= 1
        assert found == pytest.approx(times * every_s, abs=0.02 * every_s + 20.0 / STEPS)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_does_not_repeat_itself_has_no_length(shape: Shape) -> None:
    found = []
    for seed in range(10):
        changes = draw_changes(Random(seed), shape, 1600.0)
        dynamic = changes.shown(200.0, changes.rates).dynamic
        found.append(repetition(changes.of(dynamic), 200.0) if dynamic else None)
    assert found.count(None) >= 9


def test_less_than_two_repetitions_are_none() -> None:
    changes = windows(100.0, 5.0, 400.0)
    assert repetition(seen(changes, 190.0), 20.0) is None
    assert repetition(seen(changes, 230.0), 20.0) == pytest.approx(100.0, abs=0.4)


def test_level_sizes_have_no_length() -> None:
    level = [Point(0.0, 5.0), Point(160.0, 5.0)]
    changes = Changes(Sizes({"a": level}), {"a": [Point(0.0, 0.0), Point(160.0, 1.0)]})
    assert repetition(changes, 20.0) is None


@pytest.mark.drawn(5)
@pytest.mark.parametrize("every_s", [30.0, 47.0, 60.0])
@pytest.mark.parametrize("first_s", [1.0, 7.0, 11.5, 19.9, 25.0])
def test_all_checkpoints_write_as_little_as_the_oracles(every_s: float, first_s: float) -> None:
    """After the first six periods, an epoch each 0.2 s; the oracle knows the future."""
    changes = windows(every_s, first_s, 600.0)
    taken = changes.checkpoints(played(changes, 20.0, 600.0, 0.2))
    best = oracle(changes, 20.0)

    def bytes_a_second(plan: list[Point]) -> float:
        later = [p for p in plan if p.time_s > 120.0]
        return sum(p.bytes for p in later[1:]) / (later[-1].time_s - later[0].time_s)

    fixed = changes.checkpoints([20.0 * n for n in range(1, 30)])
    # It has no moment at the begin of a period, where one may be almost free: ours can write less.
    assert bytes_a_second(taken) <= 1.08 * bytes_a_second(best)
    assert bytes_a_second(taken) <= 0.9 * bytes_a_second(fixed)


def plan_at(now_s: float, first_s: float, last_s: float) -> Planned:
    """Windows of 30 s; a period of 20 s begins at `now_s`, the last checkpoint was at `last_s`."""
    changes = windows(30.0, first_s, 300.0)
    last = {"window": float(changes.changed.at([last_s])[0])}
    return Planned.of(seen(changes, now_s), 30.0, 20.0, last, last_s - now_s + 20.0)


def test_the_end_of_a_window_may_be_early_or_late() -> None:
    plan = plan_at(140.0, 30.0, 130.5)  # the next end is at 150
    assert plan.offset_s == pytest.approx(10.4, abs=0.4)
    assert not plan.takes(10.5, 8.0, 17.5 * RATE)
    assert not plan.takes(10.5, 8.0, 2 * RATE)  # that early it is not looked for
    assert plan.takes(10.5, 10.0, 2 * RATE)
    assert not plan.takes(10.5, 10.4, 19.9 * RATE)
    assert not plan.takes(10.5, 13.0, 22.5 * RATE)  # not yet emptied, but it will be
    assert plan.takes(10.5, 13.4, 3 * RATE)


def test_a_moment_that_passed_without_a_token_is_made_up_for() -> None:
    """A checkpoint was still written; no window ends in this period, so it is best soon."""
    plan = plan_at(140.0, 10.0, 130.5)  # the next end is at 160
    assert plan.offset_s == pytest.approx(0.0, abs=0.4)
    for late_s in (0.0, 1.0, 5.0):
        assert plan.takes(10.5, late_s, (9.5 + late_s) * RATE)
    plan = plan_at(140.0, 4.0, 130.5)  # at 154: waiting is better
    assert plan.offset_s == pytest.approx(14.4, abs=0.4)
    assert not plan.takes(10.5, 3.0, 12.5 * RATE)


def test_without_a_checkpoint_before_all_is_written() -> None:
    """So a full window is not worth the first one, though it has just begun to change."""
    changes = seen(windows(30.0, 15.0, 160.0), 140.0)  # emptied 5 s ago
    assert min(Planned.of(changes, 30.0, 20.0, None).writes) >= 5 * RATE
    known = {"window": float(changes.changed.at([140.0])[0])}
    assert Planned.of(changes, 30.0, 20.0, known).writes[0] == 0.0


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda c: repetition(c, 0.0), "the period is 0.0 s"),
        (lambda c: Planned.of(c, -1.0, 20.0, None), "the length of a repetition is -1.0 s"),
        (lambda c: plan_at(140.0, 4.0, 130.0).takes(0.0, -1.0, 1.0), "the offset in the period"),
        (lambda c: plan_at(140.0, 4.0, 130.0).takes(0.0, 1.0, -1.0), "what a checkpoint writes"),
    ],
)
def test_bad_input_is_named(call, named: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=named):
        call(windows(30.0, 5.0, 160.0))
