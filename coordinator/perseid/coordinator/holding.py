"""Epochs are held back while the checkpoint store is away for too long. Pure.

What follows the newest checkpoint is kept: tokens by the leader, changes in the workers' state
logs, records by the sources. A store that takes no checkpoint for hours would make all of it grow
until something runs out of memory or disk. So from a bound on only tokens that try a checkpoint
again are issued; the first that succeeds lets the job go on.
"""

from __future__ import annotations

from perseid.coordinator.model import JobState, ranges_of

TOKENS_MAX = 20_000   # two hours at three epochs a second
RANGES_MAX = 400_000  # that these tokens name: about 100 MB of the leader's
_SAMPLE = 20          # tokens of which the number of ranges is told


def is_full(job: JobState) -> bool:
    """Whether only a token that tries a checkpoint may be issued."""
    if not job.unwritten:
        return False
    return _behind(job) >= TOKENS_MAX or _ranges(job) >= RANGES_MAX


def reason(job: JobState) -> str:
    """Why epochs are held back, for people; empty when they are not."""
    if not is_full(job):
        return ""
    return (
        f"epochs are held back: {_behind(job)} follow the newest checkpoint, and the checkpoint "
        f"store has not taken the last {job.unwritten}; the job goes on when it takes one (is it "
        "full, or out of reach? `perseid doctor` tells)"
    )


def _behind(job: JobState) -> int:
    """Tokens behind the newest checkpoint; those in front of it are as many as in good times."""
    newest = job.newest
    return len(job.tokens) if newest is None else max(0, job.tip.epoch - newest.epoch)


def _ranges(job: JobState) -> int:
    some = job.tokens[-_SAMPLE:]
    named = sum(len(ranges_of(issued.token)) for issued in some)
    return named * _behind(job) // max(1, len(some))
