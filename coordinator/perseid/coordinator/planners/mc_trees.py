"""Minimal complete trees: the smallest sets of partitions that contribute to the output.

PPA definition 1. A sink's partition needs one living partition of each input if it joins, else one
of any input; and so on up to the sources. The number of trees may be the product of all
parallelisms, so listing them has a limit. `count` needs no list, but if an operator reaches another
on two paths it also counts choices that contradict each other or contain a tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from math import log10

from perseid.coordinator.planners.topology import Topology
from perseid.errors import RefusedError

TREES_MAX = 100_000  # more take minutes and gigabytes, and no exact planner could use them

LISTED_MAX = 2000  # trees that are listed to count them: comparing them all takes half a second
_DIGITS_MAX = 30  # of a number that is printed in full

Tree = frozenset[int]  # numbers of partitions


@dataclass(frozen=True, slots=True)
class TreeCount:
    """How many trees there are; an upper limit unless `exact`."""

    trees: int
    exact: bool

    def __str__(self) -> str:
        large = self.trees >= 10**_DIGITS_MAX  # Python prints at most 4,300 digits
        number = f"about 10^{log10(self.trees):.0f}" if large else f"{self.trees}"
        return number if self.exact else f"at most {number}"


def mc_trees(topology: Topology, trees_max: int = TREES_MAX) -> list[Tree]:
    """All trees, smallest first. Raises RefusedError if there are more than `trees_max`.

    If an operator reaches another on two paths, sets that contain a smaller one are no trees.
    O(trees), and O(trees^2) if they differ in size.
    """
    number = TreeCount(count(topology), not ways_meet(topology))
    if number.trees > trees_max:
        raise RefusedError(
            f"the topology has {number} MC-trees, and {trees_max} can be listed: "
            "use an algorithm that needs no list, structure-aware"
        )
    below: list[set[Tree]] = [set() for _ in range(topology.partitions)]
    for partition, inputs in _inputs(topology):
        ways = product(*(chain.from_iterable(below[i] for i in one) for one in inputs))
        below[partition] = {frozenset((partition,)).union(*way) for way in ways}
    found = set().union(*(below[number] for number in _outputs(topology)))
    return _minimal(sorted(found, key=lambda tree: (len(tree), sorted(tree))))


def counted(topology: Topology, listed_max: int = LISTED_MAX) -> TreeCount:
    """The number of trees: from `count` if that is exact, else from the list if it is short.

    A diamond, of which only two of the four choices agree about the partition of `a`:

    >>> from perseid.coordinator.planners.graph import Node, Stream
    >>> two, one = ((0, 0, 1.0), (1, 0, 1.0)), ((0, 0, 1.0),)
    >>> ends = [("a", "b", two), ("a", "c", two), ("b", "d", one), ("c", "d", one)]
    >>> nodes = [Node("a", 2), Node("b", 1), Node("c", 1), Node("d", 1, "correlated", (1.0,))]
    >>> diamond = Topology(nodes, [Stream(*end) for end in ends])
    >>> count(diamond), str(counted(diamond)), str(counted(diamond, listed_max=3))
    (4, '2', 'at most 4')
    """
    number = count(topology)
    if not ways_meet(topology):
        return TreeCount(number, exact=True)
    if number <= listed_max:
        return TreeCount(len(mc_trees(topology, listed_max)), exact=True)
    return TreeCount(number, exact=False)


def ways_meet(topology: Topology) -> bool:
    """Whether an operator reaches a sink on two paths. O(sinks * streams)."""
    for sink in topology.sinks:
        seen, waiting = {sink.name}, [sink.name]
        while waiting:
            for stream in topology.inputs(waiting.pop()):
                if stream.source in seen:
                    return True
                seen.add(stream.source)
                waiting.append(stream.source)
    return False


def count(topology: Topology) -> int:
    """How many ways there are to choose a tree; O(substreams). Exact unless `ways_meet`.

    >>> from perseid.coordinator.planners.graph import Node, Stream
    >>> full = tuple((i, j, 1.0) for i in range(3) for j in range(2))
    >>> nodes = [Node("a", 3), Node("b", 2, output_rates=(1.0, 1.0))]
    >>> count(Topology(nodes, [Stream("a", "b", full)]))
    6
    """
    ways = [1] * topology.partitions
    for partition, inputs in _inputs(topology):
        ways[partition] = 1
        for one in inputs:
            ways[partition] *= sum(ways[i] for i in one)
    return sum(ways[number] for number in _outputs(topology))


def _inputs(topology: Topology) -> Iterator[tuple[int, list[list[int]]]]:
    """Each partition with its groups of inputs; it needs one of each group. Sources have none."""
    for node in topology.nodes:
        fed: list[list[list[int]]] = [[] for _ in range(node.parallelism)]
        for stream in topology.inputs(node.name):
            first = topology.slice(stream.source).start
            numbers: dict[int, list[int]] = defaultdict(list)
            for i, j, _ in stream.substreams:
                numbers[j].append(first + i)
            for target, some in numbers.items():
                fed[target].append(some)
        for partition, group in enumerate(fed, start=topology.slice(node.name).start):
            one = group if node.input == "correlated" or not group else [[*chain(*group)]]
            yield partition, one


def _outputs(topology: Topology) -> Iterator[int]:
    for node in topology.sinks:
        place = topology.slice(node.name)
        yield from range(place.start, place.stop)


def _minimal(trees: list[Tree]) -> list[Tree]:
    """The trees that contain no other one; `trees` are sorted by size."""
    sizes = {len(tree) for tree in trees}
    if len(sizes) < 2:
        return trees
    kept: list[Tree] = []
    for tree in trees:
        if not any(small < tree for small in kept if len(small) < len(tree)):
            kept.append(tree)
    return kept
