"""Topologies of jobs: the operators are those of the layout, and rates spread as they are given."""

from __future__ import annotations

import pytest

from perseid.coordinator.planners.fidelity import losses
from perseid.coordinator.planners.graph import TopologyError
from perseid.coordinator.planners.job_topology import job_topology
from perseid.coordinator.planners.topology import Topology
from perseid.jobs.model import layout
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.repository.job_folders import example
from perseid.jobs.validation import parse

CHAIN = """
name: chain
parallelism: 3
sources:
  a: {topic: a, format: text}
  b: {topic: b, format: text}
operators:
  upper: {input: a, sql: "SELECT upper(value) AS value FROM input"}
  kept: {input: upper, sql: "SELECT value FROM input WHERE value > ''"}
  both: {inputs: {left: kept, right: b, raw: a}, key: value, use: "m:Both", parallelism: 2}
  after: {input: both, sql: "SELECT value FROM input"}
sinks:
  after: {input: after, topic: after, format: text}
  raw: {input: b, topic: raw, format: text}
"""


@pytest.fixture
def chain() -> JobSpec:
    return parse.loads(CHAIN)


def names(topology: Topology) -> set[tuple[str, int]]:
    return {topology.name_of(i) for i in range(topology.partitions)}


@pytest.mark.parametrize("name", ["wordcount", "pageviews", "enrich", "grep", "starter", "tmi"])
def test_partitions_are_those_of_the_layout(name: str) -> None:
    spec = parse.load(example(name))
    tasks = {(t.operator, t.partition) for t in layout.build(spec, 1).tasks}
    sources = {(s, p) for s in spec.sources for p in range(spec.parallelism)}
    assert names(job_topology(spec)) == (tasks | sources) - {(layout.DEAD_LETTERS, 0)}


def test_stateless_operators_are_part_of_what_they_read(chain: JobSpec) -> None:
    found = job_topology(chain)
    assert {s.name: s.kind for s in found.streams} == {
        "a -> both": "full", "b -> both": "full", "both -> after": "full", "b -> b writer": "full",
    }  # fmt: skip
    assert [found.node(n).parallelism for n in ("a", "both", "after", "b writer")] == [3, 2, 3, 3]
    assert (found.node("both").input, found.node("after").input) == ("correlated", "independent")
    assert {n.name for n in found.sinks} == {"after", "b writer"}


def test_keys_spread_evenly_and_operators_pass_on_what_they_get(chain: JobSpec) -> None:
    found = job_topology(chain)
    assert {rate for s in found.streams if s.source == "a" for _, _, rate in s.substreams} == {0.5}
    assert found.node("both").output_rates == (3.0, 3.0)  # of two sources with 3 records/s each
    assert found.node("after").output_rates == pytest.approx((2.0, 2.0, 2.0))


def test_measured_rates_give_how_much_and_how_many(chain: JobSpec) -> None:
    found = job_topology(chain, {"a": [100.0, 300.0], "both": [5.0, 15.0]})
    assert found.node("a").parallelism == 2
    (to_both,) = [s for s in found.streams if s.name == "a -> both"]
    assert to_both.substreams == ((0, 0, 50.0), (0, 1, 50.0), (1, 0, 150.0), (1, 1, 150.0))
    assert sum(found.node("after").output_rates or ()) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ({"kept": [1.0]}, "rates of kept: it runs inside a, so give what leaves a"),
        ({"c": [1.0]}, "rates of c, which is not there; there are a, b, both, after, b writer"),
        ({"both": [1.0]}, "operator both has 1 output rates for 2 partitions"),
        ({"a": []}, "operator a: parallelism 0, not > 0"),
        ({"a": [1.0, -2.0]}, r"a\[1\] has output rate -2.0"),
        ({"a": [float("nan")]}, r"a\[0\] has output rate nan"),
    ],
)
def test_rates_that_cannot_be_are_named(
    chain: JobSpec, rates: dict[str, list[float]], named: str
) -> None:
    with pytest.raises(TopologyError, match=named):
        job_topology(chain, rates)


def test_a_union_keeps_what_its_other_inputs_bring(chain: JobSpec) -> None:
    """Of source b, 3 of the 6 records/s into `both`, a third fails."""
    kept = []
    for unions in ((), ("both",)):
        found = job_topology(chain, unions=unions)
        failed = found.mask([found.number("b", 0)])
        kept.append(losses(found, failed)[found.slice("both")].tolist())
    assert kept == [[pytest.approx(1 / 3)] * 2, [pytest.approx(1 / 6)] * 2]


def test_a_union_that_is_not_there_is_named(chain: JobSpec) -> None:
    with pytest.raises(TopologyError, match="union c: job chain has no operator of that name"):
        job_topology(chain, unions=("c",))
