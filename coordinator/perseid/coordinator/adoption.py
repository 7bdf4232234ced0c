"""Builds the state of a job, on which the core decides, from what ZooKeeper and Kafka hold.

A new leader, and a leader that lost track of a job, start here. They need no earlier state:
positions follow from the tokens, done epochs from the ledger and the progress topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import reduce

from perseid.coordinator import (
    buffer_bound,
    checkpoints,
    corrections,
    epoch_ends,
    gating,
    input_bytes,
    input_checks,
    timing,
    token_time,
)
from perseid.coordinator.events import JobLoaded
from perseid.coordinator.job.chain import Issued, TokenChain
from perseid.coordinator.job.checkpointing import Checkpointing
from perseid.coordinator.job.health import Health
from perseid.coordinator.job.inputs import Inputs
from perseid.coordinator.job.ownership import Condition, Ownership
from perseid.coordinator.job.positions import Positions, positions_past
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.jobs.model.assignments import tasks_of
from perseid.jobs.model.layout import Layout, Task, build, upstream
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.spread import spread_of
from perseid.records import Assignment, WorkerInfo
from perseid.topics.records import (
    EpochDone,
    FragmentState,
    PartDone,
    PartFailed,
    ProgressRecord,
)


def adopted(
    job: JobState, loaded: JobLoaded, workers: Mapping[str, WorkerInfo], now: Now
) -> JobState:
    """The job as loaded, in the phase that follows from its plan, entry and status."""
    plan = loaded.plan if loaded.begun else None
    spec = loaded.program.spec
    layout = build(spec, plan.layout if plan is not None else 1)
    unheard = job.unheard
    checkpointing = job.checkpointing
    seen = job.done if checkpointing.timing is not None else 0
    pointers = loaded.pointers
    ours = pointers is not None and pointers.job_uuid == loaded.entry.uuid
    failures = loaded.failures
    last = loaded.tokens[-1] if loaded.tokens else None
    job = JobState(
        name=job.name, entry=loaded.entry, transition_log=job.transition_log,
        program=loaded.program, layout=layout, spread=spread_of(spec, layout), totals=job.totals,
        chain=TokenChain(
            loaded.base, loaded.tokens, loaded.begun, loaded.highest_epoch,
            issued_s=now.monotonic_s, log_time=loaded.log_time,
            time=token_time.read_again(job.chain.time, last, loaded.log_time, now),
        ),
        inputs=Inputs(
            positions=_positions(loaded), reached_s=now.monotonic_s, ends=job.inputs.ends
        ),
        ownership=Ownership(
            plan, loaded.generation, ledger_highest=max(loaded.ledger.values(), default=0)
        ),
        standby=job.standby.loaded(plan.replicas if plan is not None else (), workers),
        gating=gating.loaded(job, plan, workers),
        checkpointing=Checkpointing(
            pointers=pointers if ours else None, begun_s=now.monotonic_s,
            timing=checkpointing.timing, trimmed_s=checkpointing.trimmed_s,
            untrimmed=checkpointing.untrimmed,
        ),
        health=Health(
            failures=failures if failures and failures.job_uuid == loaded.entry.uuid else None,
            events=loaded.status.events if loaded.status is not None and loaded.begun else (),
            status=loaded.status,
        ),
    )  # fmt: skip
    ownership = job.ownership
    for primary in ownership.primaries:
        done = _done(job, loaded, layout, primary)
        ownership = ownership.progressed(primary.fragment, done)
    job = _with_progress(replace(job, ownership=ownership), loaded.progress, now)
    job = _with_checks(job, loaded.progress)
    for record in loaded.progress if job.spread is not None else ():
        if isinstance(record, EpochDone) and _is_counted(job, record):
            job = buffer_bound.counted(job, record)
    job, reported = _reported(job, loaded.progress)
    if reported:
        measured = job.checkpointing.measured(reported[-1][1].state_bytes)
        job = replace(job, checkpointing=measured)
    records = [record for _, record in reported]
    record_bytes = reduce(input_bytes.seen, records, job.inputs.record_bytes)
    job = replace(
        job, totals=job.totals.loaded(job.done, records),
        inputs=job.inputs.with_record_bytes(record_bytes),
    )  # fmt: skip
    job = timing.read_back(job, [one for one in reported if one[1].epoch > seen], now)
    if unheard:
        job = checkpoints.aborted(job.with_events(unheard), "word of its parts may be lost")
    return _in_phase(job, loaded, workers, now)


def _in_phase(
    job: JobState, loaded: JobLoaded, workers: Mapping[str, WorkerInfo], now: Now
) -> JobState:
    status, entry = loaded.status, loaded.entry
    recorded = status if status is not None and status.job_uuid == entry.uuid else None
    error = recorded.error if recorded is not None else None
    job = replace(job, health=job.health.with_error(error))
    if recorded is not None and (recorded.state, recorded.counter) == ("failed", entry.counter):
        return job.move(Phase.FAILED, now, "loaded: it had failed")
    if entry.desired == "stopped" and not job.ownership.owners:
        return job.move(Phase.STOPPED, now, "loaded: it had been stopped")
    if corrections.is_wanted(entry, job.plan, status):
        job = replace(job, switch=job.switch.to_rewind(job.done))
    if error is not None:  # a new start: reports of the previous owner are outdated
        return job.move(Phase.WAITING, now, "loaded: it had failed and is wanted again")
    live = [name for name, owner in job.ownership.owners.items() if owner in workers]
    ownership = job.ownership.become(Condition.RESTORING, live)
    why = "loaded: its owner lives" if live else "loaded: without a live owner"
    return job.owned(ownership, now, why)


def _positions(loaded: JobLoaded) -> Positions:
    tokens = (issued.token for issued in loaded.tokens)
    return positions_past(loaded.program.spec, dict(loaded.starts), tokens)


def _done(job: JobState, loaded: JobLoaded, layout: Layout, fragment: Assignment) -> int:
    """The highest epoch that the fragment is known to have done; never above the tip."""
    known = [job.chain.base.epoch, job.newest.epoch if job.newest is not None else 0]
    tasks = tasks_of(fragment, layout)
    dense = [loaded.ledger.get(t.ledger, 0) for t in tasks if t.ledger is not None]
    if dense:
        # An epoch that every sinking task has committed is done, except when a stateful task feeds
        # none of them: it may still have to log that epoch, or may have raised in it.
        known.append(min(dense) - _lags(loaded.program.spec, tasks))
    error = loaded.status.error if loaded.status is not None else None
    if error and loaded.status is not None and loaded.status.job_uuid == loaded.entry.uuid:
        known.append(int(error.get("epoch", 0)))
    for record in loaded.progress:
        if not isinstance(record, EpochDone | FragmentState):
            continue
        if (record.job_uuid, record.fragment) != (loaded.entry.uuid, fragment.fragment):
            continue
        if not _may_be_rolled_back(job, record):
            known.append(job.chain.confirmed(record))
    return min(job.chain.tip.epoch, max(known))


def _lags(spec: JobSpec, tasks: Collection[Task]) -> bool:
    """Whether a stateful task feeds no sink among these, so that it may lag the ledgers by one."""
    needed = upstream(spec, (task.operator for task in tasks if task.ledger is not None))
    return any(task.operator not in needed for task in tasks if task.stateful)


def _is_counted(job: JobState, record: EpochDone) -> bool:
    """Whether the epoch is of this job and of a token that counts."""
    return record.job_uuid == job.entry.uuid and bool(job.chain.confirmed(record))


def _may_be_rolled_back(job: JobState, record: EpochDone | FragmentState) -> bool:
    """Whether a rewind may have rolled back the epoch, of a fragment that was ahead of others.

    A FragmentState has no token; each rewind is followed by a new generation of all fragments.
    """
    if job.spread is None or job.plan is None or isinstance(record, EpochDone):
        return False
    return record.generation < job.plan.floor


def _with_progress(job: JobState, records: tuple[ProgressRecord, ...], now: Now) -> JobState:
    """The unfinished checkpoint, with the parts that progress reports."""
    newest = job.newest.epoch if job.newest is not None else 0
    open_ = [i for i in job.chain.tokens if i.token.checkpoint and i.token.epoch > newest]
    if not open_:
        return job
    last = open_[-1]
    parts = {
        (r.generation, r.operator, r.partition): r
        for r in records
        if isinstance(r, PartDone) and r.epoch == last.token.epoch
        and checkpoints.of_token(job, r, last.offset)
    }  # fmt: skip
    collects = job.checkpointing.collects(last.token.epoch, last.offset, now.monotonic_s, parts)
    job = checkpoints.base_expired(replace(job, checkpointing=collects))
    for record in records:
        if record.job_uuid != job.entry.uuid:
            continue
        if isinstance(record, PartFailed):
            job = checkpoints.part_failed(job, record)
        elif isinstance(record, FragmentState) and record.state == "running":
            job = checkpoints.superseded(job, record)
    return job


def _reported(
    job: JobState, records: tuple[ProgressRecord, ...]
) -> tuple[JobState, list[tuple[Issued, EpochDone]]]:
    """The reports of ended epochs whose tokens are remembered, one for each epoch.

    The job keeps the reports of epochs that not all fragments have ended.
    """
    fragments = [a.fragment for a in job.ownership.primaries]
    ending, found, highest = job.inputs.ending, list[tuple[Issued, EpochDone]](), 0
    for record in records:
        if not isinstance(record, EpochDone) or record.job_uuid != job.entry.uuid:
            continue
        issued = job.chain.issued(job.chain.confirmed(record))
        if issued is None or issued.token.epoch <= highest:
            continue
        ending, ended = epoch_ends.reported(ending, record, fragments)
        for end in ended:
            of = job.chain.issued(end.epoch)
            if of is not None:
                highest = end.epoch
                found.append((of, end))
    return replace(job, inputs=job.inputs.awaits(ending)), found


def _with_checks(job: JobState, records: tuple[ProgressRecord, ...]) -> JobState:
    carried = [c.epoch for issued in job.chain.tokens for c in issued.token.checks]
    first = job.chain.tokens[0].token.epoch if job.chain.tokens else job.chain.base.epoch
    carried_to = max([first - 1, *carried])
    found = {
        (c.epoch, c.split, c.source): c
        for r in records
        if isinstance(r, EpochDone) and _is_counted(job, r)
        for c in r.checks
        if carried_to < c.epoch <= job.done  # of later ones not all are known
    }
    checks = tuple(found[key] for key in sorted(found))
    job = replace(job, inputs=job.inputs.waiting((), carried_to))
    return input_checks.with_checks(job, checks)
