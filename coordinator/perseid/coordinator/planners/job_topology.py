"""The topology of a job: which parts of its job file hold partitions, and how their rows flow.

Sources and keyed operators hold partitions, and so do the writers of a source or stateless operator
that feeds a sink (`perseid.jobs.model.layout`). A stateless operator runs inside the tasks of its
input and is part of it. Everything between is shuffled by key: full streams. Dead letters are left
out, because they are no part of the output.

An operator with several inputs joins them, so its inputs are correlated, unless its class declares
a union (`perseid.jobs.operations.classes.unions`). A SQL operator has one input, and the library's
operators of two inputs are joins.

A job file has no rates. So keys are assumed to spread evenly, each source partition to give one
record/s, and an operator to emit what it receives, unless the caller has measured rates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from perseid.coordinator.planners.graph import Node, Stream, TopologyError
from perseid.coordinator.planners.random_topology import substreams
from perseid.coordinator.planners.topology import Topology
from perseid.jobs.model.layout import host, is_keyed, node_levels, writers
from perseid.jobs.model.spec import JobSpec, producer


def job_topology(
    spec: JobSpec,
    rates: Mapping[str, Sequence[float]] | None = None,
    unions: Collection[str] = (),
) -> Topology:
    """The topology of `spec`. TopologyError names an invalid rate. O(substreams).

    `rates`: by source or operator, the records/s that leave each of its partitions. Those of a
    source also give its topic's number of partitions, which is otherwise the job's parallelism.
    `unions`: operators that process each of their inputs separately.

    >>> from perseid.jobs.model.spec import JobSpec, OperatorSpec, SourceSpec
    >>> counts = OperatorSpec(inputs={"input": "lines"}, use="m:C", key=("word",), parallelism=1)
    >>> lines = {"lines": SourceSpec(topic="lines", format="text")}
    >>> job = JobSpec(
    ...     name="j", parallelism=2, sources=lines, operators={"counts": counts}, sinks={}
    ... )
    >>> [(n.name, n.parallelism, n.output_rates) for n in job_topology(job).nodes]
    [('lines', 2, (1.0, 1.0)), ('counts', 1, (2.0,))]
    """
    given = dict(rates or {})
    readers = _readers(spec)
    _check(given, spec, readers)
    for name in unions:
        if name not in spec.operators:
            raise TopologyError(f"union {name}: job {spec.name} has no operator of that name")
    nodes = [Node(n, len(r), output_rates=r) for n, r in _source_rates(spec, given).items()]
    made = {node.name: node for node in nodes}
    streams: list[Stream] = []
    for name, (parallelism, upstream) in readers.items():
        got = [0.0] * parallelism
        for source in upstream:
            rows = substreams("full", made[source].output_rates or (), [1.0] * parallelism)
            streams.append(Stream(source, name, rows))
            for _, target, rate in rows:
                got[target] += rate
        made[name] = Node(
            name,
            parallelism,
            "correlated" if len(upstream) > 1 and name not in unions else "independent",
            tuple(given.get(name, got)),
        )
    return Topology(list(made.values()), streams)


def feeding(spec: JobSpec) -> list[str]:
    """The operators of its topology that write to sinks, without duplicates."""
    ends = dict.fromkeys(producer(sink.input) for sink in spec.sinks.values())
    return [_writer(spec, name) for name in ends]


def _source_rates(
    spec: JobSpec, given: Mapping[str, Sequence[float]]
) -> dict[str, tuple[float, ...]]:
    return {name: tuple(given.get(name, [1.0] * spec.parallelism)) for name in spec.sources}


def _readers(spec: JobSpec) -> dict[str, tuple[int, list[str]]]:
    """Keyed operators and writers, upstream first: parallelism, and which tasks send them rows."""
    levels = node_levels(spec)
    keyed = sorted((n for n, o in spec.operators.items() if is_keyed(o)), key=levels.__getitem__)
    found: dict[str, tuple[int, list[str]]] = {}
    for name in keyed:
        operator = spec.operators[name]
        hosts = dict.fromkeys(host(spec, i) for i in operator.forward.values())
        found[name] = operator.parallelism, list(hosts)
    for name, parallelism in writers(spec).items():
        found[_writer(spec, name)] = parallelism, [host(spec, name)]
    return found


def _writer(spec: JobSpec, name: str) -> str:
    """A source and its writers are two operators here; a job's names contain no blank."""
    return f"{name} writer" if name in spec.sources else name


def _check(
    given: Mapping[str, Sequence[float]], spec: JobSpec, readers: Mapping[str, object]
) -> None:
    known = [*spec.sources, *readers]
    for name in given:
        if name in known:
            continue
        if name in spec.operators:
            inside = host(spec, name)
            raise TopologyError(
                f"rates of {name}: it runs inside {inside}, so give what leaves {inside}"
            )
        raise TopologyError(f"rates of {name}, which is not there; there are {', '.join(known)}")
