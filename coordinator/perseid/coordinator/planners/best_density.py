"""BestDensity: grows many plans at once, each by the query with the best ratio of priority to cost.

Incremental recovery, algorithm 4. The failed queries that need a partition share its cost, so
density is priority / sum(cost / sharers) over what the plan lacks. The paper recomputes the sharers
for each plan; they cannot change, because a completed query lacks no partition. So the sums only
ever decrease, and a round for all plans is a few array operations.

The paper states O(M^3 log M) for M failed queries: M^2 plans of up to M rounds, with the densest
query of a round from a priority queue. Its pseudo-code checks every query instead, as this module
does: O(M^4). At 60 queries these checks take a seventh to a quarter of the time. The rest updates
what a round changes, and a queue would need those updates too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import isqrt

import numpy as np
import numpy.typing as npt

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.recovery import (
    SLACK,
    Matrix,
    RecoveryPlan,
    RecoveryProblem,
    Sets,
)

ALL_PAIRS_QUERIES_MAX = 60  # above, only some of the densest queries and their pairs are seeds
SEED_QUERIES_MIN = 20  # the least number of these
SEED_WORK = 400_000_000  # their pairs times the cost of growing one: about a second
NEED_WORK = 8  # of a partition that a query needs, in checks of a query's density
EXCHANGES_MAX = 4  # improvements of a plan that grew from few seeds
CELLS_AT_ONCE = 2_000_000  # plans by columns that are grown together: they fit into the cache
EXCHANGED_MAX = 40  # the least dense queries that are tried to be exchanged for one
NONE = -1
_NOTHING = 1e-12  # a smaller sum of costs is a rounding error

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of numbers for each row, stored one after another."""

    starts: Ids
    items: Ids

    @staticmethod
    def of(matrix: npt.NDArray[np.bool_]) -> Rows:
        counts = matrix.sum(axis=1)
        return Rows(np.append(0, np.cumsum(counts)), np.nonzero(matrix)[1])

    def gather(self, rows: Ids) -> tuple[Ids, Ids]:
        """The items of these rows, and for each the position in `rows` that it came from."""
        counts = self.starts[rows + 1] - self.starts[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        shift = self.starts[rows] - (np.cumsum(counts) - counts)
        return owner, self.items[np.arange(len(owner)) + np.repeat(shift, counts)]


def best_density(problem: RecoveryProblem, seed_queries: int | None = None) -> RecoveryPlan:
    """At least 1 - e^(-1/d) of the optimum; d queries at most share a partition (theorem 5.1).

    O(queries^2) seeds, each grown in O(queries) rounds that check every query: O(queries^4). The
    seeds are the paper's, all pairs, and every single query, not only the densest. Above
    ALL_PAIRS_QUERIES_MAX failed queries only the `seed_queries` densest and their pairs are seeds,
    as many as SEED_WORK allows: O(queries^2). An exchange compensates for the missing seeds, but
    the theorem does not hold.

    >>> from perseid.coordinator.planners.recovery import Partition, Query
    >>> problem = RecoveryProblem(
    ...     [Partition("p1", 0.5), Partition("p2", 0.5), Partition("p3", 0.8)],
    ...     [Query("q1", 3, ("p1", "p2")), Query("q2", 2, ("p2",)), Query("q3", 4, ("p3",))],
    ...     failed={"p1", "p2", "p3"}, free=1.0,
    ... )
    >>> best_density(problem)
    RecoveryPlan(recover=('p1', 'p2'), queries=('q1', 'q2'), priority=5, cost=1.0)
    """
    if seed_queries is not None:
        checks.whole("seed_queries", seed_queries, least=1)
    if not problem.queries:
        return problem.plan(())
    growth = Growth(problem)
    chosen = seed_queries or seed_queries_of(problem)
    found = growth.grown(growth.seeds(chosen))
    few = chosen < len(problem.queries)
    best = exchanged(growth, found) if few else found
    return problem.plan(growth.partitions(best.columns).tolist())


def seed_queries_of(problem: RecoveryProblem) -> int:
    """How many of the densest queries are seeds, with their pairs."""
    queries = len(problem.queries)
    if queries <= ALL_PAIRS_QUERIES_MAX:
        return queries
    growing = queries**2 + NEED_WORK * int(problem.members.sum())
    return min(max(isqrt(SEED_WORK // growing), SEED_QUERIES_MIN), queries)


def exchanged(growth: Growth, plan: Grown) -> Grown:
    """Improves the plan by exchanging one query for others, while that helps."""
    for _ in range(EXCHANGES_MAX):
        other = growth.grown(growth.without_one(plan))
        if (other.priority, -other.cost) <= (plan.priority, -plan.cost):
            break
        plan = other
    return plan


@dataclass(frozen=True, slots=True)
class Start:
    """The columns that a plan begins with, and a query that it must not grow by, if any."""

    columns: Ids
    never: int = NONE


@dataclass(frozen=True, slots=True)
class Grown:
    """The best of some plans."""

    columns: Ids
    priority: int
    cost: float


class Growth:
    """Candidate plans, one for each row, and what every query lacks in each of them.

    Partitions that the same queries need are always added together: one column.
    """

    def __init__(self, problem: RecoveryProblem) -> None:
        self._problem = problem
        columns: dict[bytes, int] = {}
        needed_by = np.packbits(problem.members.T, axis=1)
        self._column_of = np.array(
            [columns.setdefault(by.tobytes(), len(columns)) for by in needed_by], dtype=np.int64
        )
        _, first = np.unique(self._column_of, return_index=True)
        self._members = problem.members[:, first]
        self._costs = np.asarray(np.bincount(self._column_of, problem.costs), dtype=np.float64)
        self._needs, self._sharers = Rows.of(self._members), Rows.of(self._members.T)
        self._lack = self._members.sum(axis=1)
        self._weight = self._costs / np.maximum(self._members.sum(axis=0), 1)
        self._cost_of = self._members @ self._costs
        self._weight_of = self._members @ self._weight
        self._density_of = problem.priorities / np.maximum(self._weight_of, _NOTHING)
        self._density_of[self._lack == 0] = 0.0

    def seeds(self, queries: int) -> list[Start]:
        """The `queries` densest queries that fit, and the pairs of them that fit."""
        limit = self._problem.free + SLACK
        fitting = np.flatnonzero(self._cost_of <= limit)
        ranked = fitting[np.argsort(-self._density_of[fitting], kind="stable")][:queries].tolist()
        found = [Start(self.columns(*some)) for n in (1, 2) for some in combinations(ranked, n)]
        return [one for one in found if self._costs[one.columns].sum() <= limit]

    def partitions(self, columns: Ids) -> Ids:
        """The numbers of the failed partitions in these columns."""
        return np.flatnonzero(np.isin(self._column_of, columns))

    def columns(self, *queries: int) -> Ids:
        return np.unique(self._needs.gather(np.array(queries))[1])

    def without_one(self, plan: Grown) -> list[Start]:
        """For each recovered query: what the others need, with that query barred."""
        members = self._members
        have = np.zeros(len(self._costs), dtype=bool)
        have[plan.columns] = True
        done = np.flatnonzero(~(members & ~have).any(axis=1) & (self._lack > 0))
        needed = members[done].sum(axis=0)
        least = done[np.argsort(self._density_of[done], kind="stable")][:EXCHANGED_MAX]
        return [Start(np.flatnonzero(needed > members[query]), int(query)) for query in least]

    def grown(self, starts: list[Start]) -> Grown:
        """Grows all plans until nothing fits; the highest priority, the cheapest of these."""
        starts = starts or [Start(np.zeros(0, dtype=np.int64))]
        some = max(1, CELLS_AT_ONCE // max(1, len(self._costs)))
        blocks = (starts[i : i + some] for i in range(0, len(starts), some))
        return min(map(self._best_of, blocks), key=lambda one: (-one.priority, one.cost))

    def _best_of(self, starts: list[Start]) -> Grown:
        """Grows these plans together."""
        queries = len(self._problem.queries)
        have = np.zeros((len(starts), len(self._costs)), dtype=bool)
        left = np.full(len(starts), self._problem.free)
        # By plan and query in one flat array, so that a round updates only what changes.
        lack = np.tile(self._lack, len(starts))
        cost = np.tile(self._cost_of, len(starts))
        weight = np.tile(self._weight_of, len(starts))
        density = np.tile(self._density_of, len(starts))
        barred = [(row, start.never) for row, start in enumerate(starts) if start.never != NONE]
        cost[[row * queries + query for row, query in barred]] = np.inf  # so that it never fits
        plan = np.repeat(np.arange(len(starts)), [len(start.columns) for start in starts])
        column = np.concatenate([start.columns for start in starts])
        while len(column):
            have[plan, column] = True
            left -= np.bincount(plan, self._costs[column], len(starts))
            owner, query = self._sharers.gather(column)
            cells = plan[owner] * queries + query
            np.subtract.at(lack, cells, 1)
            np.subtract.at(cost, cells, self._costs[column][owner])
            np.subtract.at(weight, cells, self._weight[column][owner])
            density[cells] = self._problem.priorities[query] / np.maximum(weight[cells], _NOTHING)
            density[cells[lack[cells] == 0]] = 0.0
            shape = (len(starts), queries)
            plan, column = self._next(have, left, cost.reshape(shape), density.reshape(shape))
        priority = (lack.reshape(len(starts), queries) == 0) @ self._problem.priorities
        best = np.lexsort((-left, -priority))[0]
        spent = self._problem.free - float(left[best])
        return Grown(np.flatnonzero(have[best]), int(priority[best]), spent)

    def _next(self, have: Sets, left: Matrix, cost: Matrix, density: Matrix) -> tuple[Ids, Ids]:
        """For each plan that can grow: the columns of its densest query that fits."""
        fitting = np.where(cost <= left[:, None] + SLACK, density, 0.0)
        query = np.argmax(fitting, axis=1)
        plans = np.flatnonzero(fitting[np.arange(len(query)), query] > 0)
        owner, column = self._needs.gather(query[plans])
        plan = plans[owner]
        new = ~have[plan, column]
        return plan[new], column[new]
