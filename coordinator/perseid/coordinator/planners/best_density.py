"""BestDensity: grow many plans at once, each by the query that brings most for its share of cost.

Incremental recovery, algorithm 4. A partition's cost is shared by the failed queries that need it,
so density is priority / sum(cost / sharers) over what the plan lacks. The paper computes the
sharers anew for each plan; they cannot change, because a query that is done has left no partition
out. So the sums are only ever reduced, and a round for all plans is a few array operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from perseid.coordinator.planners.recovery import SLACK, RecoveryPlan, RecoveryProblem

ALL_PAIRS_QUERIES_MAX = 60  # above, only pairs of the densest are seeds
SEED_QUERIES = 20           # so many of these
_NOTHING = 1e-12  # below it a sum of costs is a rest of rounding

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of numbers for each row, one behind the other."""

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
        offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        return owner, self.items[self.starts[rows][owner] + offset]


def best_density(
    problem: RecoveryProblem, all_pairs_queries_max: int = ALL_PAIRS_QUERIES_MAX
) -> RecoveryPlan:
    """At least 1 - e^(-1/d) of the optimum, d the most that share a partition (theorem 5.1).

    O(queries^3) rounds times partitions a query. Above `all_pairs_queries_max` failed queries the
    seeds are bounded, O(queries), and the theorem does not hold.

    >>> from perseid.coordinator.planners.recovery import Partition, Query
    >>> problem = RecoveryProblem(
    ...     [Partition("p1", 0.5), Partition("p2", 0.5), Partition("p3", 0.8)],
    ...     [Query("q1", 3, ("p1", "p2")), Query("q2", 2, ("p2",)), Query("q3", 4, ("p3",))],
    ...     failed={"p1", "p2", "p3"}, free=1.0,
    ... )
    >>> best_density(problem)
    RecoveryPlan(recover=('p1', 'p2'), queries=('q1', 'q2'), priority=5, cost=1.0)
    """
    if not problem.queries:
        return problem.plan(())
    growth = Growth(problem)
    for seed in growth.seeds(all_pairs_queries_max):
        growth.begin(seed)
    return growth.finish()


class Growth:
    """Candidate plans, a row each, and what every query still lacks in each of them."""

    def __init__(self, problem: RecoveryProblem) -> None:
        self._problem = problem
        self._needs, self._sharers = Rows.of(problem.members), Rows.of(problem.members.T)
        shares = problem.members.sum(axis=0)
        self._weight = problem.costs / np.maximum(shares, 1)
        self._cost_of = problem.members @ problem.costs
        self._weight_of = problem.members @ self._weight
        self._begun: list[Ids] = []

    def seeds(self, all_pairs_queries_max: int) -> list[tuple[int, ...]]:
        """Queries that fit, the densest first, and pairs. One query and pairs in the paper."""
        density = self._problem.priorities / np.maximum(self._weight_of, _NOTHING)
        fitting = np.flatnonzero(self._cost_of <= self._problem.free + SLACK)
        ranked = fitting[np.argsort(-density[fitting], kind="stable")].tolist()
        few = ranked if len(density) <= all_pairs_queries_max else ranked[:SEED_QUERIES]
        return [*((q,) for q in few), *combinations(few, 2)]

    def begin(self, seed: tuple[int, ...]) -> None:
        """A plan with these queries, unless they do not fit together."""
        _, columns = self._needs.gather(np.array(seed))
        columns = np.unique(columns)
        if self._problem.costs[columns].sum() <= self._problem.free + SLACK:
            self._begun.append(columns)

    def finish(self) -> RecoveryPlan:
        """Grows all plans until nothing fits; the highest priority, the cheapest of these."""
        begun = self._begun or [np.zeros(0, dtype=np.int64)]
        shape = (len(begun), len(self._problem.queries))
        have = np.zeros((len(begun), len(self._problem.failed)), dtype=bool)
        left = np.full(len(begun), self._problem.free)
        lack = np.tile(self._problem.members.sum(axis=1), (len(begun), 1))
        cost = np.tile(self._cost_of, (len(begun), 1))
        weight = np.tile(self._weight_of, (len(begun), 1))
        plan = np.repeat(np.arange(len(begun)), [len(c) for c in begun])
        column = np.concatenate(begun)
        while len(column):
            have[plan, column] = True
            left -= np.bincount(plan, self._problem.costs[column], len(begun))
            owner, query = self._sharers.gather(column)
            cells = plan[owner] * shape[1] + query
            size = shape[0] * shape[1]
            lack -= np.bincount(cells, minlength=size).reshape(shape)
            cost -= np.bincount(cells, self._problem.costs[column][owner], size).reshape(shape)
            weight -= np.bincount(cells, self._weight[column][owner], size).reshape(shape)
            plan, column = self._next(have, left, lack, cost, weight)
        priority = (lack == 0) @ self._problem.priorities
        best = np.lexsort((-left, -priority))[0]
        return self._problem.plan(np.flatnonzero(have[best]).tolist())

    def _next(
        self,
        have: npt.NDArray[np.bool_],
        left: npt.NDArray[np.float64],
        lack: Ids,
        cost: npt.NDArray[np.float64],
        weight: npt.NDArray[np.float64],
    ) -> tuple[Ids, Ids]:
        """For each plan that can grow: the partitions of its densest query that fits."""
        density = self._problem.priorities / np.maximum(weight, _NOTHING)
        density[(lack == 0) | (cost > left[:, None] + SLACK)] = 0.0
        query = np.argmax(density, axis=1)
        plans = np.flatnonzero(density[np.arange(len(query)), query] > 0)
        owner, column = self._needs.gather(query[plans])
        plan = plans[owner]
        new = ~have[plan, column]
        return plan[new], column[new]
