"""When to take checkpoints that write only changes: `checkpoint_timing` with another cost.

An operator's part of a checkpoint is what it has changed since the last one or, if smaller, its
whole state: min(changed(t) - changed(last), size(t)). Meteor Shower section 4.3 leaves this cost
open.

What a checkpoint would write now does not identify good moments: right after the last one it is
almost nothing, and everything is left to the next. What it would write if its predecessor was a
period ago does: `shown`. A large state that changes little is level in `shown`, so its growth
decides nothing, while a window that has just been emptied shows its real size. The policy is in
`delta_stopping`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.checkpoint_timing import periods
from perseid.coordinator.planners.state_sizes import Numbers, Point, Sizes
from perseid.errors import BadInputError, UsageError


class Changes:
    """State sizes, and by operator all bytes changed so far. BadInputError for invalid values.

    Both are linear between their points. Immutable.

    >>> window = [Point(0.0, 0.0), Point(9.0, 90.0), Point(10.0, 0.0), Point(20.0, 100.0)]
    >>> written = [Point(0.0, 0.0), Point(9.0, 90.0), Point(10.0, 90.0), Point(20.0, 190.0)]
    >>> changes = Changes(Sizes({"window": window}), {"window": written})
    >>> changes.checkpoints([5.0, 8.0, 12.0])  # all, 3 s of changes, all that is left
    [Point(time_s=5.0, bytes=50.0), Point(time_s=8.0, bytes=30.0), Point(time_s=12.0, bytes=20.0)]
    """

    def __init__(self, sizes: Sizes, changed: Mapping[str, Sequence[Point]]) -> None:
        if odd := sizes.operators.keys() ^ changed.keys():
            raise BadInputError(f"only one of sizes and changed bytes of {', '.join(sorted(odd))}")
        self.sizes = sizes
        # In the order of the sizes, so that rows of both match.
        self.changed = Sizes({name: changed[name] for name in sizes.operators})
        for name, points in self.changed.operators.items():
            _check(name, points)
        ends = sizes.start_s, sizes.end_s
        if not self.changed.start_s <= ends[0] < ends[1] <= self.changed.end_s:
            raise BadInputError(
                f"the sizes are of {ends[0]} to {ends[1]} s, and the changed bytes of "
                f"{self.changed.start_s} to {self.changed.end_s} s only: as long at least"
            )

    def of(self, operators: Sequence[str]) -> Changes:
        return Changes(self.sizes.of(operators), self.changed.of(operators).operators)

    @property
    def rates(self) -> dict[str, float]:
        """By operator, the bytes that it changes in a second, on average."""
        ends = self.changed.start_s, self.changed.end_s
        rows = self.changed.each(ends)
        rates = (rows[:, 1] - rows[:, 0]) / (ends[1] - ends[0])
        return dict(zip(self.changed.operators, rates.tolist(), strict=True))

    def shown(self, period_s: float, rates: Mapping[str, float]) -> Sizes:
        """The sizes, each operator's limited to what it changes in a period at these rates."""
        checks.positive("the period", period_s, unit=" s")
        for name in self.sizes.operators:
            if name not in rates:
                raise BadInputError(f"operator {name} has no change rate")
            checks.not_negative(f"the change rate of {name}", rates[name], unit=" bytes/s")
        return Sizes({
            name: [Point(p.time_s, min(p.bytes, rates[name] * period_s)) for p in points]
            for name, points in self.sizes.operators.items()
        })  # fmt: skip

    def written(self, last_s: float, times: Sequence[float] | Numbers) -> Numbers:
        """Bytes that checkpoints at these times write if the last one was at `last_s`."""
        since = self.changed.each(times) - self.changed.each([last_s])
        return np.asarray(np.minimum(since, self.sizes.each(times)).sum(axis=0))

    def checkpoints(self, times: Sequence[float]) -> list[Point]:
        """What successive checkpoints at these times write. The first writes everything.

        Raises UsageError if the times are not in order.
        """
        for last, t in pairwise(times):
            if t < last:
                raise UsageError(f"a checkpoint at {t} s after one at {last} s: in order of time")
        first = [Point(t, float(self.sizes.at([t])[0])) for t in times[:1]]
        rest = [Point(t, float(self.written(last, [t])[0])) for last, t in pairwise(times)]
        return first + rest

    @property
    def bends(self) -> Numbers:
        """Where a size or a change rate bends: no sum has a minimum between two of these."""
        return np.union1d(self.sizes.bends, self.changed.bends)


def oracle(changes: Changes, period_s: float) -> list[Point]:
    """One checkpoint in each period, at a bend or at its end, so that all together write least.

    O(periods * bends a period^2 * operators). A period's begin belongs to the previous one. If
    little has changed since the last checkpoint, the next is almost free: the best plan may have
    two close together, on both sides of a period's end.
    """
    bends = changes.bends
    choices = [
        np.append(bends[slice(*_inside(bends, start_s, start_s + period_s))], start_s + period_s)
        for start_s in periods(changes.sizes, period_s)
    ]
    choices[0] = np.append(changes.sizes.start_s, choices[0])
    costs = changes.sizes.at(choices[0])
    origins = []
    for before, times in pairwise(choices):
        ways = [cost + changes.written(t, times) for t, cost in zip(before, costs, strict=True)]
        origins.append(np.argmin(ways, axis=0))
        costs = np.min(ways, axis=0)
    chosen = [int(np.argmin(costs))]
    for origin in reversed(origins):
        chosen.append(int(origin[chosen[-1]]))
    return changes.checkpoints(
        [float(times[i]) for times, i in zip(choices, reversed(chosen), strict=True)]
    )


def _inside(times: Numbers, start_s: float, end_s: float) -> tuple[int, int]:
    """The positions of the first time after the start and of the first one not before the end."""
    first, last = np.searchsorted(times, start_s, "right"), np.searchsorted(times, end_s)
    return int(first), max(int(first), int(last))


def _check(name: str, points: Sequence[Point]) -> None:
    for before, after in pairwise(points):
        if after.bytes < before.bytes:
            raise BadInputError(
                f"operator {name} at {after.time_s} s: {after.bytes} changed bytes so far, and "
                f"{before.bytes} before: they never become less"
            )
