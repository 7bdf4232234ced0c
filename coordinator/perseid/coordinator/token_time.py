"""What time it is for jobs: token time, by which state expires and timers are due.

What a token says cannot be taken back once an epoch is committed, so no single clock is believed:

- *A coordinator's time* is the wall clock of when its process started, and passes as the monotonic
  clock does, which nobody sets and which goes on while the machine sleeps. It follows the wall
  clock by SLACK of that at most: it keeps up with slow corrections, and not with jumps.
- *A job's time* passes in the same way under one leader, and follows the leader's likewise. So it
  never stands still, also where the last token is ahead of all clocks.
- *A leader that has just read a job* has no monotonic clock in common with whoever issued the last
  token. It takes as passed the lesser of what two clocks say: its own time less that token's, and
  the broker's, which stamps each record of the token log: its claim's stamp less that token's. A
  clock that was wrong all along moves nothing then, nor does one that jumped, and a month in which
  nobody led or the job was stopped counts.

What is left: where both clocks are set ahead between the last token and the claim (they may be one
machine's, whose coordinators were all ended), nothing tells that from a job that was stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which has the times of here
    from perseid.coordinator.model import Issued, Now

SLACK = 0.01        # of the monotonic time that has passed
JUMP_MS = 60_000    # from here on people are told that a clock is apart


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
    """The time of a coordinator's process that starts now."""
    return Time(now.wall_ms, now.monotonic_s)


def passed(time: Time, wanted_ms: float, now: Now) -> Time:
    """`time` now: it comes as near to `wanted_ms` as SLACK lets it."""
    slowest, fastest = time.after(now, 1 - SLACK), time.after(now, 1 + SLACK)
    return Time(min(max(wanted_ms, slowest), fastest), now.monotonic_s)


def read_again(known: Time, last: Issued | None, log: Time, now: Now) -> Time:
    """The time of a job that has been read; `known`: what it was to this leader, if anything."""
    if known is NEVER:
        return resumed(last, log, now)
    last_ms = last.token.time_ms if last is not None else 0
    return Time(max(last_ms, passed(known, now.time_ms, now).ms), now.monotonic_s)


def resumed(last: Issued | None, log: Time, now: Now) -> Time:
    """The time of a job that another leader had, or of one whose last tokens were taken back.

    `last`: its last token that counts; `log`: the broker's clock, which has stamped the claim.
    """
    log_ms = log.after(now)
    if last is None:
        return Time(min(now.time_ms, log_ms), now.monotonic_s)
    since_ms = min(now.time_ms - last.token.time_ms, log_ms - last.stamp_ms)
    return Time(last.token.time_ms + max(0.0, since_ms), now.monotonic_s)


def apart_text(ahead_ms: float) -> str:
    """For people: the leader's wall clock is by so much ahead of a job's token time."""
    if abs(ahead_ms) < JUMP_MS:
        return "the clock of the leading coordinator's machine agrees with token time again"
    apart = timedelta(seconds=round(abs(ahead_ms) / 1000))
    return (
        f"the clock of the leading coordinator's machine is {apart} "
        f"{'ahead of' if ahead_ms > 0 else 'behind'} token time, which goes on by the monotonic "
        f"clock and comes nearer by {SLACK:.0%} of it: see `perseid doctor`"
    )
