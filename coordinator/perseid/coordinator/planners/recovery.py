"""Which queries to recover first when resources are short (incremental recovery, section 5).

A query needs all of its failed partitions, and partitions are shared. The chosen set of partitions
fits the free resources and recovers the highest sum of priorities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt

from perseid.coordinator.planners import checks
from perseid.errors import BadInputError, RefusedError

QUERIES_MAX = 24  # failed queries of the dynamic programme: 16 million plans
SLACK = 1e-9  # costs are sums of floats
COST_MAX = 1e12  # cores of a partition: sums stay finite
PRIORITY_MAX = 10**9  # of a query: sums have 64 bits and would turn negative

Matrix = npt.NDArray[np.float64]
Sets = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Partition:
    """An operator partition: the share of a core that it needs, and its upstream partitions."""

    id: str
    cost: float
    upstream: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """An output partition with everything upstream of it."""

    id: str
    priority: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What is recovered, both in the order of the problem, with its priority and cost."""

    recover: tuple[str, ...]
    queries: tuple[str, ...]
    priority: int
    cost: float


class RecoveryProblem:
    """A validated problem; BadInputError names the partition or query. Immutable.

    `replicated`: failed partitions whose active replica runs. They cost nothing, so any plan
    recovers a query that only needs these.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        queries: Sequence[Query],
        failed: Collection[str],
        free: float,
        replicated: Collection[str] = (),
    ) -> None:
        known = _checked_partitions(partitions)
        _check_queries(queries, known)
        for name in [*failed, *replicated]:
            if name not in known:
                raise BadInputError(f"failed or replicated: {name}, which is not there")
        checks.not_negative("free", free, BadInputError, unit=" cores")
        self.free = free
        gone = set(failed) - set(replicated)
        self.failed = [p for p in partitions if p.id in gone]
        # Queries without failed partitions run anyway; any plan recovers those that need only
        # replicas.
        self.queries = [q for q in queries if any(p in set(failed) for p in q.partitions)]

    @cached_property
    def members(self) -> Sets:
        """Whether a query, a row, needs a failed partition, a column."""
        found = np.zeros((len(self.queries), len(self.failed)), dtype=bool)
        column = {p.id: i for i, p in enumerate(self.failed)}
        for row, query in enumerate(self.queries):
            found[row, [column[p] for p in query.partitions if p in column]] = True
        return found

    @cached_property
    def costs(self) -> Matrix:
        return np.array([p.cost for p in self.failed], dtype=np.float64)

    @cached_property
    def priorities(self) -> npt.NDArray[np.int64]:
        return np.array([q.priority for q in self.queries], dtype=np.int64)

    def plan(self, chosen: Iterable[int]) -> RecoveryPlan:
        """The plan with these columns of `members`, and every query that they complete."""
        columns = sorted(chosen)
        have = np.zeros(len(self.failed), dtype=bool)
        have[columns] = True
        done = np.logical_not((self.members & ~have).any(axis=1)).nonzero()[0]
        return RecoveryPlan(
            tuple(self.failed[i].id for i in columns),
            tuple(self.queries[i].id for i in done),
            int(self.priorities[done].sum()),
            float(self.costs[columns].sum()),
        )


def optimal(problem: RecoveryProblem) -> RecoveryPlan:
    """The highest priority, the cheapest of these (algorithm 3).

    O(2^queries) plans, hence a limit, and for each what its last query needs.

    >>> partitions = [Partition("p1", 0.5), Partition("p2", 0.5), Partition("p3", 0.8)]
    >>> queries = [Query("q1", 3, ("p1", "p2")), Query("q2", 2, ("p2",)), Query("q3", 4, ("p3",))]
    >>> optimal(RecoveryProblem(partitions, queries, failed={"p1", "p2", "p3"}, free=1.3)).queries
    ('q2', 'q3')
    """
    if len(problem.queries) > QUERIES_MAX:
        raise RefusedError(
            f"{len(problem.queries)} failed queries, and the dynamic programme takes "
            f"{QUERIES_MAX} at most: use best-density"
        )
    sharers = (1 << np.arange(len(problem.queries))) @ problem.members  # a bit for each query
    chosen, cost, priority = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.int64)
    for query, needs in enumerate(problem.members):
        more = cost.copy()
        for column in np.flatnonzero(needs):
            more += problem.costs[column] * ((chosen & sharers[column]) == 0)
        fits = more <= problem.free + SLACK  # what does not fit will not fit with more queries
        chosen = np.append(chosen, chosen[fits] | 1 << query)
        cost = np.append(cost, more[fits])
        priority = np.append(priority, priority[fits] + problem.queries[query].priority)
    best = np.flatnonzero(priority == priority.max())
    return problem.plan(np.flatnonzero(sharers & chosen[best[np.argmin(cost[best])]]).tolist())


def operator_centric(problem: RecoveryProblem) -> RecoveryPlan:
    """The baseline: repeatedly the cheapest partition whose upstream is available.

    O(partitions^2), times how many each reads.
    """
    number = {p.id: i for i, p in enumerate(problem.failed)}
    waiting = set(number)
    left = problem.free
    while True:
        ready = [
            p for p in problem.failed
            if p.id in waiting and p.cost <= left + SLACK and not waiting & set(p.upstream)
        ]  # fmt: skip
        if not ready:
            return problem.plan(i for name, i in number.items() if name not in waiting)
        next_one = min(ready, key=lambda p: p.cost)
        waiting.discard(next_one.id)
        left -= next_one.cost


def _checked_partitions(partitions: Sequence[Partition]) -> set[str]:
    known: set[str] = set()
    for partition in partitions:
        if partition.id in known:
            raise BadInputError(f"partition {partition.id} is there twice")
        if not 0 <= partition.cost <= COST_MAX:
            raise BadInputError(
                f"partition {partition.id} costs {checks.shown(partition.cost)}: 0 or more cores, "
                f"at most {COST_MAX:g}"
            )
        known.add(partition.id)
    for partition in partitions:
        for name in partition.upstream:
            if name not in known:
                raise BadInputError(f"partition {partition.id} reads {name}, which is not there")
    _check_cycles(partitions)
    return known


def _check_cycles(partitions: Sequence[Partition]) -> None:
    """Refuses cycles: none of their partitions could be recovered first."""
    reads = {p.id: p.upstream for p in partitions if p.upstream}
    try:
        TopologicalSorter(reads).prepare()
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise BadInputError(
            f"partitions read each other: {cycle}; leave out what comes back by feedback"
        ) from error


def _check_queries(queries: Sequence[Query], known: set[str]) -> None:
    seen: set[str] = set()
    for query in queries:
        if query.id in seen:
            raise BadInputError(f"query {query.id} is there twice")
        seen.add(query.id)
        if not 0 <= query.priority <= PRIORITY_MAX:
            raise BadInputError(
                f"query {query.id} has priority {checks.shown(query.priority)}: 0 or more, at most "
                f"{PRIORITY_MAX:,}"
            )
        if not query.partitions:
            raise BadInputError(f"query {query.id} has no partitions: at least one, its output")
        for name in query.partitions:
            if name not in known:
                raise BadInputError(f"query {query.id} needs {name}, which is not there")
