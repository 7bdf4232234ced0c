"""Token time: the time by which state expires and timers are due.

A token's time cannot be changed once its epoch is committed, so no single clock is trusted:

- *A coordinator's time* starts at the wall clock of its process's start and advances with the
  monotonic clock, which cannot be set and which advances while the machine sleeps. It follows the
  wall clock by SLACK of that at most: it follows slow corrections, but not jumps.
- *A job's time* advances in the same way under one leader and follows the leader's time by SLACK.
  So it never stops, even if the last token is ahead of all clocks.
- *A leader that has just read a job* shares no monotonic clock with the issuer of the last token.
  It takes the smaller of two elapsed times: its own time less that token's, and the broker's stamp
  of its claim less the stamp of that token. A clock that was always wrong, or one that jumped, then
  changes nothing, while a month without a leader, or of a stopped job, counts.

Limit: if both clocks are set ahead between the last token and the claim (they may be one machine's,
whose coordinators had all ended), this looks like a job that was stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which imports Time from here
    from perseid.coordinator.job.chain import Issued

SLACK = 0.01  # of the monotonic time that has passed
JUMP_MS = 60_000  # from here on an event reports the difference between clocks


@dataclass(frozen=True, slots=True)
class Now:
    """`monotonic_s` decides; `wall_ms` is only written into records that people read.

    `time_ms`: the leader's own time; `decide` sets it.
    """

    monotonic_s: float
    wall_ms: int
    time_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Time:
    """It was `ms` since 1970 at `at_s` of this process's monotonic clock."""

    ms: float
    at_s: float

    def after(self, now: Now, rate: float = 1.0) -> float:
        """The milliseconds since 1970 now, if `rate` of the monotonic time counts."""
        return self.ms + max(0.0, now.monotonic_s - self.at_s) * 1000 * rate


NEVER = Time(0.0, 0.0)  # of a job that has not been read yet


def started(now: Now) -> Time:
    """The time of a coordinator process that starts now."""
    return Time(now.wall_ms, now.monotonic_s)


def passed(time: Time, wanted_ms: float, now: Now) -> Time:
    """`time` now, as near to `wanted_ms` as SLACK allows."""
    slowest, fastest = time.after(now, 1 - SLACK), time.after(now, 1 + SLACK)
    return Time(min(max(wanted_ms, slowest), fastest), now.monotonic_s)


def read_again(known: Time, last: Issued | None, log: Time, now: Now) -> Time:
    """The time of a job that has been read; `known`: its time for this leader, if any."""
    if known == NEVER:  # also one that was read from a file
        return resumed(last, log, now)
    last_ms = last.token.time_ms if last is not None else 0
    return Time(max(last_ms, passed(known, now.time_ms, now).ms), now.monotonic_s)


def resumed(last: Issued | None, log: Time, now: Now) -> Time:
    """The time of a job from another leader, or of one whose last tokens were rolled back.

    `last`: its last valid token; `log`: the broker's clock, which has stamped the claim.
    """
    log_ms = log.after(now)
    if last is None:
        return Time(min(now.time_ms, log_ms), now.monotonic_s)
    since_ms = min(now.time_ms - last.token.time_ms, log_ms - last.stamp_ms)
    return Time(last.token.time_ms + max(0.0, since_ms), now.monotonic_s)


def apart_text(ahead_ms: float) -> str:
    """For users: how far the leader's wall clock is ahead of a job's token time."""
    if abs(ahead_ms) < JUMP_MS:
        return "the clock of the leading coordinator's machine agrees with token time again"
    apart = timedelta(seconds=round(abs(ahead_ms) / 1000))
    return (
        f"the clock of the leading coordinator's machine is {apart} "
        f"{'ahead of' if ahead_ms > 0 else 'behind'} token time, which follows the monotonic "
        f"clock and approaches it by {SLACK:.0%} of the time: see `perseid doctor`"
    )
