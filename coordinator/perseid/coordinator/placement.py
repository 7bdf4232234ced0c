"""Chooses the worker for a fragment: the live one with the fewest, the oldest among equals.

Replicas count as fragments. One goes to another worker than its primary's, and to another host if
there is one; a primary that is placed again leaves its replica where it is if it can.
Of a job of several fragments they go to different workers where the jobs' fragments are as many.
If a corrected revision ends a job's failed epoch, the job returns to the host that has its state
logs: another host would compute again what follows the checkpoint, with the corrected code.

A worker is identified by its incarnation. A restarted worker is another owner, because a higher
generation must fence what its previous incarnation still does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.model import ClusterState, JobState
from perseid.records import Assignment, Plan, WorkerInfo


def loads(state: ClusterState) -> Counter[str]:
    """How many fragments and replicas each live worker has."""
    plans = [job.plan for job in state.jobs.values() if job.plan is not None]
    owners = [a.owner for plan in plans for a in plan.every]
    return Counter(owner for owner in owners if owner is not None and owner in state.workers)


def owners(state: ClusterState, job: JobState, plan: Plan) -> dict[str, str]:
    """By fragment of `plan`, who is to run those that wait; empty if no worker may."""
    loaded, found = loads(state), dict[str, str]()
    waiting = [
        a for a in plan.primaries if job.ownership.condition(a.fragment) is Condition.WAITING
    ]
    own = Counter(a.owner for a in plan.primaries if a not in waiting)
    for fragment in waiting:
        replica = plan.replica_of(fragment.fragment)
        both = (replica.owner if replica is not None else None, fragment.owner)
        shunned = [owner for owner in both if owner is not None]
        chosen = choose(state.workers, loaded, shunned, only_host(job, fragment), own)
        if chosen is None:
            return {}
        found[fragment.fragment] = chosen
        loaded[chosen] += 1
        own[chosen] += 1
    return found


def crowded(state: ClusterState, job: JobState) -> str:
    """The event for a job that has fewer workers than its user wants; empty if it has enough."""
    if job.spread is None or job.program is None:
        return ""
    wanted = min(job.program.spec.placement.spread, len(job.spread.shares))
    live = sum(not worker.leaving for worker in state.workers.values())
    if live >= wanted:
        return ""
    return (
        f"`placement: {{spread: {wanted}}}` wants {wanted} workers, and {live} are live: some run "
        "several of its fragments"
    )


def only_host(job: JobState, fragment: Assignment) -> str | None:
    """The owner whose host has the only copy of another revision's state, if any."""
    plan = job.plan
    if plan is None:
        return None
    saved = max(plan.base_epoch, job.newest.epoch if job.newest is not None else 0)
    later = (i.token for i in job.chain.tokens if i.token.epoch > saved)
    if all(token.revision == plan.revision for token in later):
        return None
    error = job.health.error or {}
    before: str | None = error.get("owners", {}).get(fragment.fragment) or error.get("owner")
    return fragment.owner or before


def for_replica(
    state: ClusterState, primary: Assignment, loaded: Mapping[str, int], old: Assignment | None
) -> str | None:
    """The incarnation for the primary's replica; the worker of the `old` one only without another.

    None if there is no worker but the primary's.
    """
    workers = {w: info for w, info in state.workers.items() if w != primary.owner}
    home = state.workers.get(primary.owner or "")
    apart = {w: info for w, info in workers.items() if home is None or info.host != home.host}
    avoid = [old.owner] if old is not None and old.owner is not None else []
    return choose(apart, loaded, avoid) or choose(workers, loaded, avoid)


def for_gate(state: ClusterState, plan: Plan) -> str | None:
    """The incarnation to run another revision of that job: one without a copy of it, or None."""
    copies = {a.owner for a in plan.copies}
    free = {w: info for w, info in state.workers.items() if w not in copies}
    return choose(free, loads(state))


def choose(
    workers: Mapping[str, WorkerInfo], loaded: Mapping[str, int], avoid: Iterable[str] = (),
    near: str | None = None, own: Mapping[str | None, int] | None = None,
) -> str | None:  # fmt: skip
    """The incarnation to run a fragment; one of `avoid` only if there is no other, the first first.

    Leaving workers get none. `near`: an incarnation whose host is preferred while its worker lives
    there. `own`: how many fragments of the same job each has, which decides among equals.
    """
    mates = own if own is not None else {}
    shunned = {w: at for at, w in enumerate(avoid, 1)}
    worker = near.rpartition("-")[0] if near is not None else None
    hosts = {info.host for info in workers.values() if info.id == worker}
    open_to = [w for w, i in workers.items() if not i.leaving]
    ranked = sorted(
        open_to,
        key=lambda w: (
            shunned.get(w, 0), workers[w].host not in hosts, loaded.get(w, 0), mates.get(w, 0), w
        ),
    )  # fmt: skip
    return ranked[0] if ranked else None
