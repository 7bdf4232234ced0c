"""Recovery schedulers against all sets of partitions, and against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from random import Random
from statistics import mean

import numpy as np
import pytest

from benches.random_queries import DrawnQueries, draw_queries
from perseid.coordinator.planners import best_density as module
from perseid.coordinator.planners.best_density import best_density, seed_queries_of
from perseid.coordinator.planners.recovery import (
    Partition,
    Query,
    RecoveryPlan,
    RecoveryProblem,
    operator_centric,
    optimal,
)
from perseid.errors import BadInputError, RefusedError

Scheduler = Callable[[RecoveryProblem], RecoveryPlan]
P1, P2 = Partition("p1", 0.5), Partition("p2", 0.5, upstream=("p1",))
SEEDS = range(40)
Q1, Q2 = Query("q1", 3, ("p1", "p2")), Query("q2", 1, ("p1",))


def small_problem(random: Random) -> RecoveryProblem:
    queries = random.randint(1, 6)
    drawn = DrawnQueries(
        queries=queries, partitions=queries + random.randint(0, 4),
        share_max=random.randint(1, 4), free=random.uniform(0, 1.1),
    )  # fmt: skip
    return draw_queries(random, drawn)


def scattered_problem(random: Random) -> RecoveryProblem:
    """Queries of any partitions, as no topology would give them."""
    partitions = [Partition(f"p{i}", random.uniform(0.05, 1.0)) for i in range(8)]
    ids = [partition.id for partition in partitions]
    queries = [
        Query(f"q{i}", random.randint(1, 10), tuple(random.sample(ids, random.randint(1, 5))))
        for i in range(6)
    ]
    return RecoveryProblem(partitions, queries, ids, random.uniform(0, 5))


def brute_force(problem: RecoveryProblem) -> int:
    """The best sum of priorities over all sets of failed partitions that fit."""
    best = 0
    for size in range(len(problem.failed) + 1):
        for some in combinations(problem.failed, size):
            if sum(p.cost for p in some) <= problem.free + 1e-9:
                have = {p.id for p in some}
                done = [q for q in problem.queries if have.issuperset(q.partitions)]
                best = max(best, sum(q.priority for q in done))
    return best


def test_the_dynamic_programme_is_optimal() -> None:
    for seed in range(1000):
        draw = scattered_problem if seed % 2 else small_problem
        problem = draw(Random(seed))
        assert optimal(problem).priority == brute_force(problem), f"seed {seed}"


@pytest.mark.parametrize("scheduler", [optimal, best_density, operator_centric])
def test_a_plan_fits_and_recovers_what_it_claims(scheduler: Scheduler) -> None:
    for seed in range(200):
        problem = small_problem(Random(seed))
        plan = scheduler(problem)
        cost = {p.id: p.cost for p in problem.failed}
        assert sum(cost[p] for p in plan.recover) == pytest.approx(plan.cost)
        assert plan.cost <= problem.free + 1e-9
        have = set(plan.recover)
        done = [q for q in problem.queries if have.issuperset(q.partitions)]
        assert plan.queries == tuple(q.id for q in done)
        assert plan.priority == sum(q.priority for q in done)


@pytest.mark.parametrize("share_max", [3, 6])
@pytest.mark.parametrize("priority", ["random", "by cost"])
def test_best_density_is_close_to_the_optimum(share_max: int, priority: str) -> None:
    """97 % on average is what the issue asks; the baseline is far below (figure 15)."""
    density, baseline = [], []
    for seed in range(60):
        drawn = DrawnQueries(
            share_max=share_max, free=(0.3, 0.5, 0.7)[seed % 3],
            priority=priority,  # type: ignore[arg-type]
        )  # fmt: skip
        problem = draw_queries(Random(seed), drawn)
        assert len(problem.queries) == 18
        best = optimal(problem).priority
        density.append(best_density(problem).priority / best)
        baseline.append(operator_centric(problem).priority / best)
    assert mean(density) >= 0.99
    assert mean(baseline) < 0.7


def test_more_sharing_recovers_less() -> None:
    """What the paper sees in figure 15 a, with any scheduler."""
    for scheduler in (optimal, best_density, operator_centric):
        shares = []
        for share_max in (3, 6):
            problems = [draw_queries(Random(s), DrawnQueries(share_max=share_max)) for s in SEEDS]
            shares.append(mean(scheduler(p).priority / p.priorities.sum() for p in problems))
        assert shares[1] < shares[0]


def test_the_baseline_obeys_the_topology() -> None:
    """Nothing is recovered before what it reads, so it never has a part without its upstream."""
    reading = 0
    for seed in SEEDS:
        problem = draw_queries(Random(seed), DrawnQueries())
        have = set(operator_centric(problem).recover)
        upstream = {p.id: p.upstream for p in problem.failed}
        assert all(have.issuperset(upstream[one]) for one in have)
        reading += sum(bool(upstream[one]) for one in have)
    assert reading > 100


@pytest.mark.parametrize("skew", [0.2, 0.5])
def test_drawn_queries_share_as_they_are_drawn_to(skew: float) -> None:
    """How many share a partition follows Zipf, and who is upstream is shared by all of them."""
    drawn = DrawnQueries(share_max=6, skew=skew)
    counts: Counter[int] = Counter()
    for seed in SEEDS:
        problem = draw_queries(Random(seed), drawn)
        needing = {p.id: set(np.flatnonzero(column)) for p, column in zip(
            problem.failed, problem.members.T, strict=True)}  # fmt: skip
        for partition in problem.failed:
            assert all(needing[source] >= needing[partition.id] for source in partition.upstream)
        counts.update(len(some) for some in needing.values())
    counts[1] -= len(SEEDS) * drawn.queries  # the outputs
    chances = {share: share**-skew for share in range(1, 7)}
    for share, chance in chances.items():
        expected = chance / sum(chances.values())
        assert counts[share] / counts.total() == pytest.approx(expected, abs=0.03)


def test_more_queries_than_partitions_cannot_be_drawn() -> None:
    with pytest.raises(BadInputError, match="5 queries and 4 partitions are to be drawn"):
        DrawnQueries(queries=5, partitions=4)


def test_bounded_seeds_are_close_to_all_pairs() -> None:
    """99 % is what the issue asks; `bench planners` has the same on 1,000 cases."""
    ratios = []
    for seed in range(60):
        random = Random(seed)
        drawn = DrawnQueries(
            queries=random.randint(20, 60), partitions=150, share_max=random.choice([3, 6]),
            free=random.uniform(0.2, 0.8),
        )  # fmt: skip
        problem = draw_queries(random, drawn)
        bounded = best_density(problem, seed_queries=20)
        assert bounded.cost <= problem.free + 1e-9
        ratios.append(bounded.priority / best_density(problem).priority)
    assert mean(ratios) >= 0.995
    assert min(ratios) >= 0.94


def test_as_many_seeds_as_are_affordable_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between 60 queries, where all pairs are seeds, and hundreds, where 20 queries and pairs."""
    monkeypatch.setattr(module, "SEED_WORK", 25_000_000)
    chosen = []
    for seed in range(3):
        drawn = DrawnQueries(queries=75, partitions=400, free=0.3 + 0.2 * seed)
        problem = draw_queries(Random(seed), drawn)
        full = best_density(problem, seed_queries=len(problem.queries))
        assert best_density(problem).priority >= full.priority
        chosen.append(seed_queries_of(problem) / len(problem.queries))
    assert all(0.5 < share < 1 for share in chosen)


