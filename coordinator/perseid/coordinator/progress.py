"""Applies the records of a job's progress topic to its state.

The reports of replicas count for no epoch: `replicas`.
"""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator import (
    buffer_bound,
    checkpoints,
    corrections,
    epoch_ends,
    failing,
    gating,
    input_bytes,
    input_checks,
    issue,
    pressure,
    replicas,
    timing,
    watermark,
)
from perseid.coordinator.actions import Action
from perseid.coordinator.job.inputs import Done, Inputs
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.errors import Diverged, FencedError, PermanentError, ProcessDied
from perseid.topics.records import (
    EpochDone,
    EpochsEqual,
    EventTimes,
    FragmentState,
    PartDone,
    PartFailed,
    ProgressRecord,
)

Step = tuple[JobState, list[Action]]

_ACTIVE = OWNED | {Phase.WAITING}


def seen(job: JobState, record: ProgressRecord, now: Now) -> Step:
    """The job after one record; ignores records of another job UUID."""
    if record.job_uuid != job.entry.uuid:
        return job, []
    match record:
        case EventTimes():
            return watermark.with_event_times(job, record), []
        case PartDone():
            return checkpoints.part_done(job, record), []
        case PartFailed():
            return checkpoints.part_failed(job, record), []
        case EpochsEqual():
            return gating.reported(job, record, now)
        case EpochDone() | FragmentState():
            return _reported(job, record, now)


def _reported(job: JobState, record: EpochDone | FragmentState, now: Now) -> Step:
    if gating.is_of(job, record.generation):
        return gating.reported(job, record, now)
    if not _is_primary(job, record.fragment):
        return replicas.reported(job, record, now)
    if isinstance(record, EpochDone):
        return _epoch_done(job, record, now)
    had_owner = _is_live(job, record.fragment)
    job, actions = _fragment(job, record, now)
    ended = job.phase in _ACTIVE and not _is_live(job, record.fragment)
    if had_owner and ended and _is_fenced(record):
        job = job.move(Phase.LOADING, now, "its owner was fenced, and not by this leader")
        job = replace(job, load_at_s=now.monotonic_s)
    return job, actions


def _is_primary(job: JobState, fragment: str) -> bool:
    return any(own.fragment == fragment for own in job.ownership.primaries)


def _is_fenced(record: FragmentState) -> bool:
    """Whether the current owner was fenced: another process wrote what this leader lacks."""
    return record.error_kind == FencedError.__name__


def gate_replayed(job: JobState, records: tuple[ProgressRecord, ...], now: Now) -> Step:
    """Applies the reports of a gate, which runs also while its job waits for a worker."""
    actions: list[Action] = []
    for record in records:
        if record.job_uuid != job.entry.uuid or job.phase not in _ACTIVE:
            continue
        if isinstance(record, EpochDone | EpochsEqual | FragmentState):
            job, more = gating.reported(job, record, now)
            actions += more
    return job, actions


def replayed(job: JobState, records: tuple[ProgressRecord, ...], now: Now) -> Step:
    """Applies each owner's last report to a job that has just been loaded; older ones are outdated.

    So do the replicas'. A fragment that has ended reports nothing more: records after its end had
    an unknown outcome and arrived late.
    """
    reports = [
        r for r in records
        if isinstance(r, EpochDone | FragmentState) and _of_owner(job, r) and _has_state(r)
    ]  # fmt: skip
    actions: list[Action] = []
    for own in job.plan.replicas if job.plan is not None else ():
        found = [r for r in reports if r.fragment == own.name]
        if found:
            job, more = replicas.reported(job, _last(found), now)
            actions += more
    for own in job.ownership.primaries:
        ours = [r for r in reports if r.fragment == own.fragment]
        if ours and job.phase in OWNED:  # the failure of one fragment may end the job
            job, more = _last_report(job, _last(ours), now)
            actions += more
    return job, actions


def _last(ours: list[EpochDone | FragmentState]) -> EpochDone | FragmentState:
    ends = [r for r in ours if isinstance(r, FragmentState) and r.state in ("failed", "stopped")]
    return ends[0] if ends else ours[-1]


def _last_report(job: JobState, last: EpochDone | FragmentState, now: Now) -> Step:
    if isinstance(last, FragmentState):
        return _fragment(job, last, now)
    return _running(job, last.fragment, now), []


def _has_state(record: EpochDone | FragmentState) -> bool:
    """Whether the record reports the state of the fragment."""
    return not isinstance(record, FragmentState) or record.state != "warning"


def _of_owner(job: JobState, record: EpochDone | FragmentState) -> bool:
    """Whether the report is from the present owner of its fragment, or of its replica."""
    plan = job.plan
    copies = plan.copies if plan is not None else ()
    own = next((a for a in copies if a.name == record.fragment), None)
    return (
        own is not None and own.owner is not None and record.job_uuid == job.entry.uuid
        and record.generation == own.generation
    )  # fmt: skip


def _is_live(job: JobState, fragment: str) -> bool:
    """Whether a live worker owns the fragment, as far as is known."""
    return job.phase in OWNED and job.ownership.condition(fragment) is not Condition.WAITING


