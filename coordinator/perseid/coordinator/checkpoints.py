"""When a checkpoint is taken, when it is complete, and which checkpoints are kept.

A checkpoint is complete when every stateful task has delivered its part and the epoch is done, so
that every sink has committed it. The parts of a fragment are of one generation; those of another
fragment may be of another one, since a fragment's owner dies without its neighbours. Only then the
manifest is written, and only after that the pointer in ZooKeeper moves. A crash in between leaves
garbage in the store, never a pointer to an incomplete checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perseid.coordinator import failing, holding, horizon, replicas, timing, trimming
from perseid.coordinator.actions import Action, DeleteCheckpoints, PutPointers, WriteManifest
from perseid.coordinator.job.chain import Issued
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.jobs.model.assignments import tasks_of
from perseid.records import Assignment, CheckpointPointer, Plan
from perseid.state.durability.checkpoint import is_in_folder
from perseid.topics.records import FragmentState, PartDone, PartFailed

COLLECTING_MAX_S = 300.0  # then the checkpoint is aborted; the next token that can takes another
SLOW_BYTES_S = 1_000_000  # a larger state gets the time that it needs at this rate
REPLAY_TOKENS_MAX = 100  # an idle job gets a checkpoint when a replay would be longer


def due(job: JobState, now: Now) -> bool:
    """Whether the next token should take a checkpoint."""
    if job.program is None or not _may_begin(job, now):
        return False
    if asked(job, now):
        return True
    since = [i.token for i in job.chain.tokens if i.token.epoch > _newest_epoch(job)]
    worth = job.inputs.backlog > 0 or any(r.end > r.start for t in since for r in ranges_of(t))
    return (worth or len(since) >= REPLAY_TOKENS_MAX) and timing.due(job, now)


def asked(job: JobState, now: Now) -> bool:
    """Whether a user, a move, a replica or a gate waits for a checkpoint: true until it is there.

    That of a user under any leader.
    """
    wanted = job.entry.checkpoint_above
    above = max(
        -1 if wanted is None else wanted, job.transfer.above if job.transfer else -1,
        replicas.checkpoint_above(job),
    )  # fmt: skip
    if job.wants_gate and job.plan is not None and not job.gate_refused:
        above = max(above, job.plan.base_epoch)  # it begins at a checkpoint of this revision
    return _newest_epoch(job) <= above and _may_begin(job, now)


def _may_begin(job: JobState, now: Now) -> bool:
    """False while a checkpoint is being collected, and for a delay after the store refused one."""
    return job.checkpointing.may_begin(now.monotonic_s)


def begin(job: JobState, issued: Issued, now: Now) -> JobState:
    """The token of `issued` has asked the tasks for their parts."""
    job = timing.took(job, now)
    collects = job.checkpointing.collects(issued.token.epoch, issued.offset, now.monotonic_s)
    return replace(job, checkpointing=collects)


def part_done(job: JobState, part: PartDone) -> JobState:
    """Adds a part; ignores those of other tokens and of tasks that do not exist."""
    collecting = job.checkpointing.collecting
    if collecting is None or not of_token(job, part, collecting.token_offset):
        return job
    return _base_expired(replace(job, checkpointing=job.checkpointing.with_part(part)), (part,))


def of_token(job: JobState, part: PartDone, token_offset: int) -> bool:
    """Whether the part belongs to the epoch's token at `token_offset`, not to a rolled-back one.

    The part's path names the token's offset.
    """
    uuid = job.entry.uuid
    return is_in_folder(part.path, job.name, uuid, part.epoch, part.generation, token_offset)


def part_failed(job: JobState, part: PartFailed) -> JobState:
    """Aborts the checkpoint when the fragment's current owner could not write a part of it."""
    collecting = job.checkpointing.collecting
    if collecting is None or part.epoch != collecting.epoch or job.checkpointing.ready:
        return job
    if part.generation != _generation(job, part):
        return job
    where = f"{part.operator}-{part.partition}"
    return not_stored(job, f"part {where} could not be written: {part.reason}")


