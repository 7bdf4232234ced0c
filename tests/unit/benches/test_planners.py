"""`bench planners`: all experiments are there, their values can be, and a seed repeats them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import mean

import numpy as np
import pytest

from benches import planner_scale, planners
from benches.planners import Settings
from perseid.coordinator.planners.random_topology import Drawn, draw
from perseid.coordinator.planners.replication import greedy
from perseid.coordinator.planners.structure_aware import structure_aware
from perseid.coordinator.planners.topology import Topology

WIDE_FULL = Drawn(structure="full", parallelism=(10, 20))


def test_every_experiment_has_rows_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planners, "SHARES", (0.5,))
    monkeypatch.setattr(planner_scale, "CASES", 1)
    some = {name: planner_scale.LIMITS[name] for name in ("60-queries", "structured")}
    monkeypatch.setattr(planner_scale, "LIMITS", some)
    rows = planners.run(Settings(cases=1, seed=5))
    assert {row["figure"] for row in rows} >= {
        "13", "14a", "14b", "14c", "14d", "of the optimum", "15a", "15b", "15c",
        "bounded seeds", "checkpoint size", "checkpoint delta", "scale",
    }  # fmt: skip
    for row in rows:
        if row["figure"] == "scale":
            assert 0 < row["seconds"] < row["limit_s"] <= 10
            assert 1 < row["memory_mb"] < 200
        elif row["figure"].startswith("checkpoint"):
            assert row["value"] >= 1  # no policy beats the oracle
        elif row["figure"] == "bounded seeds":
            assert 0.9 <= row["worst"] <= row["value"]  # the exchange can beat all pairs
        else:
            assert 0 <= row["value"] <= 1 + 1e-9


def test_joins_lower_the_fidelity_of_the_same_topologies() -> None:
    """What PPA sees in figure 14d, with everything replicated but a fifth."""
    kept = []
    for correlated in (True, False):
        drawn = Drawn(parallelism=(1, 5), correlated=correlated)
        topologies = [draw(Random(seed), drawn) for seed in range(10)]
        plans = [structure_aware(t, round(0.8 * t.partitions)) for t in topologies]
        kept.append(mean(plan.fidelity for plan in plans))
    assert kept[0] < kept[1]


def test_the_papers_queries() -> None:
    """On both the optimum is close, and greedy is nowhere above it (figure 13)."""
    rows = list(planners._figure_13(Settings()))
    assert rows == list(planners._figure_13(Settings()))
    kept = {(row["setting"], row["x"], row["system"]): row["value"] for row in rows}
    for query in ("Q1", "Q2"):
        for share in planners.SHARES:
            best = kept[query, share, "dp"]
            assert 0.95 * best <= kept[query, share, "structure-aware"] <= best + 1e-9
            assert kept[query, share, "greedy"] <= best + 1e-9


def test_the_papers_order_of_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    """18 queries as in figure 15: BestDensity at the optimum, operator by operator far below."""
    monkeypatch.setattr(planners, "SHARES", (0.4, 0.8))
    rows = list(planners._figure_15(Settings(cases=10)))
    kept = {(row["setting"], row["x"], row["system"]): row["value"] for row in rows}
    for (setting, share, system), value in kept.items():
        if system == "best-density":
            assert value >= 0.97
            assert kept[setting, share, "oc"] < 0.9 * value
    assert kept["shared by 6", 0.4, "oc"] < kept["shared by 3", 0.4, "oc"]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", planners.FIGURE_14, ids=" ".join)
def test_structure_aware_is_never_below_greedy(name: tuple[str, str]) -> None:
    """Case by case, not on average: 2 % are allowed. With more budget greedy comes close."""
    topologies = [draw(Random(seed), planners.FIGURE_14[name]) for seed in range(3)]
    for share in (0.4, 0.8):
        budgets = [round(share * t.partitions) for t in topologies]
        ours = [structure_aware(t, b).fidelity for t, b in zip(topologies, budgets, strict=True)]
        plain = [greedy(t, b).fidelity for t, b in zip(topologies, budgets, strict=True)]
        assert all(a >= 0.98 * b for a, b in zip(ours, plain, strict=True))
        assert sum(ours) > sum(plain)


def test_the_worst_case_is_that_of_one_topology() -> None:
    assert planners.worst_ratio([0.5, 0.2, 0.3], [0.25, 0.4, 0.0]) == 0.5
    assert planners.worst_ratio([0.5, 0.2], [0.0, 0.0]) is None


def best_of_full(topology: Topology, budget: int) -> float:
    """Where all streams are full and all pairs of inputs joins, what is kept is a product.

    Of an operator the best partitions are those with the most output; how many of each: by budget.
    """
    best = np.zeros(budget + 1)
    best[0] = 1.0
    for node in topology.nodes:
        rates = np.array(node.output_rates)
        shares = np.append(0.0, np.cumsum(np.sort(rates)[::-1]) / rates.sum())
        taken = [
            [best[total - n] * share for n, share in enumerate(shares) if n <= total]
            for total in range(budget + 1)
        ]
        best = np.array([max(options) for options in taken])
    return float(best[budget])


@pytest.mark.parametrize("drawn", [Drawn(structure="full"), WIDE_FULL], ids=["1 to 10", "10 to 20"])
def test_full_topologies_of_the_papers_size_have_the_best_plan(drawn: Drawn) -> None:
    """So that the curves of figure 14b are those of the topologies, not of the planner."""
    for seed in range(2):
        topology = draw(Random(seed), drawn)
        for share in (0.4, 0.6):
            budget = round(share * topology.partitions)
            best = best_of_full(topology, budget)
            assert structure_aware(topology, budget).fidelity == pytest.approx(best, rel=0.01)


def test_more_partitions_keep_more_unless_their_numbers_become_alike() -> None:
    """Figure 14b: at the same budget twice as many of each help, numbers closer together harm."""
    kept = []
    for drawn in (Drawn(), Drawn(times=2), Drawn(parallelism=(5, 6))):
        full = [draw(Random(seed), replace(drawn, structure="full")) for seed in range(40)]
        kept.append(mean(best_of_full(t, round(0.6 * t.partitions)) for t in full))
    plain, doubled, alike = kept
    assert alike < 0.7 * plain < plain < doubled
