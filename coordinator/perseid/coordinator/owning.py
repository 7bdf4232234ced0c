"""Sees to it that a live worker owns each fragment of a job.

The fragments of a worker that died, left, or reported a failure wait for another owner. Once their
delay is over all of them are placed in one write of the plan, under one new generation. Fragments
with a live owner keep it and their generation: they continue. A fragment whose replica lives does
not wait for a delay when its worker is gone: the replica takes over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from perseid.coordinator import (
    checkpoints,
    corrections,
    failing,
    placement,
    replicas,
    switching,
)
from perseid.coordinator.actions import Action, PutPlan
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.job.program import Program
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.token_time import Now
from perseid.jobs.model import assignments
from perseid.records import CheckpointPointer, Plan

Step = tuple[JobState, list[Action]]


def own(state: ClusterState, job: JobState, now: Now) -> Step:
    """Ensures that a live worker owns each fragment, and each replica that is wanted."""
    job, actions = _without_dead(state, replicas.without_dead(state, job), now)
    job, more = (_with_owners if job.ownership.waiting else replicas.place)(state, job, now)
    return job, actions + more


def _with_owners(state: ClusterState, job: JobState, now: Now) -> Step:
    """One step towards an owner for each fragment that waits."""
    if job.wants_stop and not job.entry.stop_checkpoint:
        return switching.finish_stop(job, now)
    if corrections.may_replace_failed(job):
        return corrections.give_way(job, now)
    if job.program is None:
        return job, []
    plan = job.plan or _first_plan(job, job.program)
    owners = replicas.successors(state, job)
    if not owners and now.monotonic_s >= job.health.retry_s:
        owners = placement.owners(state, job, plan)
    if not owners:
        return job, []
    crowded = placement.crowded(state, job)
    if crowded and crowded not in job.health.events:
        job = job.with_events(crowded)
    job = job.with_events(*replicas.takeovers(state, plan, owners, _last_change(job)))
    return _place(job, plan, owners, now)


def _last_change(job: JobState) -> str:
    """Why the job is in its phase."""
    return job.transition_log[-1].partition(": ")[2] if job.transition_log else ""


def hand_over(job: JobState, plan: Plan, owners: Mapping[str, str], now: Now, why: str) -> Step:
    """A planned change: these fragments get these owners; no failure, and none waits."""
    return _place(job.move(job.phase, now, why), plan, owners, now)


def _without_dead(state: ClusterState, job: JobState, now: Now) -> Step:
    """The fragments of workers that are gone wait for another owner: one failure."""
    waiting = job.ownership.waiting
    dead = [a for a in job.ownership.primaries if a not in waiting and a.owner not in state.workers]
    if not dead:
        return job, []
    workers = sorted({a.owner or "" for a in dead})
    gone = f"worker {workers[0]} is gone" if len(workers) == 1 else (
        f"workers {', '.join(workers)} are gone"
    )  # fmt: skip
    return failing.transient(job, now, [a.fragment for a in dead], gone, died=True)


def _place(job: JobState, plan: Plan, owners: Mapping[str, str], now: Now) -> Step:
    """Gives these fragments of `plan` to these workers, in one write; all others continue.

    On its replica's worker a fragment is that replica.
    """
    before, number = job.ownership.owners, job.ownership.next_generation
    promoted = replicas.promoted(plan, owners)
    placed = {name: owner for name, owner in owners.items() if name not in promoted}
    new = replace(
        plan.promoted(promoted, number).placed(placed, number),
        checkpoints=_restored_from(job, owners), reason=_last_change(job),
    )  # fmt: skip
    moved = [before[name] != owner for name, owner in owners.items() if name in before]
    if moved:
        job = replace(job, totals=job.totals.restarted(elsewhere=any(moved)))
    ownership = job.ownership.planned(new).become(Condition.RESTORING, owners)
    job = checkpoints.new_owner(replace(job, ownership=ownership), new)
    where = ", ".join(owners.values())
    if job.spread is not None:
        where = ", ".join(f"{name} on {owner}" for name, owner in owners.items())
    return job.owned(ownership, now, f"placed on {where}"), [PutPlan(job.name, new)]


def _restored_from(job: JobState, placed: Collection[str]) -> tuple[CheckpointPointer, ...]:
    """The checkpoints of the next plan: of the present one, too, while others restore from them."""
    restoring = {a.fragment for a in job.ownership.are(Condition.RESTORING)}
    if job.plan is None or restoring <= set(placed):
        return job.kept
    return tuple(dict.fromkeys((*job.kept, *job.plan.checkpoints)))


def _first_plan(job: JobState, program: Program) -> Plan:
    base, number = job.chain.base, job.ownership.next_generation
    plan = Plan.fused(
        job.name, job.entry.uuid, number, None, program.revision, program.archive,
        layout=1, base_epoch=base.epoch, base_offset=base.offset,
    )  # fmt: skip
    return assignments.cut(plan, job.spread)


def without_left(job: JobState, left: Collection[str], now: Now) -> JobState:
    """The fragments that these workers handed over, as far as it was not seen."""
    waiting = [a.fragment for a in job.ownership.waiting]
    for worker in sorted(left):
        owned = [name for name, owner in job.ownership.owners.items() if owner == worker]
        handed = [name for name in owned if name not in waiting]
        if handed:
            job = failing.left(job, now, worker, handed)
    return job
