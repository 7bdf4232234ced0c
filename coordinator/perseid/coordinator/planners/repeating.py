"""When to take checkpoints of changes if sizes repeat: windows of one length.

Goes beyond Meteor Shower section 4.3, which learns how small a state becomes but not when. A window
is emptied at multiples of its length, so the last periods predict the next ones, even if the length
is no multiple of the period. `repetition` finds the length; `Planned` is the best moment with the
next periods in view. Sizes that do not repeat are for `delta_stopping`.

A window that is emptied every 30 s grows by 10 bytes/s, and this period of 20 s begins 4 s later:

>>> from perseid.coordinator.planners.state_sizes import Point, Sizes
>>> saw = [Point(30.0 * n + t, 10 * t) for n in range(8) for t in (0.0, 29.9)]
>>> sizes = Sizes({"window": [*saw, Point(240.0, 0.0), Point(244.0, 40.0)]})
>>> seen = Changes(sizes, {"window": [Point(0.0, 0.0), Point(244.0, 2440.0)]})
>>> repetition(seen, 20.0)
30.0
>>> plan = Planned.of(seen, 30.0, 20.0, {"window": 2400.0})
>>> plan.offset_s, plan.writes[0]  # at once: the window's next end is after this period
(0.0, 40.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.state_sizes import Numbers

STEPS = 50  # of a period: the resolution of lengths and moments
PERIODS = 3  # that a plan looks ahead
UNLIKE = 0.5  # of the mean deviation: the distance of two unrelated places of a curve
ALIKE = 0.15  # of it: the largest distance of a repetition
EARLY = 2  # how many steps before its moment a checkpoint may be taken, if it is as good
EQUAL = 0.02  # of what a period changes: moments within it count as equal

Steps = npt.NDArray[np.int64]


def repetition(seen: Changes, period_s: float) -> float | None:
    """After how many seconds the total of all operators repeats; None if it does not.

    Two repetitions must have been seen. O(steps^2), some milliseconds for eight periods.
    """
    checks.positive("the period", period_s, unit=" s")
    step_s = period_s / STEPS
    number = int((seen.sizes.end_s - seen.sizes.start_s) / step_s + 1e-9)
    times = seen.sizes.end_s - np.arange(number, -1, -1, dtype=np.float64) * step_s
    totals = seen.sizes.at(times)
    deviation = float(np.abs(totals - totals.mean()).mean())
    if deviation == 0:
        return None
    apart = np.array(
        [
            np.abs(totals[shift:] - totals[:-shift]).mean() / deviation
            for shift in range(1, len(totals) // 2 + 1)
        ]
    )
    unlike = np.flatnonzero(apart >= UNLIKE)  # any small shift resembles no shift
    if not len(unlike):
        return None
    first = int(unlike[0])
    best = apart[first:].min()
    if best > ALIKE:
        return None
    # The first of several repetitions, at its minimum.
    shift = first + int(np.flatnonzero(apart[first:] <= max(1.5 * best, ALIKE / 3))[0])
    while shift + 1 < len(apart) and apart[shift + 1] < apart[shift]:
        shift += 1
    return (shift + 1) * step_s


@dataclass(frozen=True, slots=True)
class Planned:
    """For one period, by step: what a checkpoint there writes, and what all later ones then write.

    `best` is the best step. A later step is taken if waiting is no better: a moment passes without
    a token while a checkpoint is still being written. Differences within `equal_bytes` do not
    count.
    """

    period_s: float
    best: int
    writes: tuple[float, ...]
    after: tuple[float, ...]
    waiting: tuple[float, ...]  # the least sum of both from a step on
    equal_bytes: float

    @classmethod
    def of(
        cls,
        seen: Changes,
        length_s: float,
        period_s: float,
        last: Mapping[str, float] | None,
        last_s: float = 0.0,
    ) -> Planned:
        """For the period that begins where `seen` ends. O(PERIODS * STEPS^2 * operators).

        `last`: by operator, the bytes changed up to the last checkpoint; None: the next writes all.
        `last_s`: its offset in the previous period. Of equal moments the one nearest to it is best,
        so that checkpoints are a period apart.
        """
        checks.positive("the length of a repetition", length_s, unit=" s")
        step_s = period_s / STEPS
        sizes, changed = _ahead(seen, length_s, step_s)
        own, end = np.arange(STEPS + 1), PERIODS * STEPS
        after = _written(sizes, changed, own + end - STEPS, np.array([end]))[:, 0]
        for period in range(PERIODS - 1, 0, -1):
            before, here = own + (period - 1) * STEPS, own + period * STEPS
            after = (_written(sizes, changed, before, here) + after).min(axis=1)
        known = [-np.inf if last is None else last[name] for name in seen.sizes.operators]
        since = changed[:, own] - np.array(known)[:, None]
        writes = np.minimum(since, sizes[:, own]).sum(axis=0)
        costs = writes + after
        equal_bytes = EQUAL * period_s * sum(seen.rates.values())
        equal = np.flatnonzero(costs <= costs.min() + equal_bytes)
        best = int(equal[np.argmin(np.abs(equal * step_s - last_s))])
        waiting = np.minimum.accumulate(costs[::-1])[::-1]
        return cls(
            period_s, best, tuple(writes.tolist()), tuple(after.tolist()),
            tuple(waiting.tolist()), equal_bytes,
        )  # fmt: skip

    @property
    def offset_s(self) -> float:
        """The offset of `best` in the period."""
        return self.best * (self.period_s / STEPS)

    def takes(self, last_s: float, offset_s: float, written: float) -> bool:
        """As `DeltaStopping.takes`: whether to take a checkpoint now that writes `written`."""
        checks.not_negative("the offset in the period", offset_s, unit=" s")
        checks.not_negative("what a checkpoint writes", written)
        step = min(int(offset_s / self.period_s * STEPS + 0.5), STEPS - 1)
        if step < self.best - EARLY:
            return False
        return written + self.after[step] <= self.waiting[step + 1] + self.equal_bytes


def _ahead(seen: Changes, length_s: float, step_s: float) -> tuple[Numbers, Numbers]:
    """Sizes and changed bytes from the end of `seen` on, by operator (rows) and step."""
    end_s = seen.sizes.end_s
    ahead_s = np.arange(PERIODS * STEPS + 1) * step_s
    back = np.floor(ahead_s / length_s) + 1
    back[0] = 0  # the present is known
    times = end_s + ahead_s - back * length_s
    one = np.diff(seen.changed.each([end_s - length_s, end_s]))
    return seen.sizes.each(times), seen.changed.each(times) + back * one


def _written(sizes: Numbers, changed: Numbers, lasts: Steps, times: Steps) -> Numbers:
    """What a checkpoint writes, by the step of the last one (rows) and its own."""
    since = np.maximum(changed[:, None, times] - changed[:, lasts, None], 0.0)
    return np.asarray(np.minimum(since, sizes[:, None, times]).sum(axis=0))
