"""Applies the records of a job's progress topic to its state."""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator import (
    checkpoints,
    corrections,
    failing,
    input_bytes,
    input_checks,
    issue,
    pressure,
    timing,
    watermark,
)
from perseid.coordinator.actions import Action
from perseid.coordinator.job.inputs import Done, Inputs
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.errors import FencedError, PermanentError, ProcessDied
from perseid.topics.records import (
    EpochDone,
    EventTimes,
    FragmentState,
    PartDone,
    PartFailed,
    ProgressRecord,
)

Step = tuple[JobState, list[Action]]


def seen(job: JobState, record: ProgressRecord, now: Now) -> Step:
    """The job after one record; ignores records of another job UUID."""
    if record.job_uuid != job.entry.uuid:
        return job, []
    match record:
        case EpochDone():
            return _epoch_done(job, record, now)
        case EventTimes():
            return watermark.with_event_times(job, record), []
        case PartDone():
            return checkpoints.part_done(job, record), []
        case PartFailed():
            return checkpoints.part_failed(job, record), []
        case FragmentState():
            before = job.phase
            job, actions = _fragment(job, record, now)
            if before in OWNED and job.phase is Phase.WAITING and _is_fenced(record):
                job = job.move(Phase.LOADING, now, "its owner was fenced, and not by this leader")
                job = replace(job, load_at_s=now.monotonic_s)
            return job, actions


def _is_fenced(record: FragmentState) -> bool:
    """Whether the current owner was fenced: another process wrote what this leader lacks."""
    return record.error_kind == FencedError.__name__


def replayed(job: JobState, records: tuple[ProgressRecord, ...], now: Now) -> Step:
    """Applies the owner's last report to a job that has just been loaded; older ones are outdated.

    A fragment that has ended reports nothing more: records after its end had an unknown outcome and
    arrived late.
    """
    reports = (r for r in records if isinstance(r, EpochDone | FragmentState))
    ours = [r for r in reports if _of_owner(job, r) and _has_state(r)]
    if not ours:
        return job, []
    ends = [r for r in ours if isinstance(r, FragmentState) and r.state in ("failed", "stopped")]
    last = ends[0] if ends else ours[-1]
    if isinstance(last, FragmentState):
        return _fragment(job, last, now)
    return _running(job, now), []


def _has_state(record: EpochDone | FragmentState) -> bool:
    """Whether the record reports the state of the fragment."""
    return not isinstance(record, FragmentState) or record.state != "warning"


def _of_owner(job: JobState, record: EpochDone | FragmentState) -> bool:
    """Whether the report is from the present owner of its fragment."""
    own = job.plan.of_fragment(record.fragment) if job.plan is not None else None
    return (
        own is not None and own.owner is not None and record.job_uuid == job.entry.uuid
        and record.generation == own.generation
    )  # fmt: skip


def _epoch_done(job: JobState, record: EpochDone, now: Now) -> Step:
    epoch = job.chain.confirmed(record)
    if epoch == 0 or epoch > job.chain.tip.epoch:
        return job, []  # of a token that was rolled back
    before = job.done
    job = replace(
        job, ownership=job.ownership.committed(record.fragment, epoch),
        totals=job.totals.counted(record), health=job.health.progressed(epoch),
    )  # fmt: skip
    if job.done > before:
        checks = tuple(c for c in record.checks if c.epoch > job.inputs.checks_to)
        job = input_checks.with_checks(job, checks)
        job = replace(
            job, inputs=_measured(job, record, now),
            checkpointing=job.checkpointing.measured(record.state_bytes),
        )  # fmt: skip
        job = pressure.seen(timing.seen(job, record, now), record.states)
    if not _of_owner(job, record):
        return job, []  # a previous owner ended its epoch: it counts, but that owner is not running
    job, actions = failing.progressed(_running(job, now), now)
    return job, actions


def _measured(job: JobState, record: EpochDone, now: Now) -> Inputs:
    done = Done(now.monotonic_s, record.epoch, record.rows_in, record.rows_out, record.duration_ms)
    record_bytes = input_bytes.seen(job.inputs.record_bytes, record)
    return job.inputs.measured(done, issue.adapted_size(job, record), record_bytes)


def _running(job: JobState, now: Now) -> JobState:
    if job.phase is Phase.RESTORING:
        job = job.move(Phase.RUNNING, now, "its owner runs it")
    return replace(job, health=job.health.waits_no_more())


def _fragment(job: JobState, record: FragmentState, now: Now) -> Step:
    if not _of_owner(job, record) or job.phase not in OWNED:
        return job, []
    job = job.with_events(*record.events)
    if record.state == "failed":
        return _failed(_progressed(job, record, record.epoch), record, now)
    if record.state == "stopped":
        job = _progressed(job, record, record.epoch)
        return failing.handed_over(job, now, record.incarnation), []
    if record.state == "running":
        job = _progressed(job, record, job.chain.confirmed(record))
        if record.restored_from:
            job = job.with_events(
                f"generation {record.generation} restored from {record.restored_from}"
            )
        return _running(checkpoints.superseded(job, record), now), []
    return (_repeated(job, record, now) if record.state == "repeated" else job), []


def _progressed(job: JobState, record: FragmentState, epoch: int) -> JobState:
    """The job after its fragment has done `epoch`, which may be of a token that was rolled back."""
    done = min(epoch, job.chain.tip.epoch)
    return replace(job, ownership=job.ownership.progressed(record.fragment, done))


def _repeated(job: JobState, record: FragmentState, now: Now) -> JobState:
    """Applies the owner's repeated report after reports were lost.

    The end of its last epoch and parts of a checkpoint may be among them.
    """
    job = _progressed(job, record, record.epoch).with_events(
        f"generation {record.generation} reported its state again"
    )
    collecting = job.checkpointing.collecting
    if collecting is not None and collecting.epoch <= record.epoch:
        job = checkpoints.aborted(job, "word of its parts was lost")
    return _running(job, now)


def _failed(job: JobState, record: FragmentState, now: Now) -> Step:
    kind = record.error_kind or "PermanentError"
    text = record.error or "the fragment failed without a reason"
    job = replace(job, health=job.health.tried(kind))
    if job.health.unexpected >= failing.TRIES_MAX:
        return corrections.fail(job, now, kind, failing.with_tries(job, text))
    job, text, final = failing.settled(job, "worker", kind, text, now)
    if final or record.permanent:
        return corrections.fail(job, now, PermanentError.__name__ if final else kind, text)
    return failing.transient(job, now, text, died=kind == ProcessDied.__name__)
