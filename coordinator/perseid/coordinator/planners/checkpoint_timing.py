"""When to take a checkpoint within its period: online, at a moment of small state.

Meteor Shower section 4.3. In each period the dynamic operators report their turning points. When
the total is about to grow again (the summed rates become positive) the moment may be good. If no
moment is chosen, the checkpoint is taken at the end of the period. `oracle` knows the future;
`fixed` ignores the sizes.

1. `FirstMinimum`, the paper's: alert once a total below the profile's s_max is seen, at the
   period's begin or when an operator has lost more than half; then the first minimum.
2. `Stopping`, ours: a minimum that is no larger than the average cost of waiting. Waiting costs
   more the closer the end is: optimal stopping over the minima of the profile.

Profiles and plans are O(turning points * operators), each moment of a policy O(1).

>>> saw = [Point(t * 50.0, size) for t, size in enumerate([80, 90, 20, 90, 60, 90, 30, 90, 80])]
>>> sizes = Sizes({"window": saw})
>>> [p.bytes for p in played(sizes, 200.0, FirstMinimum(profile(sizes, 200.0)))]
[20.0, 80.0]
>>> [p.bytes for p in oracle(sizes, 200.0)], [p.bytes for p in fixed(sizes, 200.0)]
([20.0, 30.0], [60.0, 80.0])
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.state_moments import Moment, dynamic_of, moments
from perseid.coordinator.planners.state_sizes import Numbers, Point, Sizes
from perseid.errors import UsageError

RELAXATION_MIN = 0.2  # s_max is at least this share above s_min, or no total would ever be below it
PERIODS_MAX = 1_000_000  # of one history: two years of minutes
_STEPS = 200  # of a period when its value is computed backwards


@dataclass(frozen=True, slots=True)
class Profile:
    """What was learned from some periods: by period, its local minima and the size at its end.

    A minimum is an offset into its period, in seconds, and the total there. Raises UsageError for
    invalid values.
    """

    period_s: float
    minima: tuple[tuple[Point, ...], ...]
    ends: tuple[float, ...]

    def __post_init__(self) -> None:
        checks.positive("the period of a profile", self.period_s, unit=" s")
        if not len(self.minima) == len(self.ends) > 0:
            raise UsageError(
                f"a profile has minima of {len(self.minima)} periods and {len(self.ends)} ends: "
                "as many, and at least one"
            )
        for end in self.ends:
            checks.not_negative("the total at a period's end", end)
        for minimum in chain.from_iterable(self.minima):
            checks.not_negative("the offset of a minimum", minimum.time_s, unit=" s")
            checks.not_negative(f"the minimum at {minimum.time_s} s", minimum.bytes)

    @property
    def s_min(self) -> float:
        return min(self._smallest())

    @property
    def s_max(self) -> float:
        """The highest of the periods' smallest totals, relaxed."""
        return max(*self._smallest(), (1 + RELAXATION_MIN) * self.s_min)

    def _smallest(self) -> list[float]:
        both = zip(self.minima, self.ends, strict=True)
        return [min(end, *(p.bytes for p in period)) if period else end for period, end in both]


class Policy(Protocol):
    """Whether to take the checkpoint now. Must not know more than its calls provide."""

    def begin(self, total: float) -> None:
        """A period begins with this total."""
        ...

    def halved(self, total: float) -> None:
        """An operator's size has fallen by more than half; `total` is the new total."""
        ...

    def about_to_grow(self, offset_s: float, total: float) -> bool:
        """The total has a minimum here, at this offset into the period."""
        ...


class FirstMinimum:
    """The paper's policy: alert mode below s_max, then the first minimum."""

    def __init__(self, profile: Profile) -> None:
        self._s_max = profile.s_max
        self.alert = False

    def begin(self, total: float) -> None:
        checks.not_negative("the total", total)
        self.alert = total < self._s_max

    def halved(self, total: float) -> None:
        checks.not_negative("the total", total)
        self.alert = self.alert or total < self._s_max

    def about_to_grow(self, offset_s: float, total: float) -> bool:
        return self.alert


class Stopping:
    """Takes a minimum that is no larger than the average cost of waiting from there on."""

    def __init__(self, profile: Profile) -> None:
        self._period_s = profile.period_s
        self._waiting = _cost_of_waiting(profile)

    def begin(self, total: float) -> None:
        return

    def halved(self, total: float) -> None:
        return

    def about_to_grow(self, offset_s: float, total: float) -> bool:
        checks.not_negative("the offset in the period", offset_s, unit=" s")
        checks.not_negative("the total", total)
        step = int(min(offset_s / self._period_s, 1.0) * _STEPS)
        step = min(step, _STEPS - 1)
        return total <= float(self._waiting[step + 1])


