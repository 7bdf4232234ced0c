"""Random topologies from a seed, as in the evaluations of PPA (section VI-C).

An operator is a join with a given chance and then has two inputs, else one. The result is a tree,
drawn from the sink backwards, whose leaves are the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.graph import (
    RATE_MAX,
    Kind,
    Node,
    Stream,
    Substream,
    TopologyError,
)
from perseid.coordinator.planners.topology import Topology

Structure = Literal["structured", "full", "mixed"]
SKEW_MAX = 20.0  # far above any measured one, and its powers stay finite


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn, ranges inclusive. The defaults are those of Figure 14.

    `structured` has full streams only into the sink, `full` has no others, `mixed` has any. `skew`:
    the Zipf exponent of the work of an operator's partitions, 0 for even. Raises UsageError for
    invalid values.
    """

    operators: tuple[int, int] = (5, 10)
    parallelism: tuple[int, int] = (1, 10)
    structure: Structure = "mixed"
    joins: float = 0.5  # the chance of two inputs
    correlated: bool = True  # False: the same topology, but all inputs are independent
    skew: float = 0.1
    rate: float = 1000.0  # records/s of a source operator
    selectivity: float = 0.5
    times: int = 1  # factor for the drawn parallelism of each operator

    def __post_init__(self) -> None:
        for name, (low, high) in (("operators", self.operators), ("parallelism", self.parallelism)):
            checks.whole(f"the least of {name}", low, least=1)
            checks.whole(f"the most of {name}", high, least=low)
        checks.one_of("structure", self.structure, get_args(Structure))
        checks.within("joins", self.joins, 0.0, 1.0)
        checks.within("skew", self.skew, 0.0, SKEW_MAX)
        checks.within("rate", self.rate, 0.0, RATE_MAX)
        checks.not_negative("selectivity", self.selectivity)


def draw(random: Random, drawn: Drawn = Drawn()) -> Topology:
    """One topology; the same for the same state of `random`.

    O(substreams + operators^2).

    >>> same = draw(Random(1)), draw(Random(1))
    >>> same[0].streams == same[1].streams, len(same[0].sinks)
    (True, 1)
    """
    number = random.randint(*drawn.operators)
    consumers = _tree(random, number, drawn.joins)
    sizes = [drawn.times * random.randint(*drawn.parallelism) for _ in range(number)]
    inputs = [consumers.count(i) for i in range(number)]
    names = [f"o{number - i}" for i in range(number)]  # the sink, drawn first, has the last
    streams: list[Stream] = []
    rates: dict[int, list[float]] = {}
    # Producers have higher numbers, so that their rates are known first.
    for i in reversed(range(number)):
        got = _received(streams, names[i], sizes[i])
        if inputs[i]:
            rates[i] = [rate * drawn.selectivity for rate in got]
        else:
            rates[i] = [drawn.rate * share for share in _shares(random, sizes[i], drawn.skew)]
        if i:
            to = consumers[i]
            kind = _kind(random, sizes[i], sizes[to], drawn.structure, into_sink=to == 0)
            shares = _shares(random, sizes[to], drawn.skew)
            streams.append(Stream(names[i], names[to], substreams(kind, rates[i], shares)))
    joins = [drawn.correlated and n > 1 for n in inputs]
    nodes = [
        Node(names[i], sizes[i], "correlated" if joins[i] else "independent", tuple(rates[i]))
        for i in reversed(range(number))
    ]
    return Topology(nodes, streams)


def substreams(
    kind: Kind, rates: Sequence[float], shares: Sequence[float]
) -> tuple[Substream, ...]:
    """Substreams of a kind from partitions with these output rates to some with these shares.

    Neighbours are connected. O(substreams). Raises TopologyError if the parallelisms do not allow
    the kind, or a share is invalid.

    >>> substreams("merge", [1.0, 2.0, 3.0], [0.5, 0.5])
    ((0, 0, 1.0), (1, 0, 2.0), (2, 1, 3.0))
    """
    n, m = len(rates), len(shares)
    if kind not in kinds(n, m):
        raise TopologyError(f"{n} partitions to {m} is no {kind}: {', '.join(kinds(n, m))}")
    for share in shares:
        checks.positive("a partition's share", share, TopologyError)
    if kind == "merge":
        return tuple((i, i * m // n, rates[i]) for i in range(n))
    if kind == "full":
        total = sum(shares)
        return tuple((i, j, rates[i] * shares[j] / total) for i in range(n) for j in range(m))
    totals = [0.0] * n
    for j, share in enumerate(shares):
        totals[j * n // m] += share
    return tuple(
        (j * n // m, j, rates[j * n // m] * share / totals[j * n // m])
        for j, share in enumerate(shares)
    )


def kinds(n: int, m: int) -> list[Kind]:
    """The possible kinds of a stream from n partitions to m; full is always possible."""
    found: list[Kind] = ["one-to-one"] if n == m else ["split" if n < m else "merge"]
    return [*found, "full"]


def _tree(random: Random, number: int, joins: float) -> list[int]:
    """The reader of each operator, 0 being the sink; -1 for the sink itself."""
    consumers, waiting = [-1], [0]
    while len(consumers) < number:
        reader = waiting.pop(random.randrange(len(waiting)))
        wanted = 2 if random.random() < joins and len(consumers) + 2 <= number else 1
        for _ in range(wanted):
            waiting.append(len(consumers))
            consumers.append(reader)
    return consumers


def _kind(random: Random, n: int, m: int, structure: Structure, *, into_sink: bool) -> Kind:
    if structure == "full":
        return "full"
    if structure == "structured" and not into_sink:
        return kinds(n, m)[0]
    return random.choice(kinds(n, m))


def _shares(random: Random, number: int, skew: float) -> list[float]:
    weights = [1 / (rank + 1) ** skew for rank in range(number)]
    random.shuffle(weights)
    total = sum(weights)
    return [weight / total for weight in weights]


def _received(streams: Sequence[Stream], name: str, parallelism: int) -> list[float]:
    got = [0.0] * parallelism
    for stream in streams:
        if stream.target == name:
            for _, j, rate in stream.substreams:
                got[j] += rate
    return got
