"""Random failed queries from a seed, as in the evaluation of incremental recovery (section 6.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.recovery import Partition, Query, RecoveryProblem

Priority = Literal["random", "by cost"]
SKEW_MAX = 20.0  # far more than is ever measured, and its powers are numbers


@dataclass(frozen=True, slots=True)
class DrawnQueries:
    """What is drawn, ranges inclusive; the defaults are those of figure 15.

    UsageError names what cannot be.
    """

    queries: int = 18
    partitions: int = 60
    share_max: int = 3  # most queries that share a partition
    skew: float = 0.2   # Zipf exponent of how many share one
    priority: Priority = "random"  # 1 to 10
    free: float = 0.5   # of the cost of all failed partitions

    def __post_init__(self) -> None:
        checks.whole("queries", self.queries, least=1)
        checks.whole("partitions", self.partitions, least=1)
        checks.whole("share_max", self.share_max, least=1)
        checks.within("skew", self.skew, 0.0, SKEW_MAX)
        checks.one_of("priority", self.priority, get_args(Priority))
        checks.not_negative("free", self.free)

    def with_free(self, share: float) -> DrawnQueries:
        return replace(self, free=share)


def draw_queries(random: Random, drawn: DrawnQueries) -> RecoveryProblem:
    """All partitions have failed. The same for the same state of `random`.

    O(partitions * queries), and O(partitions * share_max) random numbers.

    >>> problem = draw_queries(Random(1), DrawnQueries())
    >>> len(problem.queries), len(problem.failed)
    (18, 60)
    """
    partitions = [Partition(f"p{i}", random.uniform(0.05, 1.0)) for i in range(drawn.partitions)]
    needs: list[list[str]] = [[] for _ in range(drawn.queries)]
    sharers = range(1, drawn.share_max + 1)
    chances = [1 / sharer**drawn.skew for sharer in sharers]
    for number, partition in enumerate(partitions):
        (sharing,) = random.choices(sharers, chances)
        # Every query has some: one of the sharers is its turn's.
        first = number % drawn.queries
        others = [q for q in range(drawn.queries) if q != first]
        for query in [first, *random.sample(others, min(sharing - 1, len(others)))]:
            needs[query].append(partition.id)
    cost = {p.id: p.cost for p in partitions}
    costs = [sum(cost[p] for p in need) for need in needs]
    queries = [
        Query(f"q{i}", _priority(random, drawn, costs, i), tuple(need))
        for i, need in enumerate(needs)
        if need
    ]
    return RecoveryProblem(
        partitions, queries, failed=cost.keys(), free=drawn.free * sum(cost.values())
    )


def _priority(random: Random, drawn: DrawnQueries, costs: list[float], query: int) -> int:
    if drawn.priority == "random":
        return random.randint(1, 10)
    low, high = min(costs), max(costs)
    return 1 + round(9 * (costs[query] - low) / (high - low)) if high > low else 1
