"""Whether a process has failed, from its heartbeats and its supervisor's reports.

Replaces Meteor Shower's pings (section 3.1) and AF-Stream's heartbeats (section 3.2), which have a
fixed limit. Accrual detection (Hayashibara and others, 2004): suspicion is -log10 of the
probability that a heartbeat arrives later than now, if intervals are normally distributed like the
previous ones. A supervisor next to the process knows more: an end that it reports is final. A
process that it sees alive is only suspected until a limit, because it may be paused or cut off.
O(1): only HISTORY_MAX intervals count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, pstdev

from perseid.coordinator.planners import checks
from perseid.errors import UsageError

HISTORY_MAX = 100  # intervals that count
FIRST_S = 10.0  # the assumed interval while none is known
DEVIATION_MIN = 0.1  # of the mean, so that after regular intervals a jitter is no failure
CLOCK_S = 1e-9  # the resolution of clocks: no deviation is smaller
INTERVAL_MAX_S = 1e12  # longer ones are a clock error


class Hint(Enum):
    """The supervisor's last report; UNKNOWN also if the supervisor itself is silent."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    ENDED = "ended"


class Verdict(Enum):
    """SUSPECTED: prepare, but revoke nothing. FAILED: fence it and let another one take over."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    FAILED = "failed"


def _check_interval(what: str, interval_s: float) -> None:
    checks.positive(what, interval_s, unit=" s")
    checks.within(what, interval_s, 0.0, INTERVAL_MAX_S, unit=" s")


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The time of the last heartbeat and the intervals before it, newest last."""

    last_s: float
    intervals_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        checks.finite("the time of the last heartbeat", self.last_s, unit=" s")
        for interval_s in self.intervals_s:
            _check_interval("an interval of heartbeats", interval_s)

    def then(self, now_s: float) -> Heartbeats:
        """Adds a heartbeat. A clock that went back adds no interval."""
        checks.finite("the time of a heartbeat", now_s, unit=" s")
        if now_s <= self.last_s:
            return self
        kept = (*self.intervals_s, now_s - self.last_s)[-HISTORY_MAX:]
        return Heartbeats(now_s, kept)


@dataclass(frozen=True, slots=True)
class Limits:
    """Suspicion is in powers of ten: 8 is one false alarm in a hundred million intervals."""

    suspect: float = 3.0
    fail: float = 8.0
    first_s: float = FIRST_S
    silent_s: float = 30.0  # failed even if the supervisor sees the process

    def __post_init__(self) -> None:
        checks.positive("the suspicion of a suspect", self.suspect)
        checks.positive("the suspicion of a failure", self.fail)
        if self.suspect > self.fail:
            raise UsageError(f"suspected from {self.suspect}, failed from {self.fail}: no less")
        _check_interval("the first interval", self.first_s)
        checks.positive("the limit of silence", self.silent_s, unit=" s")


def suspicion(heartbeats: Heartbeats, now_s: float, first_s: float = FIRST_S) -> float:
    """0 for none, infinite for certainty. Before the second heartbeat `first_s` is the interval.

    Raises UsageError for a time that is no number.

    >>> beats = Heartbeats(10.0, (1.0, 1.2, 0.8, 1.0))
    >>> [round(suspicion(beats, 10.0 + late_s), 1) for late_s in (1.0, 1.3, 1.6, 2.0)]
    [0.3, 1.8, 5.0, 12.1]
    """
    checks.finite("now", now_s, unit=" s")
    _check_interval("the first interval", first_s)
    intervals = heartbeats.intervals_s or (first_s,)
    mean = fmean(intervals)
    deviation = max(pstdev(intervals), DEVIATION_MIN * mean, CLOCK_S)
    late = (now_s - heartbeats.last_s - mean) / deviation
    chance = math.erfc(late / math.sqrt(2)) / 2
    return -math.log10(chance) if chance > 0 else math.inf


def judge(heartbeats: Heartbeats, hint: Hint, now_s: float, limits: Limits = Limits()) -> Verdict:
    """The verdict on the process now."""
    if hint is Hint.ENDED:
        return Verdict.FAILED
    found = suspicion(heartbeats, now_s, limits.first_s)
    silent = now_s - heartbeats.last_s > limits.silent_s
    if silent if hint is Hint.ALIVE else found >= limits.fail:
        return Verdict.FAILED
    return Verdict.SUSPECTED if found >= limits.suspect else Verdict.ALIVE