def not_stored(job: JobState, why: str) -> JobState:
    """Aborts a checkpoint that the store did not accept.

    A full or unreachable store stays so for a while, so the next attempts are spaced like the
    retries of a failing job.
    """
    collecting = job.checkpointing.collecting
    if collecting is None:
        return job
    again_s = collecting.since_s + failing.delay_s(job.checkpointing.unwritten + 1)
    held = holding.is_full(job)
    job = aborted(replace(job, checkpointing=job.checkpointing.refused(again_s)), why)
    return job if held or not holding.is_full(job) else job.with_events(holding.reason(job))


def base_expired(job: JobState) -> JobState:
    """Aborts the checkpoint when a current owner delivers a part whose base is no longer kept.

    That owner learned too late of the checkpoints that were completed since.
    """
    collecting = job.checkpointing.collecting
    return _base_expired(job, collecting.parts.values()) if collecting is not None else job


def _base_expired(job: JobState, parts: Iterable[PartDone]) -> JobState:
    """The same for these parts of what is collected: a part was looked at when it came."""
    if job.checkpointing.collecting is None or job.checkpointing.ready:
        return job
    for part in parts:
        if not _stands(job, part) and part.generation == _generation(job, part):
            base = part.chain[-1].epoch
            return aborted(job, f"part {part.operator}-{part.partition} changes checkpoint {base}, "
                                 "which is no longer kept")  # fmt: skip
    return job


def new_owner(job: JobState, plan: Plan) -> JobState:
    """Aborts the checkpoint when an old owner ran its epoch: the new one will not run it.

    Unless the old one has delivered all parts of its fragment.
    """
    collecting = job.checkpointing.collecting
    if collecting is None or job.checkpointing.ready:
        return job
    for placed in plan.primaries:
        has_run = collecting.epoch <= job.ownership.done_of(placed)
        is_new = placed.generation == plan.generation
        if is_new and has_run and _parts(job, placed) is None:
            return aborted(job, f"generation {plan.generation} took over")
    return job


def superseded(job: JobState, record: FragmentState) -> JobState:
    """Aborts the checkpoint when a new owner resumes after its epoch and has no part of it.

    `record`: that the fragment runs.
    """
    collecting = job.checkpointing.collecting
    own = job.plan.of_fragment(record.fragment) if job.plan is not None else None
    if collecting is None or own is None or job.checkpointing.ready:
        return job
    if record.generation != own.generation or collecting.epoch > record.epoch:
        return job
    delivered = any((own.generation, *task) in collecting.parts for task in _stateful(job, own))
    if delivered or _parts(job, own) is not None:
        return job
    return aborted(job, f"generation {own.generation} resumes after it")


def expired(job: JobState, now: Now) -> JobState:
    """Aborts a checkpoint that has been collecting for too long."""
    collecting = job.checkpointing.collecting
    limit_s = max(COLLECTING_MAX_S, job.checkpointing.state_bytes / SLOW_BYTES_S)
    if collecting is None or now.monotonic_s - collecting.since_s < limit_s:
        return job
    return not_stored(job, f"not complete after {limit_s:.0f} s")


def aborted(job: JobState, why: str) -> JobState:
    """Drops the checkpoint; the next token that can takes another one."""
    collecting = job.checkpointing.collecting
    if collecting is None:
        return job
    job = job.with_events(f"checkpoint of epoch {collecting.epoch} aborted: {why}")
    job = timing.retry_pending(job)
    totals = job.totals.gave_up_a_checkpoint()
    return replace(job, checkpointing=job.checkpointing.dropped(), totals=totals)


def complete(job: JobState) -> WriteManifest | None:
    """The manifest to write when nothing is missing, else None."""
    collecting, layout, plan = job.checkpointing.collecting, job.layout, job.plan
    if collecting is None or layout is None or plan is None or job.checkpointing.ready:
        return None
    if collecting.epoch > job.done or len(collecting.parts) < len(layout.stateful_tasks):
        return None
    token = next((i.token for i in job.chain.tokens if i.offset == collecting.token_offset), None)
    if token is None:
        return None
    found = [_parts(job, primary) for primary in plan.primaries]
    whole = [one for one in found if one is not None]
    if len(whole) < len(found):
        return None
    by_task = {(p.operator, p.partition): p for _, parts in whole for p in parts}
    return WriteManifest(
        job.name, job.entry.uuid, collecting.epoch, max(generation for generation, _ in whole),
        token.layout, token.revision, collecting.token_offset, token.time_ms,
        tuple(by_task[t.operator, t.partition] for t in layout.stateful_tasks),
    )  # fmt: skip


