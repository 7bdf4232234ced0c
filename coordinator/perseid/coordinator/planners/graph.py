"""The parts of a topology and their validation: operators and their streams (PPA section II).

>>> Stream("a", "b", ((0, 0, 1.0), (1, 0, 2.0))).kind
'merge'

Each check is O(operators + partitions * inputs + substreams).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from perseid.coordinator.planners import checks
from perseid.errors import BadInputError

Kind = Literal["one-to-one", "split", "merge", "full"]
Input = Literal["independent", "correlated"]
Substream = tuple[int, int, float]  # from partition, to partition, records a second

RATE_MAX = 1e18  # records/s of one partition: sums stay finite, and no job comes near
PARTITIONS_MAX = 1_000_000  # of a topology: every plan has a bit for each


class TopologyError(BadInputError):
    """An invalid topology; the message names the operator, stream or substream."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. `correlated` joins its inputs; `independent` processes each separately."""

    name: str
    parallelism: int
    input: Input = "independent"
    output_rates: tuple[float, ...] | None = None  # records/s by partition; for sinks


@dataclass(frozen=True)
class Stream:
    """What `target` gets from `source`. A feedback stream carries no loss and may close a cycle."""

    source: str
    target: str
    substreams: tuple[Substream, ...]
    feedback: bool = False

    @property
    def name(self) -> str:
        return f"{self.source} -> {self.target}"

    @cached_property
    def kind(self) -> Kind:
        """PPA section II-A; `full` is every pair, and any pattern that is none of the others."""
        outs = max(Counter(i for i, _, _ in self.substreams).values())
        ins = max(Counter(j for _, j, _ in self.substreams).values())
        if outs == ins == 1:
            return "one-to-one"
        if ins == 1:
            return "split"
        return "merge" if outs == 1 else "full"


def checked_nodes(nodes: Sequence[Node]) -> dict[str, Node]:
    if not nodes:
        raise TopologyError("a topology without operators: name at least one")
    by_name: dict[str, Node] = {}
    for node in nodes:
        if node.name in by_name:
            raise TopologyError(f"operator {node.name} is there twice: names must differ")
        if not (isinstance(node.parallelism, int) and node.parallelism > 0):
            raise TopologyError(f"operator {node.name}: parallelism {node.parallelism}, not > 0")
        if node.input not in ("independent", "correlated"):
            raise TopologyError(
                f"operator {node.name} has input {node.input!r}: independent or correlated"
            )
        _check_rates(node)
        by_name[node.name] = node
    partitions = sum(node.parallelism for node in nodes)
    if partitions > PARTITIONS_MAX:
        raise TopologyError(
            f"the operators have {checks.shown(partitions)} partitions together: at most "
            f"{PARTITIONS_MAX}"
        )
    return by_name


def _check_rates(node: Node) -> None:
    rates = node.output_rates
    if rates is None:
        return
    if len(rates) != node.parallelism:
        raise TopologyError(
            f"operator {node.name} has {len(rates)} output rates for {node.parallelism} partitions"
        )
    for partition, rate in enumerate(rates):
        if not _is_rate(rate):
            raise TopologyError(
                f"{node.name}[{partition}] has output rate {checks.shown(rate)}: 0 to "
                f"{RATE_MAX:g} records/s"
            )


def _is_rate(rate: float) -> bool:
    return 0 <= rate <= RATE_MAX


def check_stream(stream: Stream, nodes: dict[str, Node]) -> None:
    for end in (stream.source, stream.target):
        if end not in nodes:
            raise TopologyError(f"stream {stream.name}: there is no operator {end}")
    if not stream.substreams:
        raise TopologyError(f"stream {stream.name} has no substreams: at least one")
    seen = set()
    limits = nodes[stream.source].parallelism, nodes[stream.target].parallelism
    for i, j, rate in stream.substreams:
        place = f"stream {stream.name}, substream [{i}, {j}, {rate}]"
        if not (0 <= i < limits[0] and 0 <= j < limits[1]):
            raise TopologyError(f"{place}: there are {limits[0]} and {limits[1]} partitions")
        if not _is_rate(rate):
            raise TopologyError(f"{place}: the rate must be 0 to {RATE_MAX:g} records/s")
        if (i, j) in seen:
            raise TopologyError(f"{place} is there twice")
        seen.add((i, j))


def ordered(nodes: dict[str, Node], streams: Sequence[Stream]) -> list[Node]:
    """In topological order; ties keep the caller's order."""
    upstream: dict[str, set[str]] = {name: set() for name in nodes}
    for stream in streams:
        if not stream.feedback:
            upstream[stream.target].add(stream.source)
    sorter = TopologicalSorter(upstream)
    try:
        return [nodes[name] for name in sorter.static_order()]
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise TopologyError(
            f"operators form a cycle: {cycle}; mark one of its streams as feedback"
        ) from error


def check_ends(nodes: Sequence[Node], streams: Sequence[Stream]) -> None:
    """Sinks need rates; a join's partition needs all its inputs, any other at least one."""
    plain = [s for s in streams if not s.feedback]
    read = {s.source for s in plain}
    inputs: dict[str, list[set[int]]] = {node.name: [] for node in nodes}
    for stream in plain:
        inputs[stream.target].append({j for _, j, _ in stream.substreams})
    for node in nodes:
        if node.output_rates is None and node.name not in read:
            raise TopologyError(
                f"operator {node.name} has no consumers: give its output_rates, one a partition"
            )
        for partition in range(node.parallelism):
            got = [partition in targets for targets in inputs[node.name]]
            lacking = not all(got) if node.input == "correlated" else bool(got) and not any(got)
            if lacking:
                raise TopologyError(
                    f"{node.name}[{partition}] lacks an input: no substream goes to it"
                    + (" from each of the joined operators" if node.input == "correlated" else "")
                )