def test_an_exchange_finds_what_few_seeds_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [draw_queries(Random(s), DrawnQueries(queries=50, partitions=150)) for s in range(9)]
    found = [best_density(p, seed_queries=20).priority for p in problems]
    monkeypatch.setattr(module, "EXCHANGES_MAX", 0)
    without = [best_density(p, seed_queries=20).priority for p in problems]
    assert all(a >= b for a, b in zip(found, without, strict=True))
    assert sum(found) > sum(without)


def test_what_replicas_keep_costs_nothing() -> None:
    def problem(replicated: set[str], free: float) -> RecoveryProblem:
        return RecoveryProblem([P1, P2], [Q1, Q2], {"p1", "p2"}, free, replicated)

    for scheduler in (optimal, best_density, operator_centric):
        assert scheduler(problem(set(), 0.4)).queries == ()
        # All of q2's failed partitions have replicas, so it needs nothing.
        assert scheduler(problem({"p1"}, 0.4)) == RecoveryPlan((), ("q2",), 1, 0.0)
        assert scheduler(problem({"p1"}, 0.5)) == RecoveryPlan(("p2",), ("q1", "q2"), 4, 0.5)


def test_queries_that_did_not_fail_are_not_counted() -> None:
    problem = RecoveryProblem([P1, P2], [Q1, Q2], {"p2"}, 1.0)
    assert best_density(problem) == optimal(problem) == RecoveryPlan(("p2",), ("q1",), 3, 0.5)
    nothing = RecoveryProblem([P1, P2], [Q1, Q2], (), 1.0)
    assert best_density(nothing) == optimal(nothing) == RecoveryPlan((), (), 0, 0.0)


def test_the_baseline_takes_upstream_first() -> None:
    cheap_downstream = [Partition("a", 0.6), Partition("b", 0.1, upstream=("a",))]
    problem = RecoveryProblem(cheap_downstream, [Query("q", 1, ("a", "b"))], {"a", "b"}, 0.5)
    assert operator_centric(problem).recover == ()


@pytest.mark.parametrize(
    ("partitions", "queries", "failed", "free", "named"),
    [
        ([P1, P1], [], (), 1.0, "partition p1 is there twice"),
        ([Partition("p", -1.0)], [], (), 1.0, "partition p costs -1.0"),
        ([Partition("p", float("nan"))], [], (), 1.0, "partition p costs nan"),
        ([Partition("p", 1.0, ("x",))], [], (), 1.0, "partition p reads x, which is not there"),
        ([P1], [Q2, Q2], (), 1.0, "query q2 is there twice"),
        ([P1], [Query("q", -1, ("p1",))], (), 1.0, "query q has priority -1"),
        ([P1], [Query("q", 1, ())], (), 1.0, "query q has no partitions"),
        ([P1], [Q1], (), 1.0, "query q1 needs p2, which is not there"),
        ([P1], [Q2], ("x",), 1.0, "failed or replicated: x"),
        ([P1], [Q2], ("p1",), -0.5, "free is -0.5"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    partitions: list[Partition],
    queries: list[Query],
    failed: tuple[str, ...],
    free: float,
    named: str,
) -> None:
    with pytest.raises(BadInputError, match=named):
        RecoveryProblem(partitions, queries, failed, free)


def test_the_dynamic_programme_reports_when_there_is_too_much() -> None:
    with pytest.raises(RefusedError, match=r"30 failed queries.*use best-density"):
        optimal(draw_queries(Random(1), DrawnQueries(queries=30)))
