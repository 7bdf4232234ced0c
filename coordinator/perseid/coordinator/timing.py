"""The moment of a job's next checkpoint: `planners.live_timing`, fed from progress.

Only for a job with `sizeTimed: true`; otherwise a checkpoint is due one period after the last one.
The current period and the sizes so far are the leader's own, also when it reads the job again. A
new leader restores the period from the newest checkpoint's token, and the sizes since then. The
rest of the profile builds up again as epochs end; trimming of the token log takes nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perseid.coordinator.job.chain import Issued
from perseid.coordinator.model import JobState
from perseid.coordinator.planners.live_timing import Timing
from perseid.coordinator.token_time import Now
from perseid.topics.records import EpochDone


def due(job: JobState, now: Now) -> bool:
    """Whether a checkpoint is due by time or by size."""
    timing = _timing(job)
    if timing is not None:
        return timing.due(now.monotonic_s)
    return job.program is not None and now.monotonic_s - job.checkpointing.begun_s >= _period_s(job)


def took(job: JobState, now: Now) -> JobState:
    """The job after a checkpoint token was issued."""
    timing = _timing(job)
    taken = timing.took(now.monotonic_s) if timing is not None else None
    return replace(job, checkpointing=job.checkpointing.began(now.monotonic_s, taken))


def retry_pending(job: JobState) -> JobState:
    """The last checkpoint was aborted: the next token that can takes another one."""
    timing = _timing(job)
    owed = timing.retry_pending() if timing is not None else None
    return replace(job, checkpointing=job.checkpointing.owed(owed))


def seen(job: JobState, record: EpochDone, now: Now) -> JobState:
    """The job after an epoch of it was done just now."""
    timing = _timing(job)
    if timing is None:
        return job
    fed = _fed(timing, record, now.monotonic_s)
    return replace(job, checkpointing=job.checkpointing.timed(fed))


def read_back(job: JobState, reported: Iterable[tuple[Issued, EpochDone]], now: Now) -> JobState:
    """The timing of a job that has just been loaded, from the reports of remembered epochs.

    Epochs that this leader has seen end are left out: they are in the timing that it has.
    """
    timing = _timing(job)
    if timing is None:
        return job
    newest = job.newest.epoch if job.newest is not None else 0
    begun = [i for i in job.chain.tokens if i.token.checkpoint or i.token.epoch == newest]
    if begun:
        last_s = _issued_s(job, begun[-1], now)
        timing = timing.again(max(last_s, now.monotonic_s - timing.period_s), last_s)
    for issued, record in reported:
        timing = _fed(timing, record, _issued_s(job, issued, now))
    return replace(job, checkpointing=job.checkpointing.timed(timing))


def _issued_s(job: JobState, issued: Issued, now: Now) -> float:
    """When the token was issued, on this leader's monotonic clock; never in its future."""
    return now.monotonic_s - max(job.chain.time.after(now) - issued.token.time_ms, 0) / 1000


def _fed(timing: Timing, record: EpochDone, time_s: float) -> Timing:
    sizes = {state.operator: (state.bytes, state.changed_bytes) for state in record.states}
    return timing.seen(time_s, sizes) if sizes else timing


def _timing(job: JobState) -> Timing | None:
    """The timing of the running revision; a new one if there is none with its period yet."""
    if job.program is None or not job.program.spec.fault_tolerance.checkpoint.size_timed:
        return None
    known = job.checkpointing.timing
    if known is not None and known.period_s == _period_s(job):
        return known
    return Timing(_period_s(job), job.checkpointing.begun_s)


def _period_s(job: JobState) -> float:
    assert job.program is not None, f"{job.name} has no program yet"
    return job.program.spec.fault_tolerance.checkpoint.period_s
