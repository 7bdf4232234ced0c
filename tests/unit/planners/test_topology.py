"""What a topology must be, and that each error names the element."""

from __future__ import annotations

from random import Random

import pytest

from perseid.coordinator.planners.graph import Node, Stream, TopologyError
from perseid.coordinator.planners.random_topology import Drawn, draw, kinds, substreams
from perseid.coordinator.planners.topology import Topology

SRC = Node("src", 2)
SINK = Node("sink", 1, output_rates=(5.0,))
BOTH = ((0, 0, 3.0), (1, 0, 2.0))


@pytest.mark.parametrize(
    ("nodes", "streams", "named"),
    [
        ([], [], "without operators"),
        ([SINK, SINK], [], "operator sink is there twice"),
        ([Node("a", 0, output_rates=())], [], "operator a: parallelism 0"),
        ([Node("a", 1, "join", (1.0,))], [], "operator a has input 'join'"),  # type: ignore[arg-type]
        ([Node("a", 2, output_rates=(1.0,))], [], "operator a has 1 output rates for 2 partitions"),
        ([Node("a", 1, output_rates=(-1.0,))], [], r"a\[0\] has output rate -1.0"),
        ([Node("a", 1, output_rates=(float("nan"),))], [], r"a\[0\] has output rate nan"),
        ([SRC], [], "operator src has no consumers: give its output_rates"),
        ([SRC, SINK], [Stream("src", "to", BOTH)], "src -> to: there is no operator to"),
        ([SRC, SINK], [Stream("src", "sink", ())], "src -> sink has no substreams"),
        ([SRC, SINK], [Stream("src", "sink", ((2, 0, 1.0),))], r"\[2, 0, 1.0\]: there are 2 and 1"),
        ([SRC, SINK], [Stream("src", "sink", ((0, 0, -1.0),))], r"0, -1.0\]: the rate must be"),
        (
            [SRC, SINK],
            [Stream("src", "sink", ((0, 0, float("inf")),))],
            r"\[0, 0, inf\]: the rate must be",
        ),
        ([SRC, SINK], [Stream("src", "sink", (*BOTH, (0, 0, 1.0)))], r"0, 1.0\] is there twice"),
        (
            [SRC, Node("sink", 2, output_rates=(1.0, 1.0))],
            [Stream("src", "sink", BOTH)],
            r"sink\[1\] lacks an input",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    nodes: list[Node], streams: list[Stream], named: str
) -> None:
    with pytest.raises(TopologyError, match=named):
        Topology(nodes, streams)


def test_a_join_needs_each_of_its_inputs() -> None:
    join = Node("sink", 2, "correlated", (1.0, 1.0))
    streams = [
        Stream("src", "sink", ((0, 0, 1.0), (1, 1, 1.0))), Stream("b", "sink", ((0, 0, 1.0),)),
    ]  # fmt: skip
    with pytest.raises(TopologyError, match=r"sink\[1\] lacks an input.*each of the joined"):
        Topology([SRC, Node("b", 1), join], streams)


def test_a_cycle_is_named_and_feedback_breaks_it() -> None:
    back = ((0, 0, 1.0),)
    nodes = [SRC, Node("a", 1), Node("b", 1), SINK]
    streams = [
        Stream("src", "a", BOTH), Stream("a", "b", back), Stream("b", "sink", back),
    ]  # fmt: skip
    with pytest.raises(TopologyError, match=r"cycle: (a -> b -> a|b -> a -> b); mark one"):
        Topology(nodes, [*streams, Stream("b", "a", back)])
    topology = Topology(nodes, [*streams, Stream("b", "a", back, feedback=True)])
    assert [node.name for node in topology.nodes] == ["src", "a", "b", "sink"]


def test_operators_are_in_topological_order_and_partitions_numbered_through() -> None:
    topology = Topology([SINK, SRC], [Stream("src", "sink", BOTH)])
    assert [topology.name_of(i) for i in range(3)] == [("src", 0), ("src", 1), ("sink", 0)]
    assert topology.number("sink", 0) == 2
    assert topology.output_weights.tolist() == [0, 0, 1]
    with pytest.raises(TopologyError, match="partitions 0 to 1, not 2"):
        topology.number("src", 2)
    with pytest.raises(TopologyError, match="no operator x; there are sink, src"):
        topology.number("x", 0)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_streams_have_the_kinds_that_were_asked_for(seed: int) -> None:
    random = Random(seed)
    n, m = random.randint(1, 9), random.randint(1, 9)
    rates, shares = [random.random() for _ in range(n)], [1 / m] * m
    for kind in kinds(n, m):
        found = substreams(kind, rates, shares)
        assert sum(rate for _, _, rate in found) == pytest.approx(sum(rates))
        assert {i for i, _, _ in found} == set(range(n))
        assert {j for _, j, _ in found} == set(range(m))
        if min(n, m) > 1:
            assert Stream("a", "b", found).kind == kind
    wrong = {"one-to-one", "split", "merge"} - set(kinds(n, m))
    with pytest.raises(TopologyError, match=f"{n} partitions to {m} is no"):
        substreams(wrong.pop(), rates, shares)  # type: ignore[arg-type]


@pytest.mark.parametrize("structure", ["structured", "full", "mixed"])
def test_drawn_topologies_are_what_was_asked_for(structure: str) -> None:
    for seed in range(50):
        drawn = Drawn(structure=structure, joins=0.5)  # type: ignore[arg-type]
        topology = draw(Random(seed), drawn)
        assert 5 <= len(topology.nodes) <= 10
        assert all(1 <= node.parallelism <= 10 for node in topology.nodes)
        last = topology.sinks[0].name
        for stream in topology.streams:
            full = len(stream.substreams) == (
                topology.node(stream.source).parallelism * topology.node(stream.target).parallelism
            )
            assert full or structure != "full"
            if structure == "structured" and stream.target != last:
                assert len(stream.substreams) == max(
                    topology.node(stream.source).parallelism,
                    topology.node(stream.target).parallelism,
                )
