"""When to take checkpoints while a job runs, epoch by epoch.

Meteor Shower section 4.3. Time is divided into periods with one checkpoint in each. The sizes
reported with the epochs form a profile of the last periods. When a period begins, the profile
selects its policy: the best moment if sizes repeat (`repeating`), else optimal stopping
(`delta_stopping`). A checkpoint is due

1. when the policy accepts what it would write now, unless the state became smaller just now;
2. at the period's end, if none was taken: nothing is dynamic, or no such moment came.

So two checkpoints are at most two periods and a token apart. Frozen: each event returns the next
value. An epoch is O(samples + operators), a period O(samples * operators) and some milliseconds for
its policy.

A window that is emptied every 25 s, with an epoch a second. Three checkpoints are at the end of
their periods at any size; then the profile shows when the window is empty:

    >>> timing, taken = Timing(period_s=60.0, begin_s=0.0), []
    >>> for second in range(1, 300):
    ...     timing = timing.seen(second, {"window": (second % 25 * 1000, 1000)})
    ...     if timing.due(second):
    ...         timing = timing.took(second)
    ...         taken.append((second, second % 25))
    >>> taken
    [(60, 10), (120, 20), (180, 5), (226, 1), (276, 1)]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor, inf

import numpy as np

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.delta_stopping import DeltaStopping
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.repeating import Planned, repetition
from perseid.coordinator.planners.state_sizes import BYTES_MAX, Point, Sizes
from perseid.errors import BadInputError

PROFILE_PERIODS = 8  # older ones are dropped: a job's load changes with the hours
PERIOD_SAMPLES = 200  # kept of a period; of two that are closer, the smaller one
LEARNED_PERIODS = 2  # fewer do not form a profile
WORTH = 0.005  # of what a period changes: a smaller saving is not worth an early checkpoint


def played(changes: Changes, period_s: float, end_s: float, epoch_s: float = 1.0) -> list[float]:
    """The times of the checkpoints: epochs follow each other, and the token after each asks."""
    names = list(changes.sizes.operators)
    times = np.arange(changes.sizes.start_s, end_s, epoch_s)
    sizes, changed = changes.sizes.each(times).T, changes.changed.each(times).T
    timing, found, before = Timing(period_s, changes.sizes.start_s), [], changed[0]
    for time_s, size, now in zip(times.tolist(), sizes, changed, strict=True):
        seen = zip(names, size, now - before, strict=True)
        timing = timing.seen(time_s, {name: (int(s), int(grown)) for name, s, grown in seen})
        before = now
        if timing.due(time_s):
            found.append(time_s)
            timing = timing.took(time_s)
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """After one epoch, by operator: bytes of state, and all bytes changed since the first sample.

    Times are seconds on the leader's clock.
    """

    time_s: float
    bytes: Mapping[str, float]
    changed: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.bytes.values())


@dataclass(frozen=True, slots=True)
class Timing:
    """What is known in the period that began at `begin_s`; `taken`: it has had its checkpoint."""

    period_s: float
    begin_s: float
    taken: bool = False
    samples: tuple[Sample, ...] = ()
    policy: Planned | DeltaStopping | None = None  # None while no operator is dynamic
    dynamic: tuple[str, ...] = ()  # the operators that the policy is for
    last_s: float | None = None  # the last checkpoint's token; None: the period's begin
    last: Sample | None = None  # what was known then; None: nothing, so the next one writes all

    def __post_init__(self) -> None:
        checks.positive("the period", self.period_s, unit=" s")
        if self.begin_s != -inf:  # unless a retry is pending
            checks.finite("the begin of the period", self.begin_s, unit=" s")

    def seen(self, time_s: float, sizes: Mapping[str, tuple[int, int]]) -> Timing:
        """An epoch has ended: by operator, its state and what the epoch changed of it, in bytes.

        BadInputError names the operator with invalid bytes.
        """
        _check(time_s, sizes)
        if self.samples and self.samples[-1].bytes.keys() != sizes.keys():
            other = replace(self, samples=(), policy=None, last=None)  # another layout
            return other.seen(time_s, sizes)
        last = self.samples[-1] if self.samples else None
        before = last.changed if last is not None else dict.fromkeys(sizes, 0.0)
        sample = Sample(
            time_s,
            {name: float(size) for name, (size, _) in sizes.items()},
            {name: before[name] + changed for name, (_, changed) in sizes.items()},
        )
        known = sample if time_s <= self._last_s else self.last
        timing = replace(self._in_period(time_s), samples=self._with(sample), last=known)
        return timing._learned() if timing.begin_s != self.begin_s else timing

    def due(self, now_s: float) -> bool:
        """Whether the next token should take a checkpoint."""
        checks.finite("now", now_s, unit=" s")
        timing = self._in_period(now_s)
        return not timing.taken and (timing._overdue(now_s) or self.early(now_s))

    def early(self, now_s: float) -> bool:
        """Whether it is due for its size alone: the period has neither ended nor had one."""
        timing = self._in_period(now_s)
        known = timing.begin_s == self.begin_s  # of a period that has just begun no policy yet
        return known and not timing.taken and not timing._overdue(now_s) and timing._small

    def took(self, now_s: float) -> Timing:
        """A token has asked for a checkpoint. One after a period's end belongs to that period."""
        checks.finite("now", now_s, unit=" s")
        last = self.samples[-1] if self.samples else None
        timing = replace(self._in_period(now_s), last_s=now_s, last=last)
        if timing._overdue(now_s) and not timing.taken:
            return replace(timing, begin_s=now_s)._learned()
        return replace(timing, taken=True)

    def retry_pending(self) -> Timing:
        """The last checkpoint was aborted: the next token takes another."""
        return replace(self, begin_s=-inf, taken=False)

    def again(self, begin_s: float, last_s: float) -> Timing:
        """With the same profile, in a period that began at `begin_s`; the last one at `last_s`."""
        before = [sample for sample in self.samples if sample.time_s <= last_s]
        last = before[-1] if before else None
        timing = replace(self, begin_s=begin_s, taken=False, last_s=last_s, last=last)
        return timing._learned()

    def _overdue(self, now_s: float) -> bool:
        return now_s >= self.begin_s + self.period_s

    def _in_period(self, now_s: float) -> Timing:
        """Ends a period that has had its checkpoint; other periods end with their checkpoint."""
        if not (self.taken and self._overdue(now_s)):
            return self
        return replace(self, begin_s=self.begin_s + self.period_s, taken=False)

    @property
    def _last_s(self) -> float:
        return self.begin_s if self.last_s is None else self.last_s

    @property
    def _small(self) -> bool:
        """Whether waiting would cost more, at the sizes of the last epoch, which did not fall."""
        if self.policy is None or len(self.samples) < 2:
            return False
        before, now = ([one.bytes[name] for name in self.dynamic] for one in self.samples[-2:])
        if sum(now) < sum(before):
            return False
        offset_s = min(max(self.samples[-1].time_s - self.begin_s, 0.0), self.period_s)
        return self.policy.takes(self._last_offset_s, offset_s, self._written)

    @property
    def _last_offset_s(self) -> float:
        """The last checkpoint's offset in the previous period."""
        return min(max(self._last_s - self.begin_s + self.period_s, 0.0), self.period_s)

    @property
    def _written(self) -> float:
        """What it would write of the dynamic operators: changes, at most the whole state."""
        now, last = self.samples[-1], self.last
        known = last.changed if last is not None else dict.fromkeys(self.dynamic, -inf)
        return sum(min(now.bytes[name], now.changed[name] - known[name]) for name in self.dynamic)

    def _with(self, sample: Sample) -> tuple[Sample, ...]:
        """The samples of a profile and this one, without two that are close to each other."""
        if not self.samples:
            return (sample,)
        older, last = self.samples[:-1], self.samples[-1]
        if sample.time_s <= last.time_s:  # seen at the same time
            return (*older, replace(sample, time_s=last.time_s))
        if older and last.time_s - older[-1].time_s < self.period_s / PERIOD_SAMPLES:
            older, last = older[:-1], min(older[-1], last, key=lambda one: one.total)
        forgotten = sample.time_s - (PROFILE_PERIODS + 2) * self.period_s
        gone = bool(older) and older[0].time_s < forgotten  # one is added, one is dropped
        return (*older[gone:], last, sample)

    def _learned(self) -> Timing:
        """Adds the policy that the previous periods give."""
        if not self.samples:
            return self
        whole = floor((self.begin_s - self.samples[0].time_s) / self.period_s)
        known_s = self.begin_s - min(whole, PROFILE_PERIODS) * self.period_s
        if whole < LEARNED_PERIODS or self.samples[-1].time_s <= known_s:
            return replace(self, policy=None)
        changes = self._changes(known_s)
        dynamic = changes.shown(self.period_s, changes.rates).dynamic
        if not dynamic:
            return replace(self, policy=None)
        return replace(self, policy=self._policy(changes.of(dynamic)), dynamic=tuple(dynamic))

    def _policy(self, changes: Changes) -> Planned | DeltaStopping:
        length_s = repetition(changes, self.period_s)
        if length_s is not None:
            last = self.last.changed if self.last is not None else None
            return Planned.of(changes, length_s, self.period_s, last, self._last_offset_s)
        return DeltaStopping(changes, self.period_s, WORTH)

    def _changes(self, known_s: float) -> Changes:
        """Sizes and changes from `known_s` to the period's begin."""
        all_s = np.array([sample.time_s for sample in self.samples])
        inside = all_s[(all_s > known_s) & (all_s < self.begin_s)]
        times = [known_s, *inside.tolist(), self.begin_s]

        def curve(values: list[float], *, rises: bool = False) -> list[Point]:
            found = np.interp(times, all_s, values)
            if rises:  # rounding may lift an interpolated value above the next
                found = np.maximum.accumulate(found)
            return [Point(*point) for point in zip(times, found.tolist(), strict=True)]

        names = self.samples[-1].bytes
        sizes = {n: curve([sample.bytes[n] for sample in self.samples]) for n in names}
        changed = {
            n: curve([sample.changed[n] for sample in self.samples], rises=True) for n in names
        }
        return Changes(Sizes(sizes), changed)


def _check(time_s: float, sizes: Mapping[str, tuple[int, int]]) -> None:
    checks.finite("the time of an epoch", time_s, unit=" s")
    if not sizes:
        raise BadInputError(f"the epoch at {time_s} s has no sizes: of one operator at least")
    for name, (size, changed) in sizes.items():
        for what, bytes_ in (("state", size), ("changed state", changed)):
            checks.within(f"the {what} of {name}", bytes_, 0, BYTES_MAX, BadInputError, unit=" B")
