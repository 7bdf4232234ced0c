"""Recovery problems of topologies: queries against a search, jobs that share, what cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from perseid.coordinator.planners.graph import Node, Stream, TopologyError
from perseid.coordinator.planners.measured_rates import loads
from perseid.coordinator.planners.random_topology import Drawn, draw
from perseid.coordinator.planners.recovery import operator_centric, optimal
from perseid.coordinator.planners.recovery_problems import (
    parts,
    recovery_problem,
    shown,
    together,
)
from perseid.coordinator.planners.topology import Topology
from perseid.errors import BadInputError

LINES = Node("lines", 2)
READ = Stream("lines", "read", ((0, 0, 2.0), (1, 1, 1.0)))
BACK = Stream("counts", "lines", ((0, 0, 1.0),), feedback=True)
LOADS = {"lines": [0.4, 0.2], "read": [0.4, 0.2], "counts": [0.3]}


def job(*more: Stream, counts: str = "counts") -> Topology:
    """Two partitions that are read one by one, and counted together."""
    nodes = [LINES, Node("read", 2), Node(counts, 1, output_rates=(1.0,))]
    counted = Stream("read", counts, ((0, 0, 2.0), (1, 0, 1.0)))
    return Topology(nodes, [READ, counted, *more])


def searched(topology: Topology, output: tuple[str, int]) -> set[str]:
    """An output and all that can be reached against the streams, feedback too."""
    found, waiting = {output}, [output]
    while waiting:
        name, partition = waiting.pop()
        for stream in topology.streams:
            for i, j, _ in stream.substreams:
                if (stream.target, j) == (name, partition) and (stream.source, i) not in found:
                    found.add((stream.source, i))
                    waiting.append((stream.source, i))
    return {shown(*each) for each in found}


@pytest.mark.parametrize("structure", ["structured", "full", "mixed"])
def test_a_query_is_its_output_and_all_upstream(structure: str) -> None:
    for seed in range(20):
        drawn = Drawn(operators=(3, 7), parallelism=(1, 5), structure=structure)  # type: ignore[arg-type]
        topology = draw(Random(seed), drawn)
        partitions, queries = parts(topology, loads(topology))
        (sink,) = topology.sinks
        assert [q.id for q in queries] == [shown(sink.name, p) for p in range(sink.parallelism)]
        for number, query in enumerate(queries):
            assert set(query.partitions) == searched(topology, (sink.name, number))
            assert len(set(query.partitions)) == len(query.partitions)
        before: set[str] = set()
        for partition in partitions:  # upstream first
            assert before.issuperset(partition.upstream)
            before.add(partition.id)


def test_what_is_fed_back_is_needed_and_not_waited_for() -> None:
    """`lines[0]` cannot be exact without `counts`, which in turn reads it."""
    partitions, queries = parts(job(BACK), LOADS, {"read": 1})
    needs = {query.id: set(query.partitions) for query in queries}
    assert needs["read[0]"] == {p.id for p in partitions}
    assert needs["read[1]"] == {"lines[1]", "read[1]"}
    upstream = {p.id: p.upstream for p in partitions}
    assert upstream["lines[0]"] == () and upstream["counts[0]"] == ("read[0]", "read[1]")
    problem = recovery_problem(job(BACK), LOADS, [("lines", 0), ("counts", 0)], 0.7)
    assert operator_centric(problem).recover == ("lines[0]", "counts[0]")


def test_priorities_name_outputs_and_each_of_their_partitions() -> None:
    priorities: dict[str, int | Sequence[int]] = {"read": [3, 0], "counts": 5}
    _, queries = parts(job(), LOADS, priorities)
    assert {q.id: q.priority for q in queries} == {"read[0]": 3, "read[1]": 0, "counts[0]": 5}
    assert [q.id for q in parts(job(), LOADS)[1]] == ["counts[0]"]


def test_replicas_of_failed_partitions_cost_nothing() -> None:
    failed = [("lines", 0), ("read", 0)]
    problem = recovery_problem(job(), LOADS, failed, 0.4, {"read": 1}, [("lines", 0)])
    assert optimal(problem).queries == ("read[0]", "counts[0]")
    assert [p.id for p in problem.failed] == ["read[0]"]


def test_jobs_that_share_pay_for_what_they_share_once() -> None:
    jobs = {"a": job(), "b": job()}
    both = together(jobs, ["lines", "read"])
    costs = {"lines": [0.4, 0.2], "read": [0.4, 0.2], "a/counts": [0.3], "b/counts": [0.3]}
    assert both.partitions == 6
    everything = [both.name_of(i) for i in range(both.partitions)]
    plan = optimal(recovery_problem(both, costs, everything, 1.8))
    assert plan.queries == ("a/counts[0]", "b/counts[0]") and plan.cost == pytest.approx(1.8)
    apart = together(jobs)
    costs = {f"{name}/{operator}": load for name in jobs for operator, load in LOADS.items()}
    everything = [apart.name_of(i) for i in range(apart.partitions)]
    assert len(optimal(recovery_problem(apart, costs, everything, 1.8)).queries) == 1


def test_two_streams_between_two_operators_stay_two() -> None:
    twice = together({"a": job(replace(READ, substreams=((0, 1, 1.0),)))}, ["lines", "read"])
    assert [stream.name for stream in twice.streams].count("lines -> read") == 2


@pytest.mark.parametrize(
    ("jobs", "shared", "named"),
    [
        ({"a": job()}, ["x"], "shared operator x: none of a has it"),
        ({"a": job()}, ["read"], "shared operator read of job a reads lines, which is not shared"),
        (
            {"a": job(), "b": job(BACK, counts="counts")}, ["lines", "read", "counts"],
            "shared operator lines differs between jobs a and b",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_named(
    jobs: Mapping[str, Topology], shared: list[str], named: str
) -> None:
    with pytest.raises(TopologyError, match=named):
        together(jobs, shared)


@pytest.mark.parametrize(
    ("loads_", "priorities", "failed", "named"),
    [
        ({"lines": [0.1, 0.1]}, {}, [], "operator read has no loads"),
        ({**LOADS, "read": [0.1]}, {}, [], "operator read has 1 loads for 2 partitions"),
        ({**LOADS, "read": [0.1, -1.0]}, {}, [], r"read\[1\] has load -1.0: 0 or more cores"),
        ({**LOADS, "read": [float("nan"), 1]}, {}, [], r"read\[0\] has load nan"),
        ({**LOADS, "x": [0.1]}, {}, [], "no operator x"),
        (LOADS, {"x": 1}, [], "no operator x"),
        (LOADS, {"read": [1]}, [], "operator read has 1 priorities for 2 partitions"),
        (LOADS, {"read": [1, -1]}, [], r"query read\[1\] has priority -1"),
        (LOADS, {}, [("read", 2)], "operator read has partitions 0 to 1, not 2"),
    ],
)
def test_what_cannot_be_is_named(
    loads_: Mapping[str, Sequence[float]],
    priorities: Mapping[str, int | Sequence[int]],
    failed: list[tuple[str, int]],
    named: str,
) -> None:
    with pytest.raises(BadInputError, match=named):
        recovery_problem(job(), loads_, failed, 1.0, priorities)
