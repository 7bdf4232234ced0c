"""A job as the planners see it: operators of parallel partitions, and streams with measured rates.

The model of PPA section II. Partitions ("tasks" there) are numbered consecutively, operator by
operator in topological order, so that everything about them is an array. Creating a topology, and
each of its arrays, is O(partitions + substreams * log substreams): substreams are sorted once.

>>> from perseid.coordinator.planners.graph import Node, Stream
>>> topology = Topology(
...     [Node("src", 2), Node("sink", 1, output_rates=(5.0,))],
...     [Stream("src", "sink", ((0, 0, 3.0), (1, 0, 2.0)))],
... )
>>> topology.partitions, topology.name_of(1), topology.streams[0].kind
(3, ('src', 1), 'merge')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from perseid.coordinator.planners.flow import Flow, Rates, flow_of
from perseid.coordinator.planners.graph import (
    Node,
    Stream,
    TopologyError,
    check_ends,
    check_stream,
    checked_nodes,
    ordered,
)

Mask = npt.NDArray[np.bool_]  # (..., partitions)


class Topology:
    """Operators and streams, validated and immutable. TopologyError names what is wrong."""

    def __init__(self, nodes: Sequence[Node], streams: Sequence[Stream]) -> None:
        self._by_name = checked_nodes(nodes)
        for stream in streams:
            check_stream(stream, self._by_name)
        self.nodes = tuple(ordered(self._by_name, streams))
        self.streams = tuple(streams)
        check_ends(self.nodes, streams)
        self._first: dict[str, int] = {}
        self.partitions = 0
        for node in self.nodes:
            self._first[node.name] = self.partitions
            self.partitions += node.parallelism

    def node(self, name: str) -> Node:
        if name not in self._by_name:
            raise TopologyError(f"no operator {name}; there are {', '.join(self._by_name)}")
        return self._by_name[name]

    def slice(self, name: str) -> slice:
        """The numbers of an operator's partitions. TopologyError for an unknown operator."""
        parallelism = self.node(name).parallelism
        start = self._first[name]
        return slice(start, start + parallelism)

    def number(self, name: str, partition: int) -> int:
        """The number of a partition. TopologyError for an unknown one."""
        node = self.node(name)
        if partition not in range(node.parallelism):
            last = node.parallelism - 1
            raise TopologyError(f"operator {name} has partitions 0 to {last}, not {partition}")
        return self._first[name] + partition

    def mask(self, numbers: Iterable[int]) -> Mask:
        """A mask that is true for `numbers`. TopologyError for an unknown number."""
        found = np.zeros(self.partitions, dtype=bool)
        chosen = np.fromiter(numbers, dtype=np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < self.partitions:
            odd = chosen[(chosen < 0) | (chosen >= self.partitions)][0]
            raise TopologyError(f"there are {self.partitions} partitions, and no number {odd}")
        found[chosen] = True
        return found

    def name_of(self, number: int) -> tuple[str, int]:
        """Operator and partition of a number. TopologyError for an unknown number."""
        if not 0 <= number < self.partitions:
            raise TopologyError(f"there are {self.partitions} partitions, and no number {number}")
        return self._names[number]

    @cached_property
    def _names(self) -> list[tuple[str, int]]:
        return [(node.name, p) for node in self.nodes for p in range(node.parallelism)]

    def inputs(self, name: str) -> list[Stream]:
        """The streams that an operator reads, without feedback."""
        return self._inputs[self.node(name).name]

    @cached_property
    def _inputs(self) -> dict[str, list[Stream]]:
        found: dict[str, list[Stream]] = {node.name: [] for node in self.nodes}
        for stream in self.streams:
            if not stream.feedback:
                found[stream.target].append(stream)
        return found

    @cached_property
    def sources(self) -> list[Node]:
        return [node for node in self.nodes if not self.inputs(node.name)]

    @cached_property
    def sinks(self) -> list[Node]:
        """The operators whose output has no reader here: fidelity is that of their outputs."""
        read = {s.source for s in self.streams if not s.feedback}
        return [node for node in self.nodes if node.name not in read]

    @cached_property
    def output_weights(self) -> Rates:
        """A partition's share of all output: 0 for other operators than sinks, 1 in total."""
        rates = np.zeros(self.partitions)
        for node in self.sinks:
            rates[self.slice(node.name)] = node.output_rates
        if not rates.any():  # rates are unknown: each counts the same
            for node in self.sinks:
                rates[self.slice(node.name)] = 1.0
        return np.asarray(rates / rates.sum())

    @cached_property
    def flows(self) -> dict[str, list[Flow]]:
        """By operator, its inputs as matrices."""
        first = self._first
        return {
            node.name: [
                flow_of(s.substreams, first[s.source], first[s.target])
                for s in self.inputs(node.name)
            ]
            for node in self.nodes
        }

    @cached_property
    def shares(self) -> dict[str, list[Rates]]:
        """By operator and input: its share of all that each of the operator's partitions gets."""
        return {node.name: self._shares(node) for node in self.nodes}

    def _shares(self, node: Node) -> list[Rates]:
        flows, first = self.flows[node.name], self.slice(node.name).start
        rates = np.zeros((len(flows), node.parallelism))
        fed = np.zeros_like(rates)
        for rate, there, flow in zip(rates, fed, flows, strict=True):
            rate[flow.targets - first], there[flow.targets - first] = flow.rate, 1.0
        # Without any rate nothing is known, and each input counts the same.
        rates = np.where(rates.sum(axis=0) > 0, rates, fed)
        return list(rates / rates.sum(axis=0))
