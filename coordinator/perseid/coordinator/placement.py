"""Which worker runs a job: the live one with the fewest jobs, the oldest among equals.

A worker is known by its incarnation. A new life of the same worker is another owner, because what
the old life still does must be fenced by a higher generation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from perseid.coordinator.model import ClusterState
from perseid.records import WorkerInfo
from perseid.records.version import PROTOCOL


def loads(state: ClusterState) -> Counter[str]:
    """How many jobs each live worker owns."""
    owners = [job.plan.owner for job in state.jobs.values() if job.plan is not None]
    return Counter(owner for owner in owners if owner is not None and owner in state.workers)


def choose(
    workers: Mapping[str, WorkerInfo], loaded: Mapping[str, int], avoid: Iterable[str] = ()
) -> str | None:
    """The incarnation to run a job; one of `avoid` only when there is no other.

    One that leaves, or speaks another protocol, gets none.
    """
    shunned = set(avoid)
    open_to = [w for w, i in workers.items() if not i.leaving and i.protocol == PROTOCOL]
    ranked = sorted(open_to, key=lambda w: (w in shunned, loaded.get(w, 0), w))
    return ranked[0] if ranked else None
