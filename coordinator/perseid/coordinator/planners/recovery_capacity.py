"""How much room live workers have for a recovery, and where recovered partitions run.

Incremental recovery, section 5.3: a worker is filled only up to a bound, and each partition goes to
the worker with the most free cores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.best_density import best_density
from perseid.coordinator.planners.recovery import (
    SLACK,
    Partition,
    Query,
    RecoveryPlan,
    RecoveryProblem,
)
from perseid.errors import BadInputError

SHARE_MAX = 0.8  # of a worker's cores: the rest is for bursts and for catching up

Scheduler = Callable[[RecoveryProblem], RecoveryPlan]


@dataclass(frozen=True, slots=True)
class Worker:
    """A live worker: its cores, and how many are used by load other than this recovery's."""

    id: str
    cores: float
    used: float = 0.0

    def __post_init__(self) -> None:
        checks.not_negative(f"worker {self.id}: cores", self.cores, BadInputError)
        checks.not_negative(f"worker {self.id}: used", self.used, BadInputError)


def free_cores(workers: Sequence[Worker], recovered: Mapping[str, float]) -> dict[str, float]:
    """By worker, the cores left below the bound; `recovered`: the cores that a recovery took.

    Raises BadInputError for a duplicate worker. O(workers).

    >>> free_cores([Worker("w1", 4.0, used=1.2), Worker("w2", 2.0, used=1.9)], {"w1": 0.5})
    {'w1': 1.5, 'w2': 0.0}
    """
    seen: set[str] = set()
    for worker in workers:
        if worker.id in seen:
            raise BadInputError(f"worker {worker.id} is there twice")
        seen.add(worker.id)
    for name, cores in recovered.items():
        checks.not_negative(f"recovered cores of worker {name}", cores, BadInputError)
    return {
        w.id: max(0.0, SHARE_MAX * w.cores - w.used - recovered.get(w.id, 0.0)) for w in workers
    }


def place(costs: Mapping[str, float], free: Mapping[str, float]) -> dict[str, str]:
    """The worker of each partition that fits, the most costly first. O(partitions * workers).

    Raises BadInputError for a cost or free cores below 0.

    >>> place({"p1": 0.5, "p2": 0.4, "p3": 0.3, "p4": 0.9}, {"w1": 0.8, "w2": 0.6})
    {'p1': 'w1', 'p2': 'w2', 'p3': 'w1'}
    """
    for partition, cost in costs.items():
        checks.not_negative(f"the cost of partition {partition}", cost, BadInputError)
    for name, cores in free.items():
        checks.not_negative(f"free cores of worker {name}", cores, BadInputError)
    left, found = dict(free), {}
    for partition in sorted(costs, key=lambda p: (-costs[p], p)):
        worker = min(left, key=lambda w: (-left[w], w), default=None)
        if worker is not None and costs[partition] <= left[worker] + SLACK:
            found[partition] = worker
            left[worker] -= costs[partition]
    return found


def placed_plan(
    partitions: Sequence[Partition],
    queries: Sequence[Query],
    failed: Collection[str],
    free: Mapping[str, float],
    replicated: Collection[str] = (),
    scheduler: Scheduler = best_density,
) -> dict[str, str]:
    """The worker of each partition that is recovered next. O(queries) schedules at worst.

    A schedule considers only the total of free cores. If one of its partitions fits on no worker, a
    query that needs it waits and the others are scheduled again: a query that would not fit even
    alone, else the least important one.
    """
    gone = set(failed) - set(replicated)
    cost = {p.id: p.cost for p in partitions}
    while True:
        total = sum(free.values())
        plan = scheduler(RecoveryProblem(partitions, queries, failed, total, replicated))
        found = place({p: cost[p] for p in plan.recover}, free)
        homeless = set(plan.recover) - found.keys()
        short = [q for q in queries if q.id in plan.queries and homeless & set(q.partitions)]
        if not short:
            return found
        needs = {q.id: {p: cost[p] for p in q.partitions if p in gone} for q in short}
        never = [q for q in short if len(place(needs[q.id], free)) < len(needs[q.id])]
        waits = min(never or short, key=lambda q: (q.priority, q.id))
        queries = [q for q in queries if q is not waits]
