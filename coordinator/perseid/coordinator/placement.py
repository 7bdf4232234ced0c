"""Chooses the worker for a job: the live one with the fewest jobs, the oldest among equals.

If a corrected revision ends a job's failed epoch, the job returns to the host that has its state
logs: another host would compute again what follows the checkpoint, with the corrected code.

A worker is identified by its incarnation. A restarted worker is another owner, because a higher
generation must fence what its previous incarnation still does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from perseid.coordinator.model import ClusterState, JobState
from perseid.records import WorkerInfo


def loads(state: ClusterState) -> Counter[str]:
    """How many fragments each live worker owns."""
    plans = [job.plan for job in state.jobs.values() if job.plan is not None]
    owners = [assignment.owner for plan in plans for assignment in plan.assignments]
    return Counter(owner for owner in owners if owner is not None and owner in state.workers)


def only_host(job: JobState) -> str | None:
    """The owner whose host has the only copy of another revision's state, if any."""
    plan = job.plan
    if plan is None:
        return None
    saved = max(plan.base_epoch, job.newest.epoch if job.newest is not None else 0)
    later = (i.token for i in job.chain.tokens if i.token.epoch > saved)
    if all(token.revision == plan.revision for token in later):
        return None
    owner: str | None = plan.owner or (job.health.error or {}).get("owner")
    return owner


def choose(
    workers: Mapping[str, WorkerInfo], loaded: Mapping[str, int], avoid: Iterable[str] = (),
    near: str | None = None,
) -> str | None:  # fmt: skip
    """The incarnation to run a job; one of `avoid` only if there is no other.

    Leaving workers get no job. `near`: an incarnation whose host is preferred while its worker
    lives there.
    """
    shunned = set(avoid)
    worker = near.rpartition("-")[0] if near is not None else None
    hosts = {info.host for info in workers.values() if info.id == worker}
    open_to = [w for w, i in workers.items() if not i.leaving]
    ranked = sorted(
        open_to,
        key=lambda w: (w in shunned, workers[w].host not in hosts, loaded.get(w, 0), w),
    )
    return ranked[0] if ranked else None