def _epoch_done(job: JobState, record: EpochDone, now: Now) -> Step:
    epoch = job.chain.confirmed(record)
    if epoch == 0 or epoch > job.chain.tip.epoch:
        return job, []  # of a token that was rolled back
    before, delays = job.done, _delays_others(job, record.fragment)
    fragments = [a.fragment for a in job.ownership.primaries]
    ending, ended = epoch_ends.reported(job.inputs.ending, record, fragments)
    ownership = job.ownership.committed(record.fragment, epoch)
    if job.spread is not None:
        ownership = ownership.heard(record.fragment, now.monotonic_s)
    job = replace(job, ownership=ownership, inputs=job.inputs.awaits(ending))
    job = buffer_bound.counted(job, record)
    if job.phase is not Phase.FAILED:  # else another fragment has ended it, and its error stays
        job = replace(job, health=job.health.progressed(min(epoch, ownership.done)))
    for end in ended:
        job = _ended(job, end, now, is_new=end.epoch > before, is_whole=end is ended[-1])
    if not _of_owner(job, record):
        return job, []  # a previous owner ended its epoch: it counts, but that owner is not running
    return failing.progressed(_running(job, record.fragment, now, delays=delays), record, now)


def _ended(job: JobState, end: EpochDone, now: Now, *, is_new: bool, is_whole: bool) -> JobState:
    """The job after the end of an epoch; `is_whole`: all fragments have reported it."""
    job = replace(job, totals=job.totals.counted(end))
    if not is_new:
        return job
    checks = tuple(c for c in end.checks if c.epoch > job.inputs.checks_to)
    job = input_checks.with_checks(job, checks)
    if not is_whole:
        return job
    job = replace(
        job, inputs=_measured(job, end, now),
        checkpointing=job.checkpointing.measured(end.state_bytes),
    )  # fmt: skip
    return pressure.seen(timing.seen(job, end, now), end.states)


def _measured(job: JobState, record: EpochDone, now: Now) -> Inputs:
    done = Done(now.monotonic_s, record.epoch, record.rows_in, record.rows_out, record.duration_ms)
    record_bytes = input_bytes.seen(job.inputs.record_bytes, record)
    return job.inputs.measured(done, issue.adapted_size(job, record), record_bytes)


def _delays_others(job: JobState, fragment: str) -> bool:
    """Whether no fragment has done less: its report is progress of the whole job."""
    return any(a.fragment == fragment for a in job.ownership.slowest)


def _running(job: JobState, fragment: str, now: Now, *, delays: bool = True) -> JobState:
    """The fragment's owner runs it. `delays`: before its report, `_delays_others`."""
    if job.phase in OWNED and job.ownership.condition(fragment) is Condition.RESTORING:
        running = job.ownership.become(Condition.RUNNING, [fragment])
        what = "its owner runs it" if job.spread is None else f"fragment {fragment} runs"
        job = job.owned(running, now, what)
    return replace(job, health=job.health.waits_no_more()) if delays else job


def _fragment(job: JobState, record: FragmentState, now: Now) -> Step:
    if not _of_owner(job, record) or not _is_live(job, record.fragment):
        return job, []
    delays = _delays_others(job, record.fragment)
    job = job.with_events(*record.events)
    if record.state == "failed":
        return _failed(_progressed(job, record, record.epoch), record, now)
    if record.state == "stopped":
        job = _progressed(job, record, record.epoch)
        return failing.handed_over(job, now, record.incarnation, record.fragment), []
    if record.state == "running":
        job = _progressed(job, record, job.chain.confirmed(record))
        if record.restored_from:
            job = job.with_events(
                f"generation {record.generation} restored from {record.restored_from}"
            )
        job = checkpoints.superseded(job, record)
        return _running(job, record.fragment, now, delays=delays), []
    return (_repeated(job, record, now, delays) if record.state == "repeated" else job), []


def _progressed(job: JobState, record: FragmentState, epoch: int) -> JobState:
    """The job after its fragment has done `epoch`, which may be of a token that was rolled back."""
    done = min(epoch, job.chain.tip.epoch)
    return replace(job, ownership=job.ownership.progressed(record.fragment, done))


def _repeated(job: JobState, record: FragmentState, now: Now, delays: bool) -> JobState:
    """Applies the owner's repeated report after reports were lost.

    The end of its last epoch and parts of a checkpoint may be among them.
    """
    job = _progressed(job, record, record.epoch).with_events(
        f"generation {record.generation} reported its state again"
    )
    collecting = job.checkpointing.collecting
    if collecting is not None and collecting.epoch <= record.epoch:
        job = checkpoints.aborted(job, "word of its parts was lost")
    return _running(job, record.fragment, now, delays=delays)


def _failed(job: JobState, record: FragmentState, now: Now) -> Step:
    kind = record.error_kind or "PermanentError"
    text = record.error or "the fragment failed without a reason"
    if kind == Diverged.__name__:
        job, actions = replicas.unfit(job, record.fragment, text)
        job, more = failing.transient(job, now, [record.fragment], text)
        return job, actions + more
    if job.health.fails_again([record.fragment]):
        job = replace(job, health=job.health.tried(kind))
    if job.health.unexpected >= failing.TRIES_MAX:
        return corrections.fail(job, now, kind, failing.with_tries(job, record.fragment, text))
    job, text, final = failing.settled(job, failing.origin(record.fragment), kind, text, now)
    if final or record.permanent:
        return corrections.fail(job, now, PermanentError.__name__ if final else kind, text)
    died = kind == ProcessDied.__name__
    return failing.transient(job, now, [record.fragment], text, died=died)
