"""How the work of each decision grows: elementary operations counted at n, 2n and 4n, not timed.

An operation is a bytecode instruction of the planners' own files or, where the work is done on
whole arrays, a cell that they touch. The exponent over the size that a docstring names must not be
above the one that it states.
"""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from benches.branch_and_bound import branch_and_bound
from benches.random_queries import DrawnQueries, draw_queries
from perseid.coordinator.planners import (
    best_density,
    flow,
    recovery,
    replication,
)
from perseid.coordinator.planners.adaptation import adapt
from perseid.coordinator.planners.backups import Backups
from perseid.coordinator.planners.checkpoint_timing import (
    FirstMinimum,
    Stopping,
    oracle,
    played,
    profile,
)
from perseid.coordinator.planners.completion import Completion
from perseid.coordinator.planners.delta_stopping import DeltaStopping
from perseid.coordinator.planners.delta_stopping import played as delta_played
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.delta_timing import oracle as delta_oracle
from perseid.coordinator.planners.error_bounds import for_count_min, for_ripple_join
from perseid.coordinator.planners.failure_detector import Heartbeats, Hint, judge
from perseid.coordinator.planners.fidelity import fidelities
from perseid.coordinator.planners.graph import Node, Stream
from perseid.coordinator.planners.job_topology import job_topology
from perseid.coordinator.planners.live_timing import Timing
from perseid.coordinator.planners.mc_trees import count, mc_trees
from perseid.coordinator.planners.measured_rates import loads, measured
from perseid.coordinator.planners.mttf import mean_time_to_failure_s
from perseid.coordinator.planners.random_sizes import draw_changes, draw_sizes
from perseid.coordinator.planners.random_topology import Drawn, draw
from perseid.coordinator.planners.recovery_capacity import Worker, place
from perseid.coordinator.planners.recovery_problems import parts, together
from perseid.coordinator.planners.recovery_schedule import Recovery
from perseid.coordinator.planners.replica_placement import place_replicas
from perseid.coordinator.planners.state_sizes import Point, Sizes
from perseid.coordinator.planners.structure_aware import structure_aware
from perseid.coordinator.planners.thresholds import (
    Bounds,
    compensation,
    failures_that_count,
    thresholds,
)
from perseid.coordinator.planners.topology import Topology
from perseid.jobs.model.spec import JobSpec, OperatorSpec, SourceSpec
from perseid.topics.records import EpochDone, InputCheck, SourceRange, Token
from support import growth
from support.growth import case, exponent

TOLERANCE = 0.1  # what is constant or logarithmic bends an exponent
PLANNERS = Path(recovery.__file__).parent


def instructions(run: Callable[[], Any]) -> int:
    """Bytecode instructions that the planners' files execute."""
    return growth.instructions(run, PLANNERS)


def cells(run: Callable[[], Any]) -> int:
    """Cells of streams that are multiplied, once for each plan that is looked at together."""
    counted = 0

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def counted_method(self: Any, values: Any, **more: Any) -> Any:
            nonlocal counted
            counted += self.weight.size * max(1, math.prod(np.shape(values)[:-1]))
            return method(self, values, **more)

        return counted_method

    with pytest.MonkeyPatch.context() as patch:
        for form in (flow.Even, flow.Full, flow.Listed):
            for name in ("received", "sent", "best_source", "best_target"):
                patch.setattr(form, name, counting(getattr(form, name)))
        run()
    return counted


def looked_at(run: Callable[[], Any]) -> int:
    """Queries of all plans that BestDensity looks at, round by round."""
    counted = 0
    before = best_density.Growth._next

    def counting(self: Any, have: Any, left: Any, cost: Any, density: Any) -> Any:
        nonlocal counted
        counted += density.size
        return before(self, have, left, cost, density)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_density.Growth, "_next", counting)
        run()
    return counted


def plans(run: Callable[[], Any]) -> int:
    """Plans of queries that the dynamic programme keeps, query by query."""
    counted = 0
    before = np.append

    def counting(kept: Any, more: Any) -> Any:
        nonlocal counted
        counted += len(more)
        return before(kept, more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "append", counting)
        run()
    return counted


