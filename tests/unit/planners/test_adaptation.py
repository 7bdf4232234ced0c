"""A replication plan follows the rates, within its moves, and does not flutter."""

from __future__ import annotations

from random import Random

import pytest

from perseid.coordinator.planners.adaptation import adapt
from perseid.coordinator.planners.graph import Node, Stream
from perseid.coordinator.planners.random_topology import Drawn, draw
from perseid.coordinator.planners.replication import kept_by
from perseid.coordinator.planners.structure_aware import structure_aware
from perseid.coordinator.planners.topology import Topology
from perseid.errors import UsageError

SMALL = Drawn(operators=(4, 6), parallelism=(2, 4), skew=1.0)


def chains(*rates: float) -> Topology:
    """As many chains of a source and a sink partition."""
    n = len(rates)
    pairs = tuple((i, i, rate) for i, rate in enumerate(rates))
    return Topology([Node("a", n), Node("b", n, output_rates=rates)], [Stream("a", "b", pairs)])


def with_other_rates(topology: Topology, random: Random) -> Topology:
    """The same graph with every rate changed."""
    streams = []
    for s in topology.streams:
        others = tuple((i, j, rate * random.uniform(0.1, 3.0)) for i, j, rate in s.substreams)
        streams.append(Stream(s.source, s.target, others))
    return Topology(topology.nodes, streams)


def test_the_plan_moves_to_the_busier_chain() -> None:
    found = adapt(chains(1.0, 2.0, 7.0), [("a", 0), ("b", 0)], budget=2, moves=2)
    assert found.start == (("a", 2), ("b", 2))
    assert found.stop == (("a", 0), ("b", 0))
    assert found.plan.fidelity == pytest.approx(0.7)


def test_too_few_moves_for_a_chain_change_nothing() -> None:
    found = adapt(chains(1.0, 2.0, 7.0), [("a", 0), ("b", 0)], budget=2, moves=1)
    assert (found.start, found.stop) == ((), ())
    assert found.plan.replicate == (("a", 0), ("b", 0))


def test_one_move_is_enough_where_one_partition_is_shared() -> None:
    """Both partitions of the running tree are worth the same, and only the right one may go."""
    rows = ((0, 0, 0.5), (0, 1, 0.5), (1, 0, 9.0), (1, 1, 1.0))
    nodes = [Node("a", 2), Node("b", 2, output_rates=(9.5, 1.5))]
    found = adapt(Topology(nodes, [Stream("a", "b", rows)]), [("a", 1), ("b", 1)], 2, moves=1)
    assert (found.start, found.stop) == ((("b", 0),), (("b", 1),))


def test_a_small_gain_is_not_worth_a_move() -> None:
    running = [("a", 0), ("b", 0)]
    assert adapt(chains(0.99, 1.0), running, budget=2, moves=2).start == ()
    assert adapt(chains(0.90, 1.0), running, budget=2, moves=2).start != ()
    assert adapt(chains(0.99, 1.0), running, budget=2, moves=2, gain_min=0.0).start != ()


def test_free_room_is_used() -> None:
    found = adapt(chains(1.0, 2.0, 7.0), [("a", 2), ("b", 2)], budget=4, moves=9)
    assert (found.start, found.stop) == ((("a", 1), ("b", 1)), ())


def test_a_plan_above_its_budget_shrinks_to_the_best_part() -> None:
    running = [(name, i) for name in "ab" for i in range(3)]
    found = adapt(chains(1.0, 2.0, 7.0), running, budget=2, moves=0)
    assert found.plan.replicate == (("a", 2), ("b", 2))
    assert found.start == ()


@pytest.mark.parametrize("seed", range(25))
def test_moves_and_budget_are_kept_and_nothing_gets_worse(seed: int) -> None:
    random = Random(seed)
    before = draw(random, SMALL)
    now = with_other_rates(before, random)
    budget, moves = random.randint(1, before.partitions), random.randint(0, 6)
    running = structure_aware(before, budget).replicate
    found = adapt(now, running, budget, moves)
    assert len(found.start) <= moves
    assert len(found.plan.replicate) <= budget
    assert set(found.plan.replicate) == set(running) - set(found.stop) | set(found.start)
    (stayed,) = kept_by(now, [[now.number(*partition) for partition in running]])
    assert found.plan.fidelity >= stayed - 1e-12
    assert not found.start or found.plan.fidelity >= stayed + 0.02


@pytest.mark.parametrize("seed", range(10))
def test_with_moves_enough_it_is_nearly_a_new_plan(seed: int) -> None:
    random = Random(seed)
    before = draw(random, SMALL)
    now = with_other_rates(before, random)
    budget = before.partitions // 2
    found = adapt(now, structure_aware(before, budget).replicate, budget, moves=budget)
    assert found.plan.fidelity >= 0.9 * structure_aware(now, budget).fidelity - 0.02


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="moves is -1"):
        adapt(chains(1.0), [], budget=1, moves=-1)
    with pytest.raises(UsageError, match="a budget of 3"):
        adapt(chains(1.0), [], budget=3, moves=1)
