"""The recovery problem of a topology (incremental recovery, sections 2.2 and 2.3).

A query is an output partition with everything upstream of it, along its substreams. Feedback counts
too, because the output is exact only if the feedback is. A partition costs its load in cores, and
queries share partitions. Several jobs form one topology that has their shared operators once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perseid.coordinator.planners.graph import Node, Stream, TopologyError
from perseid.coordinator.planners.recovery import Partition, Query, RecoveryProblem
from perseid.coordinator.planners.topology import Topology

Name = tuple[str, int]  # operator and partition


def recovery_problem(
    topology: Topology,
    loads: Mapping[str, Sequence[float]],
    failed: Collection[Name],
    free: float,
    priorities: Mapping[str, int | Sequence[int]] | None = None,
    replicated: Collection[Name] = (),
) -> RecoveryProblem:
    """The problem with these `failed` and `replicated` partitions; see `parts` for the rest.

    `free`: the free cores.

    >>> topology = Topology(
    ...     [Node("src", 2), Node("sink", 2, output_rates=(5.0, 1.0))],
    ...     [Stream("src", "sink", ((0, 0, 5.0), (1, 1, 1.0)))],
    ... )
    >>> loads = {"src": [0.5, 0.1], "sink": [0.5, 0.1]}
    >>> found = recovery_problem(topology, loads, [("src", 0), ("sink", 1)], 1.0, {"sink": [1, 3]})
    >>> [(p.id, p.cost) for p in found.failed]
    [('src[0]', 0.5), ('sink[1]', 0.1)]
    >>> [(q.id, q.priority, q.partitions) for q in found.queries]
    [('sink[0]', 1, ('src[0]', 'sink[0]')), ('sink[1]', 3, ('src[1]', 'sink[1]'))]
    """
    partitions, queries = parts(topology, loads, priorities)
    gone, kept = (
        [partitions[topology.number(*name)].id for name in names] for names in (failed, replicated)
    )
    return RecoveryProblem(partitions, queries, gone, free, kept)


def parts(
    topology: Topology,
    loads: Mapping[str, Sequence[float]],
    priorities: Mapping[str, int | Sequence[int]] | None = None,
) -> tuple[list[Partition], list[Query]]:
    """All partitions, numbered as those of `topology`, and all queries, named after their outputs.

    `loads`: by operator, the cores that each partition takes. `priorities`: by output operator, of
    all its partitions or of each (1 by default). An operator that is named there is an output even
    if others read it; one without readers always is. TopologyError names an invalid value.
    O(substreams * partitions / 64), plus the total size of the queries.
    """
    given = dict(priorities or {})
    costs = [load for node in topology.nodes for load in _loads(node, loads)]
    for name in [*loads, *given]:
        topology.node(name)
    ids = [shown(*topology.name_of(number)) for number in range(topology.partitions)]
    read = _read(topology, feedback=False)
    partitions = [
        Partition(ids[i], costs[i], tuple(ids[source] for source in read[i]))
        for i in range(topology.partitions)
    ]
    needed = _needed(_read(topology, feedback=True))
    ends = {node.name for node in topology.sinks}
    queries = []
    for node in topology.nodes:
        if node.name not in ends and node.name not in given:
            continue
        for partition, priority in enumerate(_priorities(node, given.get(node.name, 1))):
            output = topology.number(node.name, partition)
            needs = tuple(ids[i] for i in _bits(needed[output]))
            queries.append(Query(ids[output], priority, needs))
    return partitions, queries


def together(jobs: Mapping[str, Topology], shared: Collection[str] = ()) -> Topology:
    """Several jobs as one topology: operators are named `job/operator`, shared ones as they are.

    A shared operator must be identical in all jobs that have it, with all that it reads;
    TopologyError names a difference. O(substreams).

    >>> def counted(by):
    ...     rows = Stream("lines", by, ((0, 0, 5.0),))
    ...     return Topology([Node("lines", 1), Node(by, 1, output_rates=(1.0,))], [rows])
    >>> both = together({"a": counted("words"), "b": counted("letters")}, shared=["lines"])
    >>> [node.name for node in both.nodes], [stream.name for stream in both.streams]
    (['lines', 'a/words', 'b/letters'], ['lines -> a/words', 'lines -> b/letters'])
    """
    first = _first(jobs, shared)
    nodes: dict[str, Node] = {}
    streams: list[Stream] = []
    for job, topology in jobs.items():
        called = {n.name: n.name if n.name in shared else f"{job}/{n.name}" for n in topology.nodes}
        for node in topology.nodes:
            nodes.setdefault(called[node.name], replace(node, name=called[node.name]))
        streams += [
            Stream(called[s.source], called[s.target], s.substreams, s.feedback)
            for s in topology.streams
            if first.get(s.target, job) == job  # otherwise it is added already
        ]
    return Topology(list(nodes.values()), streams)


def _first(jobs: Mapping[str, Topology], shared: Collection[str]) -> dict[str, str]:
    """By shared operator, the first job that has it; the others must agree with that."""
    first: dict[str, str] = {}
    for job, topology in jobs.items():
        for node in topology.nodes:
            if node.name not in shared:
                continue
            before = first.setdefault(node.name, job)
            if _what(job, topology, node.name, shared) != _what(
                before, jobs[before], node.name, shared
            ):
                raise TopologyError(
                    f"shared operator {node.name} differs between jobs {before} and {job}: "
                    "partitions, kind of input and substreams must be the same"
                )
    for name in shared:
        if name not in first:
            raise TopologyError(f"shared operator {name}: none of {', '.join(jobs)} has it")
    return first


def _what(job: str, topology: Topology, name: str, shared: Collection[str]) -> object:
    """What jobs that share an operator must agree on."""
    inputs = [stream for stream in topology.streams if stream.target == name]
    for stream in inputs:
        if stream.source not in shared:
            raise TopologyError(
                f"shared operator {name} of job {job} reads {stream.source}, which is not shared: "
                "name it too"
            )
    node = topology.node(name)
    reads = sorted((s.source, s.feedback, tuple(sorted(s.substreams))) for s in inputs)
    return node.parallelism, node.input, reads


def shown(operator: str, partition: int) -> str:
    """The name of a partition, or of the query whose output it is."""
    return f"{operator}[{partition}]"


def _loads(node: Node, loads: Mapping[str, Sequence[float]]) -> Sequence[float]:
    found = loads.get(node.name)
    if found is None:
        raise TopologyError(f"operator {node.name} has no loads: give the cores of each partition")
    if len(found) != node.parallelism:
        raise TopologyError(
            f"operator {node.name} has {len(found)} loads for {node.parallelism} partitions"
        )
    for partition, load in enumerate(found):
        if not (math.isfinite(load) and load >= 0):
            raise TopologyError(f"{shown(node.name, partition)} has load {load}: 0 or more cores")
    return found


def _priorities(node: Node, given: int | Sequence[int]) -> Sequence[int]:
    found = [given] * node.parallelism if isinstance(given, int) else given
    if len(found) != node.parallelism:
        raise TopologyError(
            f"operator {node.name} has {len(found)} priorities for {node.parallelism} partitions"
        )
    return found


def _read(topology: Topology, *, feedback: bool) -> list[list[int]]:
    """By partition, those whose substreams it reads, without duplicates."""
    found: list[set[int]] = [set() for _ in range(topology.partitions)]
    for stream in topology.streams:
        if stream.feedback and not feedback:
            continue
        source, target = (topology.slice(end).start for end in (stream.source, stream.target))
        for i, j, _ in stream.substreams:
            found[target + j].add(source + i)
    return [sorted(some) for some in found]


def _needed(read: Sequence[Sequence[int]]) -> list[int]:
    """By partition, itself and everything upstream of it, a bit each.

    Numbers rise along the streams, so one pass is enough except with feedback.
    """
    found = [1 << number for number in range(len(read))]
    loops = any(max(sources, default=-1) > number for number, sources in enumerate(read))
    while True:
        before = list(found)
        for number, sources in enumerate(read):
            for source in sources:
                found[number] |= found[source]
        if not loops or found == before:
            return found


def _bits(bits: int) -> list[int]:
    """The positions of the bits that are set, in order."""
    read = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(read, bitorder="little")).tolist()
    return found
