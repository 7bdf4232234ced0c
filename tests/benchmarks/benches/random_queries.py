"""Random failed queries from a seed, as in the evaluation of incremental recovery (section 6.3).

Draws a topology of operators, a few partitions each, in which queries share sub-plans: all queries
that need a partition also need everything upstream of it. So the number of queries that share each
partition is drawn first and assigned in falling order, along the streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.graph import Node, Stream, Substream
from perseid.coordinator.planners.random_topology import SKEW_MAX
from perseid.coordinator.planners.recovery import RecoveryProblem
from perseid.coordinator.planners.recovery_problems import Name, parts
from perseid.coordinator.planners.topology import Topology
from perseid.errors import BadInputError

PARALLELISM_MAX = 4  # of the operators before the outputs
SOURCES = 0.2  # the chance that one of these is a source, once every query has one
TWO_INPUTS = 0.5  # and that a partition of another reads two, if there are two

Priority = Literal["random", "by cost"]


@dataclass(frozen=True, slots=True)
class DrawnQueries:
    """What is drawn, ranges inclusive; the defaults are those of figure 15.

    Raises UsageError or BadInputError for invalid values.
    """

    queries: int = 18
    partitions: int = 60  # including the outputs, one for each query
    share_max: int = 3  # most queries that share a partition
    skew: float = 0.2  # Zipf exponent of the number of sharers
    priority: Priority = "random"  # 1 to 10
    free: float = 0.5  # of the cost of all failed partitions

    def __post_init__(self) -> None:
        checks.whole("queries", self.queries, least=1)
        checks.whole("partitions", self.partitions, least=1)
        checks.whole("share_max", self.share_max, least=1)
        checks.within("skew", self.skew, 0.0, SKEW_MAX)
        checks.one_of("priority", self.priority, get_args(Priority))
        checks.not_negative("free", self.free)
        if self.queries > self.partitions:
            raise BadInputError(
                f"{self.queries} queries and {self.partitions} partitions are to be drawn: each "
                "query, at least one, has a partition of its own as output"
            )

    def with_free(self, share: float) -> DrawnQueries:
        return replace(self, free=share)


class Drawing:
    """The drawing so far: by query, its partitions; by partition, its sharers and readers."""

    def __init__(self, queries: int) -> None:
        self.needs: list[list[Name]] = [[] for _ in range(queries)]
        self.sharers: dict[Name, frozenset[int]] = {}
        self.read_by: dict[Name, set[int]] = {}  # the sharers that read it already
        self.streams: dict[tuple[str, str], list[Substream]] = {}

    def add(self, partition: Name, inputs: Sequence[Name], sharers: frozenset[int]) -> None:
        self.sharers[partition], self.read_by[partition] = sharers, set()
        for query in sharers:
            self.needs[query].append(partition)
        for source in inputs:
            self.read_by[source] |= sharers
            rows = self.streams.setdefault((source[0], partition[0]), [])
            rows.append((source[1], partition[1], 1.0))

    def loose(self, query: int) -> list[Name]:
        """What the query needs and none of its partitions reads yet."""
        return [one for one in self.needs[query] if query not in self.read_by[one]]


def draw_queries(random: Random, drawn: DrawnQueries) -> RecoveryProblem:
    """All partitions have failed. The same for the same state of `random`.

    O(partitions * (partitions + queries)), plus the total size of the queries.

    >>> problem = draw_queries(Random(1), DrawnQueries())
    >>> len(problem.queries), len(problem.failed)
    (18, 60)
    """
    topology = draw_topology(random, drawn)
    loads = {
        node.name: [random.uniform(0.05, 1.0) for _ in range(node.parallelism)]
        for node in topology.nodes
    }
    partitions, queries = parts(topology, loads)
    cost = {one.id: one.cost for one in partitions}
    costs = [sum(cost[needed] for needed in query.partitions) for query in queries]
    queries = [
        replace(query, priority=_priority(random, drawn, costs, number))
        for number, query in enumerate(queries)
    ]
    return RecoveryProblem(partitions, queries, cost.keys(), drawn.free * sum(cost.values()))


def draw_topology(random: Random, drawn: DrawnQueries) -> Topology:
    """Every query is an operator of one partition, whose upstream is shared as `drawn` specifies.

    >>> topology = draw_topology(Random(3), DrawnQueries(queries=2, partitions=7))
    >>> [(stream.name, stream.kind) for stream in topology.streams]
    [('o0 -> o1', 'split'), ('o1 -> q0', 'merge'), ('o1 -> q1', 'merge')]
    """
    drawing = Drawing(drawn.queries)
    nodes = []
    for name, frequencies in _operators(random, drawn):
        before = list(drawing.sharers)
        is_source = not all(drawing.needs) or random.random() < SOURCES
        nodes.append(Node(name, len(frequencies), output_rates=(1.0,) * len(frequencies)))
        for number, sharing in enumerate(frequencies):
            inputs = [] if is_source else [random.choice(before)]
            sharers = _sharers(random, drawing, inputs, sharing)
            second = inputs and [
                one for one in drawing.needs[min(sharers)]
                if one not in inputs and one[0] != name and sharers <= drawing.sharers[one]
            ]  # fmt: skip
            if second and random.random() < TWO_INPUTS:
                inputs.append(random.choice(second))
            drawing.add((name, number), inputs, sharers)
    for query in range(drawn.queries):
        nodes.append(Node(f"q{query}", 1, output_rates=(1.0,)))
        drawing.add((f"q{query}", 0), drawing.loose(query), frozenset({query}))
    return Topology(nodes, [Stream(*ends, tuple(rows)) for ends, rows in drawing.streams.items()])


def _operators(random: Random, drawn: DrawnQueries) -> Iterator[tuple[str, list[int]]]:
    """Names, and for each partition how many queries share it, which never rises."""
    sharers = range(1, min(drawn.share_max, drawn.queries) + 1)
    chances = [1 / sharer**drawn.skew for sharer in sharers]
    drawn_ones = random.choices(sharers, chances, k=drawn.partitions - drawn.queries)
    left = sorted(drawn_ones, reverse=True)
    for number in range(len(left)):
        if not left:
            return
        size = random.randint(1, PARALLELISM_MAX)
        yield f"o{number}", left[:size]
        left = left[size:]


def _sharers(
    random: Random, drawing: Drawing, inputs: Sequence[Name], sharing: int
) -> frozenset[int]:
    """`sharing` of the input's queries; for a source, the smallest query and any others."""
    if inputs:
        return frozenset(random.sample(sorted(drawing.sharers[inputs[0]]), sharing))
    first = min(range(len(drawing.needs)), key=lambda query: len(drawing.needs[query]))
    others = [query for query in range(len(drawing.needs)) if query != first]
    return frozenset([first, *random.sample(others, sharing - 1)])


def _priority(random: Random, drawn: DrawnQueries, costs: list[float], query: int) -> int:
    if drawn.priority == "random":
        return random.randint(1, 10)
    low, high = min(costs), max(costs)
    return 1 + round(9 * (costs[query] - low) / (high - low)) if high > low else 1
