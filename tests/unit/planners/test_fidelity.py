"""Fidelity and MC-trees against the paper's figures, and against naively written definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from random import Random

import numpy as np
import pytest

from perseid.coordinator.planners.fidelity import fidelities, fidelity, losses
from perseid.coordinator.planners.graph import Input, Node, Stream
from perseid.coordinator.planners.mc_trees import TreeCount, count, counted, mc_trees, ways_meet
from perseid.coordinator.planners.random_topology import Drawn, draw
from perseid.coordinator.planners.topology import Topology
from perseid.errors import RefusedError

SMALL = Drawn(operators=(3, 6), parallelism=(1, 3), skew=0.7)


def naive_loss(
    topology: Topology, name: str, partition: int, failed: set[tuple[str, int]]
) -> Fraction:
    """Equations 1 to 3 by recursion, in exact arithmetic."""
    if (name, partition) in failed:
        return Fraction(1)
    inputs = []
    for stream in topology.inputs(name):
        parts = [(i, Fraction(rate)) for i, j, rate in stream.substreams if j == partition]
        if parts:
            rate = sum((r for _, r in parts), Fraction(0))
            lost = sum(
                (r * naive_loss(topology, stream.source, i, failed) for i, r in parts), Fraction(0)
            )
            inputs.append((rate, lost / rate))
    if not inputs:
        return Fraction(0)
    if topology.node(name).input == "correlated":
        kept = Fraction(1)
        for _, loss in inputs:
            kept *= 1 - loss
        return 1 - kept
    lost = sum((rate * loss for rate, loss in inputs), Fraction(0))
    return lost / sum((rate for rate, _ in inputs), Fraction(0))


def figure_1(kind: Input) -> Topology:
    """Four operators: O1 and O2 one to one into O3, O3 fully into O4 (PPA figure 1)."""
    pairs = tuple((i, i, 1.0) for i in range(4))
    full = tuple((i, j, 0.5) for i in range(4) for j in range(2))
    nodes = [
        Node("o1", 4), Node("o2", 4), Node("o3", 4, kind), Node("o4", 2, output_rates=(1.0, 1.0)),
    ]  # fmt: skip
    return Topology(
        nodes, [Stream("o1", "o3", pairs), Stream("o2", "o3", pairs), Stream("o3", "o4", full)]
    )


def figure_2(kind: Input) -> Topology:
    left, right = ((0, 0, 1.0), (1, 0, 2.0)), ((0, 0, 3.0), (1, 0, 2.0))
    return Topology(
        [Node("o1", 2), Node("o2", 2), Node("o3", 1, kind, (1.0,))],
        [Stream("o1", "o3", left), Stream("o2", "o3", right)],
    )


@pytest.mark.parametrize(("kind", "loss"), [("correlated", 2 / 5), ("independent", 1 / 4)])
def test_figure_2(kind: Input, loss: float) -> None:
    topology = figure_2(kind)
    failed = np.zeros(topology.partitions, dtype=bool)
    failed[topology.number("o2", 1)] = True
    assert losses(topology, failed)[topology.number("o3", 0)] == pytest.approx(loss, abs=1e-15)
    assert fidelity(topology, [("o2", 1)]) == pytest.approx(1 - loss, abs=1e-15)


@pytest.mark.parametrize(("kind", "trees", "size"), [("independent", 16, 3), ("correlated", 8, 4)])
def test_figure_1(kind: Input, trees: int, size: int) -> None:
    found = mc_trees(figure_1(kind))
    assert len(found) == count(figure_1(kind)) == trees
    assert {len(tree) for tree in found} == {size}
    names = [{figure_1(kind).name_of(i) for i in tree} for tree in found]
    expected = {("o1", 0), ("o3", 0), ("o4", 0)} | ({("o2", 0)} if kind == "correlated" else set())
    assert expected in names


@pytest.mark.parametrize("seed", range(40))
def test_losses_are_the_equations(seed: int) -> None:
    random = Random(seed)
    topology = draw(random, SMALL)
    numbers = range(topology.partitions)
    masks = np.array([[random.random() < 0.3 for _ in numbers] for _ in range(5)])
    found = losses(topology, masks)
    for row, mask in zip(found, masks, strict=True):
        failed = {topology.name_of(int(i)) for i in np.flatnonzero(mask)}
        for number in numbers:
            expected = naive_loss(topology, *topology.name_of(number), failed)
            assert row[number] == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_output_is_left_exactly_when_a_tree_lives(seed: int) -> None:
    random = Random(seed)
    topology = draw(random, SMALL)
    trees = mc_trees(topology)
    for _ in range(20):
        alive = {i for i in range(topology.partitions) if random.random() < 0.7}
        failed = np.array([i not in alive for i in range(topology.partitions)])
        assert (fidelities(topology, failed) > 0) == any(tree <= alive for tree in trees)


@pytest.mark.parametrize("seed", range(20))
def test_trees_are_the_minimal_sets_with_output(seed: int) -> None:
    """Against all subsets of partitions, by the definition."""
    topology = draw(Random(seed), Drawn(operators=(3, 4), parallelism=(1, 3)))
    n = topology.partitions
    if n > 10:
        topology = draw(Random(seed), Drawn(operators=(3, 3), parallelism=(1, 3)))
        n = topology.partitions
    minimal: list[set[int]] = []
    for size in range(1, n + 1):
        for some in combinations(range(n), size):
            failed = np.ones(n, dtype=bool)
            failed[list(some)] = False
            if fidelities(topology, failed) > 0 and not any(m <= set(some) for m in minimal):
                minimal.append(set(some))
    assert sorted(map(sorted, mc_trees(topology))) == sorted(map(sorted, minimal))


def test_a_diamond_has_no_tree_around_another() -> None:
    """`a` reaches `d` on two ways: the set with both of its partitions holds a smaller one."""
    full = tuple((i, 0, 1.0) for i in range(2))
    one = ((0, 0, 1.0),)
    topology = Topology(
        [Node("a", 2), Node("b", 1), Node("c", 1), Node("d", 1, "correlated", (1.0,))],
        [
            Stream("a", "b", full), Stream("a", "c", full),
            Stream("b", "d", one), Stream("c", "d", one),
        ],
    )  # fmt: skip
    trees = [{topology.name_of(i) for i in tree} for tree in mc_trees(topology)]
    rest = {("b", 0), ("c", 0), ("d", 0)}
    assert trees == [{("a", 0)} | rest, {("a", 1)} | rest]


def braided(random: Random) -> Topology:
    """Operators that read any two before them, so that ways part and may meet again."""
    sizes = [random.randint(1, 2) for _ in range(random.randint(3, 5))]
    streams = []
    for target in range(1, len(sizes)):
        for source in random.sample(range(target), min(target, random.randint(1, 2))):
            rows = tuple((i, j, 1.0) for i in range(sizes[source]) for j in range(sizes[target]))
            streams.append(Stream(f"o{source}", f"o{target}", rows))
    nodes = [
        Node(f"o{i}", size, random.choice(["independent", "correlated"]), (1.0,) * size)
        for i, size in enumerate(sizes)
    ]
    return Topology(nodes, streams)


def test_trees_are_counted_exactly_or_as_at_most() -> None:
    exact_without_list = overcounted = 0
    for seed in range(300):
        topology = braided(Random(seed))
        true = len(mc_trees(topology))
        assert counted(topology) == TreeCount(true, exact=True)
        guess = counted(topology, listed_max=0)
        assert guess.trees >= true
        assert guess.exact is not ways_meet(topology)
        if guess.exact:
            assert guess.trees == true
        exact_without_list += guess.exact
        overcounted += guess.trees > true
    assert exact_without_list > 50
    assert overcounted > 50


def test_a_number_that_no_line_holds_is_reported_by_its_size() -> None:
    """Python refuses to write out more than 4,300 digits."""
    assert str(TreeCount(10**9000, exact=True)) == "about 10^9000"
    assert str(TreeCount(16, exact=False)) == "at most 16"


def test_small_shares_are_kept() -> None:
    """Thirty joins, of whose inputs a thousandth lives: 1 less the loss would be 0."""
    depth, parallelism = 30, 1000
    full = tuple((i, 0, 1.0) for i in range(parallelism))
    nodes = [Node("j0", 1)]
    streams = []
    for level in range(1, depth + 1):
        nodes += [Node(f"s{level}", parallelism), Node(f"j{level}", 1, "correlated", (1.0,))]
        streams += [
            Stream(f"s{level}", f"j{level}", full),
            Stream(f"j{level - 1}", f"j{level}", ((0, 0, 1.0),)),
        ]
    topology = Topology(nodes, streams)
    failed = [(f"s{level}", i) for level, i in product(range(1, depth + 1), range(1, parallelism))]
    assert fidelity(topology, failed) == pytest.approx(1e-90, rel=1e-9)


def test_unknown_rates_count_the_same() -> None:
    nothing = ((0, 0, 0.0), (1, 0, 0.0))
    topology = Topology(
        [Node("a", 2), Node("b", 2), Node("c", 1, output_rates=(0.0,))],
        [Stream("a", "c", nothing), Stream("b", "c", nothing)],
    )
    assert fidelity(topology, [("a", 0)]) == pytest.approx(3 / 4)


def test_too_many_trees_are_refused_with_their_number() -> None:
    drawn = Drawn(operators=(9, 9), parallelism=(9, 9), structure="full", joins=0)
    topology = draw(Random(1), drawn)
    with pytest.raises(RefusedError, match=r"387420489 MC-trees.*structure-aware"):
        mc_trees(topology)