def _parts(job: JobState, fragment: Assignment) -> tuple[int, tuple[PartDone, ...]] | None:
    """All parts of the fragment, and their generation: the highest with all of them.

    A fragment without stateful tasks has no parts, and the generation of its owner.
    """
    collecting, wanted = job.checkpointing.collecting, _stateful(job, fragment)
    if collecting is None or not wanted:
        return fragment.generation, ()
    for generation in sorted({key[0] for key in collecting.parts}, reverse=True):
        parts = [collecting.parts.get((generation, *task)) for task in wanted]
        found = tuple(part for part in parts if part is not None)
        if len(found) == len(wanted) and all(_stands(job, part) for part in found):
            return generation, found
    return None


def _stateful(job: JobState, fragment: Assignment) -> tuple[tuple[str, int], ...]:
    """The operator partitions of which the fragment makes parts: operator and partition."""
    tasks = tasks_of(fragment, job.layout) if job.layout is not None else ()
    return tuple((task.operator, task.partition) for task in tasks if task.stateful)


def _generation(job: JobState, part: PartDone | PartFailed) -> int | None:
    """The generation of the current owner of the part's operator partition, if it makes parts."""
    tasks = job.layout.of(part.operator) if job.layout is not None else ()
    task = next((t for t in tasks if t.partition == part.partition and t.stateful), None)
    primaries = job.plan.primaries if job.plan is not None and task is not None else ()
    return next(
        (a.generation for a in primaries if a.gids is None or (task and task.gid in a.gids)), None
    )


def _stands(job: JobState, part: PartDone) -> bool:
    """Whether the part's base checkpoint is still kept; otherwise its files may be gone."""
    return not part.chain or part.chain[-1].epoch in {pointer.epoch for pointer in job.kept}


def written(job: JobState, pointer: CheckpointPointer, now: Now) -> tuple[JobState, list[Action]]:
    """Moves the pointer to the manifest that has been written, and drops older checkpoints."""
    collecting = job.checkpointing.collecting
    if collecting is None or collecting.epoch != pointer.epoch:
        return job, []  # aborted, or written twice
    kept = _kept(pointer, job.kept)
    pointers = horizon.pointers(job, kept)
    totals = job.totals.checkpointed((job.chain.time.after(now) - pointer.time_ms) / 1000)
    job = replace(
        job, checkpointing=job.checkpointing.stored(pointers), totals=totals,
        chain=job.chain.trimmed(kept[-1].epoch),
    )  # fmt: skip
    job, trims = trimming.ask(job, now)
    return job, [
        PutPointers(job.name, pointers),
        DeleteCheckpoints(
            job.name, job.entry.uuid, _read_by_somebody(job, kept),
            horizon.needed_epochs(pointers.past),
        ),
        *trims,
    ]


def _kept(
    newest: CheckpointPointer, older: tuple[CheckpointPointer, ...]
) -> tuple[CheckpointPointer, ...]:
    """The newest two, and the newest older one that shares no file with the newest.

    One damaged file of a chain makes every later link of it useless. Each partition has a chain of
    its own, and the next chain may have begun before the last one's final link was written.
    """
    apart = [pointer for pointer in older if not pointer.shares_files(newest)]
    return tuple(dict.fromkeys((newest, *older[:1], *apart[:1])))


def _read_by_somebody(
    job: JobState, kept: tuple[CheckpointPointer, ...]
) -> tuple[CheckpointPointer, ...]:
    """Checkpoints that must stay in the store.

    While an owner restores from the checkpoints in its plan, the previous owner may still run
    epochs and complete newer ones; a job of several fragments is restoring while one of them is.
    """
    if job.plan is None or job.phase is not Phase.RESTORING:
        return kept
    return tuple(dict.fromkeys((*kept, *job.plan.checkpoints)))


def _newest_epoch(job: JobState) -> int:
    return job.newest.epoch if job.newest is not None else 0
