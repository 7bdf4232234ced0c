"""Holds epochs back while the checkpoint store is unreachable for too long. Pure.

Everything after the newest checkpoint is kept: tokens by the leader, changes in the workers' state
logs, records in the sources. If the store takes no checkpoint for hours, all of it grows until
memory or disk is full. So above a bound only tokens that retry a checkpoint are issued; the first
checkpoint that succeeds lets the job resume.
"""

from __future__ import annotations

from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.model import JobState

TOKENS_MAX = 20_000  # two hours at three epochs a second
RANGES_MAX = 400_000  # named by these tokens: about 100 MB of the leader's memory
_SAMPLE = 20  # tokens by which the number of ranges is estimated


def is_full(job: JobState) -> bool:
    """Whether only a token that retries a checkpoint may be issued."""
    if not job.checkpointing.unwritten:
        return False
    return _since_checkpoint(job) >= TOKENS_MAX or _ranges(job) >= RANGES_MAX


def reason(job: JobState) -> str:
    """Why epochs are held back, for users; empty when they are not."""
    if not is_full(job):
        return ""
    unwritten = job.checkpointing.unwritten
    return (
        f"epochs are held back: {_since_checkpoint(job)} follow the newest checkpoint, and the "
        f"checkpoint store has not taken the last {unwritten}; the job continues when it "
        "accepts one (is it full, or out of reach? `perseid doctor` shows it)"
    )


def _since_checkpoint(job: JobState) -> int:
    """The number of tokens after the newest checkpoint; earlier ones do not grow in number."""
    newest = job.newest
    return len(job.chain.tokens) if newest is None else max(0, job.chain.tip.epoch - newest.epoch)


def _ranges(job: JobState) -> int:
    some = job.chain.tokens[-_SAMPLE:]
    named = sum(len(ranges_of(issued.token)) for issued in some)
    return named * _since_checkpoint(job) // max(1, len(some))