def _cost_of_waiting(profile: Profile) -> Numbers:
    """By step of the period: expected size of the checkpoint if none is taken before it.

    Computed backwards: a step has a minimum with the frequency that the profile shows near it, and
    the minimum is taken if it is below the cost of waiting.
    """
    value = np.empty(_STEPS + 1)
    value[_STEPS] = np.mean(profile.ends)
    periods = len(profile.minima)
    seen: list[list[float]] = [[] for _ in range(_STEPS)]
    for period in profile.minima:
        for point in period:
            seen[min(int(point.time_s / profile.period_s * _STEPS), _STEPS - 1)].append(point.bytes)
    for step in range(_STEPS - 1, -1, -1):
        later = value[step + 1]
        saved = sum(max(later - size, 0.0) for size in seen[step]) / periods
        value[step] = later - saved
    return value


def profile(sizes: Sizes, period_s: float) -> Profile:
    """The profile of all whole periods of these sizes. Raises UsageError if there is none."""
    dynamic = dynamic_of(sizes)
    times = dynamic.times()
    minima = [Point(t, b) for t, b in _local_minima(times, dynamic.at(times))]
    starts = periods(sizes, period_s)
    return Profile(
        period_s,
        tuple(
            tuple(
                Point(p.time_s - s, p.bytes)
                for p in minima[_first(minima, s) : _first(minima, s + period_s)]
            )
            for s in starts
        ),
        tuple(float(b) for b in dynamic.at([s + period_s for s in starts])),
    )


def played(sizes: Sizes, period_s: float, policy: Policy) -> list[Point]:
    """The checkpoints, one in each period, with the size of the whole state at each.

    The policy sees only the dynamic operators' turning points, in order.
    """
    dynamic = dynamic_of(sizes)
    seen = moments(dynamic)
    taken = []
    for start_s in periods(sizes, period_s):
        policy.begin(float(dynamic.at([start_s])[0]))
        inside = seen[_first(seen, start_s) : _first(seen, start_s + period_s)]
        chosen = next((m.time_s for m in inside if _is_taken(policy, m, start_s)), None)
        taken.append(start_s + period_s if chosen is None else chosen)
    return _points(sizes, taken)


def _is_taken(policy: Policy, moment: Moment, start_s: float) -> bool:
    if moment.halved:
        policy.halved(moment.total)
    return moment.grows and policy.about_to_grow(moment.time_s - start_s, moment.total)


def _first(found: Sequence[Point] | Sequence[Moment], time_s: float) -> int:
    """The position of the first one at that time or later; they are sorted by time."""
    return bisect_left(found, time_s, key=lambda one: one.time_s)


def oracle(sizes: Sizes, period_s: float) -> list[Point]:
    """The smallest total of each period."""
    turns = sizes.times()
    taken = []
    for start_s in periods(sizes, period_s):
        first, last = np.searchsorted(turns, (start_s, start_s + period_s))
        times = np.array([start_s, *turns[first:last], start_s + period_s])
        taken.append(float(times[int(np.argmin(sizes.at(times)))]))
    return _points(sizes, taken)


def fixed(sizes: Sizes, period_s: float) -> list[Point]:
    """A checkpoint at the end of each period, at any size."""
    return _points(sizes, [start_s + period_s for start_s in periods(sizes, period_s)])


def periods(sizes: Sizes, period_s: float) -> list[float]:
    """The starts of the whole periods. Raises UsageError if there is none."""
    checks.positive("the period", period_s, unit=" s")
    length_s = sizes.end_s - sizes.start_s
    number = length_s / period_s + 1e-9
    if number < 1:
        raise UsageError(f"a period of {period_s} s, and the sizes are of {length_s} s only")
    if number > PERIODS_MAX:
        raise UsageError(
            f"a period of {period_s} s, and the sizes are of {length_s} s: at most {PERIODS_MAX} "
            "periods, so a longer one"
        )
    return [sizes.start_s + i * period_s for i in range(int(number))]


def _local_minima(times: Numbers, totals: Numbers) -> list[tuple[float, float]]:
    inner = (totals[1:-1] <= totals[:-2]) & (totals[1:-1] < totals[2:])
    return list(zip(times[1:-1][inner].tolist(), totals[1:-1][inner].tolist(), strict=True))


def _points(sizes: Sizes, times: Sequence[float]) -> list[Point]:
    return [Point(t, float(b)) for t, b in zip(times, sizes.at(times), strict=True)]