def topology_of(partitions: int, structure: str = "structured") -> Topology:
    """Eight operators with about as many partitions each."""
    wide = (partitions // 8, partitions // 8 + 2)
    drawn = Drawn(operators=(8, 8), parallelism=wide, structure=structure, skew=0.5)  # type: ignore[arg-type]
    return draw(Random(3), drawn)


def size_of(topology: Topology) -> int:
    return topology.partitions + sum(len(s.substreams) for s in topology.streams)


def chains(number: int) -> Topology:
    """So many trees of two partitions."""
    rates = tuple(float(i + 1) for i in range(number))
    pairs = tuple((i, i, rate) for i, rate in enumerate(rates))
    nodes = [Node("a", number), Node("b", number, output_rates=rates)]
    return Topology(nodes, [Stream("a", "b", pairs)])


def test_the_measure_itself() -> None:
    assert doctest.testmod(growth) == doctest.TestResults(failed=0, attempted=4)


@pytest.mark.parametrize("structure", ["structured", "full"])
def test_fidelity_and_completion_touch_each_substream_a_few_times(structure: str) -> None:
    topologies = [topology_of(n, structure) for n in (200, 400, 800)]
    nothing = [topology.mask(()) for topology in topologies]
    for decide in (fidelities, Completion):
        cases = [
            case(size_of(t), decide, t, mask) for t, mask in zip(topologies, nothing, strict=True)
        ]
        assert exponent(cases, cells) <= 1 + TOLERANCE


def test_structure_aware_is_linear_and_so_is_an_adaptation() -> None:
    """Above the sizes at which it tries several starts, and with more budget than rounds."""
    topologies = [topology_of(n) for n in (1200, 2400, 4800)]
    assert topologies[0].partitions > 1000
    plans = [structure_aware(t, t.partitions // 10).replicate for t in topologies]
    replan = [case(size_of(t), structure_aware, t, t.partitions // 10) for t in topologies]
    follow = [
        case(size_of(t), adapt, t, plan[4:], len(plan), moves=8)
        for t, plan in zip(topologies, plans, strict=True)
    ]
    assert exponent(replan, cells) <= 1 + TOLERANCE
    assert exponent(follow, cells) <= 1 + TOLERANCE


def test_greedy_evaluates_each_partition() -> None:
    topologies = [topology_of(n) for n in (100, 200, 400)]
    cases = [case(t.partitions * size_of(t), replication.greedy, t, 10) for t in topologies]
    assert exponent(cases, cells) <= 1 + TOLERANCE


def test_trees_are_counted_by_substream_and_listed_by_tree() -> None:
    topologies = [topology_of(n, "full") for n in (60, 120, 240)]
    counting = [case(size_of(t), count, t) for t in topologies]
    assert exponent(counting, instructions) <= 1 + TOLERANCE
    small = [chains(n) for n in (20, 40, 80)]
    listing = [case(count(t), mc_trees, t) for t in small]
    assert exponent(listing, instructions) <= 1 + TOLERANCE


def test_exact_planners_are_exponential_and_no_worse() -> None:
    small = [(n, chains(n)) for n in (4, 5, 6, 7)]
    trees = [case(n * 2.0**n, replication.optimal, t, n) for n, t in small]
    assert exponent(trees, instructions) <= 1 + TOLERANCE
    nodes = [case(4.0**n, branch_and_bound, t, n) for n, t in small]
    assert exponent(nodes, instructions) <= 1 + TOLERANCE
    queries = [case(2.0**n, recovery.optimal, failed(n, 24, free=1.0)) for n in (4, 8, 12)]
    assert 1 - TOLERANCE < exponent(queries, plans) <= 1 + TOLERANCE  # nothing can be left out


def failed(queries: int, partitions: int, free: float = 0.8) -> recovery.RecoveryProblem:
    drawn = DrawnQueries(queries=queries, partitions=partitions, free=free)
    return draw_queries(Random(2), drawn)


def test_best_density_is_of_the_fourth_power_and_with_bounded_seeds_of_the_second() -> None:
    small = [case(n, best_density.best_density, failed(n, 3 * n)) for n in (15, 30, 60)]
    assert 3 < exponent(small, looked_at) <= 4 + TOLERANCE
    large = [case(n, best_density.best_density, failed(n, 3 * n)) for n in (100, 200, 400)]
    assert exponent(large, looked_at) <= 2 + TOLERANCE


def test_the_baseline_is_quadratic() -> None:
    cases = [case(n, recovery.operator_centric, failed(n // 3, n)) for n in (60, 120, 240)]
    assert exponent(cases, instructions) <= 2 + TOLERANCE


def test_problems_are_made_by_substream_and_by_what_queries_need() -> None:
    cases, joining = [], []
    for n in (60, 120, 240):
        topology = topology_of(n, "full")
        costs = loads(topology)
        needs = sum(len(query.partitions) for query in parts(topology, costs)[1])
        cases.append(case(size_of(topology) + needs, parts, topology, costs))
        joining.append(case(2 * size_of(topology), together, {"a": topology, "b": topology}))
    assert exponent(cases, instructions) <= 1 + TOLERANCE
    assert exponent(joining, instructions) <= 1 + TOLERANCE


def test_a_window_is_measured_record_by_record() -> None:
    def window(n: int) -> tuple[dict[int, Token], list[EpochDone]]:
        """n epochs of two splits, a source partition each."""
        tokens, done = {}, []
        for epoch in range(1, n + 1):
            splits = tuple((SourceRange("a", "a", "t", p, epoch, epoch + 1),) for p in range(2))
            tokens[epoch] = Token(1, "u", epoch, epoch - 1, "r", 1, splits, epoch)
            checks = tuple(InputCheck(epoch, split, "a", 1, 0) for split in range(2))
            done.append(EpochDone("u", 1, "w", epoch, epoch, 2, 2, 5, {}, checks=checks))
        return tokens, done

    cases = [case(n, measured, *window(n)) for n in (100, 200, 400)]
    assert exponent(cases, instructions) <= 1 + TOLERANCE
    topologies = [topology_of(n, "full") for n in (200, 400, 800)]
    costing = [case(size_of(t), loads, t) for t in topologies]
    assert exponent(costing, instructions) <= 1 + TOLERANCE


def test_a_recovery_is_placed_partition_by_worker() -> None:
    cases = []
    for n in (8, 16, 32):
        costs = {f"p{i}": 0.1 for i in range(8 * n)}
        free = {f"w{i}": 1.0 for i in range(n)}
        cases.append(case(len(costs) * n, place, costs, free))
    assert exponent(cases, instructions) <= 1 + TOLERANCE


def test_a_whole_recovery_is_at_most_quadratic() -> None:
    """Each partition that is installed copies what was recovered before it."""

    def whole(n: int) -> None:
        problem = failed(n // 3, n)
        now = Recovery(frozenset(p.id for p in problem.failed))
        now = now.planned(problem.failed, problem.queries, [Worker("w", 2.0 * n)]).announced()
        for partition, worker in now.missing.items():
            now = now.installed(partition, worker)
        assert not now.failed

    cases = [case(n, whole, n) for n in (30, 60, 120)]
    assert exponent(cases, instructions) <= 2 + TOLERANCE


def test_checkpoint_timing_is_linear_in_what_happens() -> None:
    sizes = [draw_sizes(Random(1), "bcp", hours * 3600.0) for hours in (2, 4, 8)]
    learned = profile(sizes[0], 200.0)
    for decide in (
        profile,
        partial(played, policy=FirstMinimum(learned)),
        partial(played, policy=Stopping(learned)),
        oracle,
    ):
        cases = [case(len(s.times()), decide, s, 200.0) for s in sizes]
        assert exponent(cases, instructions) <= 1 + TOLERANCE


def test_thresholds_and_bounds_take_the_same_whatever_happened() -> None:
    bounds = Bounds(1e5, 10**6, 10**6)
    several = (10, 20, 40)
    for cases in (
        [case(n, thresholds, bounds, n) for n in several],
        [case(n, for_count_min, 0.1, 1e6 * n, 1500.0) for n in several],
        [case(n, for_ripple_join, 0.1, 10**6 * n, 10.0) for n in several],
    ):
        assert exponent(cases, instructions) <= TOLERANCE
    for window in ("hopping", "sliding"):
        past = [
            case(n, failures_that_count, [float(i) for i in range(n)], 400.0, window, 50.0)
            for n in (100, 200, 400)
        ]
        assert exponent(past, instructions) <= 1 + TOLERANCE
    added = [case(n, compensation, bounds, n, 1.0) for n in (50, 100, 200)]
    assert exponent(added, instructions) <= 1 + TOLERANCE


def written_cells(run: Callable[[], Any]) -> int:
    """Sizes of operators at times that a plan for checkpoints of changes looks up."""
    counted = 0
    before = Sizes.each

    def counting(self: Any, times: Any) -> Any:
        nonlocal counted
        counted += len(self.operators) * len(times)
        return before(self, times)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sizes, "each", counting)
        run()
    return counted


def changing(periods: int, bends: int, operators: int = 2) -> Changes:
    """Periods of 10 s with so many bends in each; no operator's size stays level."""
    random, number = Random(periods), periods * bends
    times = [10.0 * i / bends for i in range(number + 1)]
    names = [f"o{i}" for i in range(operators)]
    sizes = {n: [Point(t, random.uniform(0.0, 100.0)) for t in times] for n in names}
    changed = {n: [Point(t, 7.0 * t) for t in (0.0, times[-1])] for n in names}
    return Changes(Sizes(sizes), changed)


def test_the_oracle_of_changes_is_linear_in_periods_and_quadratic_in_their_bends() -> None:
    longer = [case(n, delta_oracle, changing(n, 8), 10.0) for n in (10, 20, 40)]
    denser = [case(n, delta_oracle, changing(6, n), 10.0) for n in (20, 40, 80)]
    for counter in (instructions, written_cells):
        assert exponent(longer, counter) <= 1 + TOLERANCE
    assert 1.5 < exponent(denser, written_cells) <= 2 + TOLERANCE
    assert exponent(denser, instructions) <= 1 + TOLERANCE


def test_a_policy_of_changes_learns_in_a_pass_and_decides_at_once() -> None:
    longer = [case(n, DeltaStopping, changing(n, 8), 10.0) for n in (10, 20, 40)]
    # With each operator there are more moments, and at each of them all operators are asked.
    wider = [case(n**2, DeltaStopping, changing(6, 8, n), 10.0) for n in (4, 8, 16)]
    for counter in (instructions, written_cells):
        assert exponent(longer, counter) <= 1 + TOLERANCE
        assert exponent(wider, counter) <= 1 + TOLERANCE
    learned = [(n, DeltaStopping(changing(n, 8), 10.0)) for n in (10, 20, 40)]
    decide = [case(n, policy.takes, 5.0, 7.0, 50.0) for n, policy in learned]
    assert exponent(decide, instructions) <= TOLERANCE
    whole = [case(n, delta_played, changing(n, 8), policy) for n, policy in learned]
    assert exponent(whole, instructions) <= 1 + TOLERANCE


def running(epochs: int, operators: int) -> Timing:
    """So many epochs of one period, and one before the next."""
    timing = Timing(period_s=epochs + 0.5, begin_s=0.0)
    for second in range(1, epochs + 1):
        timing = timing.seen(second, {f"o{i}": (second % 9, 1) for i in range(operators)})
    return timing.took(epochs)


def test_timing_as_it_goes_is_linear_in_operators_and_samples() -> None:
    """A period's first epoch learns from the samples; the others look at the newest three."""
    epochs, operators = (20, 40, 80), (4, 8, 16)
    older = [(n, running(n, 3)) for n in epochs]
    wider = [(n, {f"o{i}": (5, 1) for i in range(n)}, running(10, n)) for n in operators]
    three = {f"o{i}": (5, 1) for i in range(3)}
    for cases, most in (
        ([case(n, timing.seen, n + 0.2, three) for n, timing in older], 0),
        ([case(n, timing.seen, n + 1.0, three) for n, timing in older], 1),
        ([case(n, timing.seen, 10.2, sizes) for n, sizes, timing in wider], 1),
        ([case(n, timing.seen, 11.0, sizes) for n, sizes, timing in wider], 1),
        ([case(n, timing.due, n + 0.2) for n, timing in older], 0),
    ):
        assert exponent(cases, instructions) <= most + TOLERANCE


def job_of(parallelism: int) -> JobSpec:
    """A source, an operator that is read by key and another one after it."""
    chained = {
        name: OperatorSpec(inputs={"input": read}, use="m:C", key=("k",), parallelism=parallelism)
        for name, read in (("first", "lines"), ("second", "first"))
    }
    lines = {"lines": SourceSpec(topic="lines", format="text")}
    return JobSpec(name="j", parallelism=parallelism, sources=lines, operators=chained, sinks={})


def test_topologies_are_made_and_drawn_by_substream() -> None:
    jobs = [job_of(n) for n in (10, 20, 40)]
    made = [case(size_of(job_topology(job)), job_topology, job) for job in jobs]
    assert exponent(made, instructions) <= 1 + TOLERANCE
    sizes = (60, 120, 240)
    drawn = [case(size_of(topology_of(n, "full")), topology_of, n, "full") for n in sizes]
    assert exponent(drawn, instructions) <= 1 + TOLERANCE
    long = [case(n, Topology, *pipeline(n)) for n in (50, 100, 200)]
    assert exponent(long, instructions) <= 1 + TOLERANCE


def pipeline(operators: int) -> tuple[list[Node], list[Stream]]:
    nodes = [Node(f"o{i}", 2, output_rates=(1.0, 1.0)) for i in range(operators)]
    rows = ((0, 0, 1.0), (1, 1, 1.0))
    return nodes, [Stream(f"o{i}", f"o{i + 1}", rows) for i in range(operators - 1)]


def test_drawn_queries_take_at_most_the_square_of_their_partitions() -> None:
    queries = [case(n, failed, 6, n) for n in (100, 200, 400)]
    assert exponent(queries, instructions) <= 2 + TOLERANCE


def test_drawn_changes_take_what_they_hold() -> None:
    hours = [case(n, draw_changes, Random(1), "bcp", 3600.0 * n) for n in (1, 2, 4)]
    assert exponent(hours, instructions) <= 1 + TOLERANCE


def test_backups_take_the_same_whatever_happened() -> None:
    def some(epochs: int) -> Backups:
        backups = Backups(1e6, 1.0)
        for _ in range(epochs):
            backups = backups.applied(3.0).issued().applied(2.0).acknowledged()
        return backups

    aged = [(n, some(n)) for n in (9, 18, 36)]
    for steps in (
        [case(n, backups.applied, 1.0) for n, backups in aged],
        [case(n, backups.issued) for n, backups in aged],
        [case(n, backups.issued().acknowledged) for n, backups in aged],
    ):
        assert exponent(steps, instructions) <= TOLERANCE


def test_a_verdict_does_not_take_longer_with_age() -> None:
    cases = []
    for n in (200, 400, 800):
        beats = Heartbeats(0.0)
        for i in range(n):
            beats = beats.then(i + 1.0)
        cases.append(case(n, judge, beats, Hint.UNKNOWN, n + 0.5))
    assert exponent(cases, instructions) <= TOLERANCE


def test_replicas_are_placed_and_their_mttf_known_in_one_pass() -> None:
    placing, lasting = [], []
    for n in (10, 20, 40):
        domains = {f"w{i:03}": f"r{i % 4}" for i in range(n)}
        primaries = {("a", i): f"w{i % n:03}" for i in range(n * n)}
        placing.append(case(n**2 + len(primaries), place_replicas, primaries, primaries, domains))
        replicas = place_replicas(primaries, primaries, domains)
        lasting.append(case(len(primaries), mean_time_to_failure_s, primaries, replicas, 1e6, 10.0))
    assert exponent(placing, instructions) <= 1 + TOLERANCE
    assert exponent(lasting, instructions) <= 1 + TOLERANCE
