"""What must be true after every decision. Pure and cheap: some comparisons for each changed job.

A violation is a defect of the coordinator. Tests and the simulation end with it. A leader in
production logs and counts it and continues: the fence, claims and ledgers protect the data, and
another leader would compute the same.

1.  Epochs that are done have tokens: base <= done <= tip.
2.  Tokens follow each other without gap from the base on, in offsets, token time and watermark.
3.  Checkpoints are kept newest first, of epochs that are done.
4.  What is collected is a checkpoint token of this chain, above the newest checkpoint.
5.  A plan's generation is assigned; tokens have no higher one, and none of a higher leader.
6.  An owned job has a program, a layout, an open chain and a plan; each of its fragments that does
    not wait has an owner. The phase is the one that follows from what the fragments do.
7.  Done epochs, of each fragment too, and generations never fall, under one UUID, without a load. A
    rewind lowers fragments that were ahead to the new tip.
8.  Another owner or other code comes with a higher generation. A fragment's rises only when it is
    changed itself, to that of the plan; all others keep theirs with all that they have.
9.  A token begins each partition where the one before it ended.
10. A replica never comes to its primary's worker or log, and is new under the plan's generation. A
    primary gets another log only by promotion, with owner and log of its replica, or when that one
    had diverged.
11. Logs are trimmed only before the oldest kept checkpoint, and only before all of an audit
    horizon; the files of its checkpoints are spared.
12. While a buffer topic is near its bound, a token is final or a checkpoint without input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perseid.coordinator import buffer_bound
from perseid.coordinator.actions import Action, AppendToken, DeleteCheckpoints, TrimLogs
from perseid.coordinator.job.chain import Issued
from perseid.coordinator.job.checkpointing import Collecting
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import ClusterState, JobState
from perseid.records import CheckpointPointer, Plan
from perseid.topics.records import Token

_ACTIVE = OWNED | {Phase.WAITING}


def broken(before: ClusterState, after: ClusterState, actions: Iterable[Action]) -> list[str]:
    """What this decision broke, a sentence each; what was broken before it is left out."""
    found: list[str] = []
    if after.jobs is not before.jobs:
        for name, job in after.jobs.items():
            old = before.jobs.get(name)
            if old is not job:
                found += _of_change(old, job, after.epoch)
    for action in actions:
        if isinstance(action, TrimLogs):
            found += _of_trim(after.jobs.get(action.job), action)
        elif isinstance(action, DeleteCheckpoints):
            found += _of_delete(after.jobs.get(action.job), action)
        elif isinstance(action, AppendToken):
            found += _of_token(after.jobs.get(action.job), action.token)
    return found


def _of_change(old: JobState | None, job: JobState, leader: int) -> list[str]:
    found = list(of_job(job, leader))
    if found and old is not None:
        known = set(of_job(old, leader))
        found = [text for text in found if text not in known]
    if old is not None and old.entry.uuid == job.entry.uuid:
        found += _of_step(old, job)
    return [f"job {job.name}: {text}" for text in found]


def of_job(job: JobState, leader: int) -> Iterator[str]:
    """What is broken in one job under the leader with this coordinator epoch."""
    if job.phase is Phase.LOADING:
        return
    done, tip, base, plan = job.done, job.chain.tip, job.chain.base, job.plan
    if not base.epoch <= done <= tip.epoch:
        yield f"epoch {done} is done, of {base.epoch} to {tip.epoch}"
    yield from _of_tokens(job, leader)
    if job.kept:
        epochs = [pointer.epoch for pointer in job.kept]
        if epochs != sorted(set(epochs), reverse=True) or epochs[0] > done:
            yield f"the checkpoints are of epochs {epochs}, and {done} is done"
    collecting, highest = job.checkpointing.collecting, job.ownership.generation
    if collecting is not None and not _is_collectable(job, collecting):
        yield f"the checkpoint of epoch {collecting.epoch} is collected without its token"
    if plan is not None and plan.generation > highest:
        yield f"the plan has generation {plan.generation}, and {highest} is the highest"
    if job.phase in OWNED and not _is_runnable(job):
        yield f"it is {job.phase.value}, without an owner, program, layout or chain"
    if job.phase in _ACTIVE and job.phase is not job.ownership.phase:
        yield f"it is {job.phase.value}, and its fragments are {job.ownership.phase.value}"


def _of_tokens(job: JobState, leader: int) -> Iterator[str]:
    """Only the ends of the chain: each token was the last one when it came."""
    tokens, base, highest = job.chain.tokens, job.chain.base, job.ownership.generation
    if not tokens:
        return
    first, last = tokens[0].token, tokens[-1].token
    if not base.epoch <= first.epoch == last.epoch - len(tokens) + 1:
        yield (
            f"{len(tokens)} tokens are of epochs {first.epoch} to {last.epoch}, and the base is "
            f"{base.epoch}"
        )
    if last.generation > highest or last.coordinator_epoch > leader:
        yield (
            f"the token of epoch {last.epoch} has generation {last.generation} and leader "
            f"{last.coordinator_epoch}, and the highest are {highest} and {leader}"
        )
    if len(tokens) > 1 and not _follows(tokens[-2], tokens[-1]):
        yield f"the token of epoch {last.epoch} does not follow the one before it"


def _follows(previous: Issued, last: Issued) -> bool:
    earlier, later = previous.token, last.token
    was_ms, watermark_ms = earlier.watermark_ms, later.watermark_ms
    return (
        later.previous_offset == previous.offset < last.offset
        and earlier.time_ms <= later.time_ms
        and (was_ms is None or watermark_ms is None or was_ms <= watermark_ms)
    )


def _is_collectable(job: JobState, collecting: Collecting) -> bool:
    issued = job.chain.issued(collecting.epoch)
    newest = job.newest.epoch if job.newest is not None else 0
    return (
        issued is not None and issued.offset == collecting.token_offset
        and issued.token.checkpoint and issued.token.epoch > newest
    )  # fmt: skip


def _is_runnable(job: JobState) -> bool:
    plan, layout, waiting = job.plan, job.layout, job.ownership.waiting
    return (
        job.chain.begun and job.program is not None and plan is not None
        and all(own.owner is not None or own in waiting for own in plan.primaries)
        and layout is not None and layout.number == plan.layout
    )  # fmt: skip


def _of_step(old: JobState, job: JobState) -> Iterator[str]:
    """What is broken between two states of one job UUID; a load reads other facts."""
    if Phase.LOADING in (old.phase, job.phase):
        return
    highest, was_highest = job.ownership.generation, old.ownership.generation
    if job.done < old.done or highest < was_highest:
        yield (
            f"done epoch or generation fell from {old.done}, {was_highest} to {job.done}, {highest}"
        )
    was, plan = old.plan, job.plan
    if was is not None and plan is not None:
        yield from _of_plans(was, plan)
        yield from _of_replicas(was, plan)
        if plan.layout == was.layout:
            yield from _of_fragments(old, job)
    token = job.chain.last_token
    if token is not None and token.epoch == old.chain.tip.epoch + 1:
        yield from _of_ranges(old, token)


def _of_plans(was: Plan, plan: Plan) -> Iterator[str]:
    kept = {own.fragment: own for own in was.assignments}
    if plan.generation <= was.generation:
        if (plan.archive, plan.layout) != (was.archive, was.layout):
            yield f"code or layout changed under generation {plan.generation}"
    for own in plan.assignments:
        before = kept.get(own.fragment)
        if before is not None and own.generation == before.generation:
            if own != before:
                yield f"fragment {own.fragment} changed under generation {own.generation}"
        elif own.generation != plan.generation or plan.generation <= was.generation:
            yield (
                f"fragment {own.fragment} has generation {own.generation} since plan "
                f"{plan.generation}, which followed {was.generation}"
            )


def _of_replicas(was: Plan, plan: Plan) -> Iterator[str]:
    for replica in plan.replicas:
        primary = plan.of_fragment(replica.fragment)
        if primary is None or replica.log == primary.log or replica.owner == primary.owner:
            yield f"replica {replica.fragment} has the log or the worker of its primary, or none"
        if replica not in was.replicas and not was.generation < replica.generation:
            yield f"replica {replica.fragment} changed under generation {replica.generation}"
    yield from _of_gate(was, plan)
    for own in plan.primaries if plan.layout == was.layout else ():
        before, copy = was.of_fragment(own.fragment), was.replica_of(own.fragment)
        if before is None or own.log == before.log or (plan.diverged and own.owner is None):
            continue
        if copy is None or (own.owner, own.log) != (copy.owner, copy.log):
            yield f"fragment {own.fragment} on {own.owner} has the log {own.log} of no replica"


def _of_gate(was: Plan, plan: Plan) -> Iterator[str]:
    run = plan.gated
    if run is None:
        return
    owners, logs = {a.owner for a in plan.copies}, {a.log for a in plan.assignments}
    if run.owner in owners or not run.muted or run.log in logs:
        yield f"a gate has the worker, the role or the log of a copy of the job: {run}"
    if run not in was.every and not was.generation < run.generation:
        yield f"the gate changed under generation {run.generation}"


def _of_fragments(old: JobState, job: JobState) -> Iterator[str]:
    for own in job.ownership.primaries:
        done, was = job.ownership.done_of(own), old.ownership.done_by.get(own.fragment, 0)
        if done < min(was, job.chain.tip.epoch):
            yield f"done epoch of fragment {own.fragment} fell from {was} to {done}"


def _of_ranges(old: JobState, token: Token) -> Iterator[str]:
    reached = {key: position.offset for key, position in old.inputs.positions.items()}
    for r in ranges_of(token):
        start = reached.get((r.source, r.partition), r.start)
        if r.start != start or r.end < r.start:
            yield (
                f"the token of epoch {token.epoch} names {r.source} {r.partition} from {r.start} "
                f"to {r.end}, and the one before it ended at {start}"
            )
        reached[r.source, r.partition] = r.end


def _of_token(job: JobState | None, token: Token) -> list[str]:
    """What is broken by the token that follows `job`."""
    frees = token.checkpoint and token.whole and not token.records
    if job is None or token.final or frees or not buffer_bound.is_near(job):
        return []
    return [
        f"job {job.name}: the token of epoch {token.epoch} is no checkpoint without input, and a "
        "buffer topic is near its bound"
    ]


def _of_trim(job: JobState | None, action: TrimLogs) -> list[str]:
    """The horizon begins with the oldest checkpoint of all, or has no beginning yet."""
    kept = _every(job) if job is not None else ()
    if not kept or action.kept is None or action.kept.epoch <= kept[-1].epoch:
        return []
    return [
        f"job {action.job}: logs are trimmed to epoch {action.kept.epoch}, and the checkpoint of "
        f"epoch {kept[-1].epoch} is kept"
    ]


def _of_delete(job: JobState | None, action: DeleteCheckpoints) -> list[str]:
    needed = {epoch for p in (_every(job) if job is not None else ()) for epoch in p.needs}
    oldest = min((p.epoch for p in action.live), default=0)
    held = {*action.spared, *(epoch for p in action.live for epoch in p.needs)}
    return [
        f"job {action.job}: files of epoch {epoch} are deleted, and a checkpoint needs them"
        for epoch in sorted(needed - held) if epoch < oldest
    ]  # fmt: skip


def _every(job: JobState) -> tuple[CheckpointPointer, ...]:
    """All complete checkpoints of this job UUID, the newest one first."""
    pointers = job.checkpointing.pointers
    return pointers.every if pointers is not None and pointers.job_uuid == job.entry.uuid else ()
