"""`bench planners`: the papers' experiments on the planners, and how far each is from the optimum.

Every row is a mean over random cases of one setting: figure, setting, x, system, value. No cluster
is needed, and all but the times of the scale part is repeated exactly from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any

from benches import planner_scale
from benches.branch_and_bound import branch_and_bound
from benches.random_queries import DrawnQueries, draw_queries
from perseid.cli import output
from perseid.coordinator.planners import delta_stopping, delta_timing, live_timing, recovery
from perseid.coordinator.planners.best_density import best_density
from perseid.coordinator.planners.checkpoint_timing import (
    FirstMinimum,
    Stopping,
    fixed,
    oracle,
    played,
    profile,
)
from perseid.coordinator.planners.delta_stopping import DeltaStopping
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.graph import Node, Stream
from perseid.coordinator.planners.random_sizes import SHAPES, draw_changes, draw_sizes
from perseid.coordinator.planners.random_topology import Drawn, draw, substreams
from perseid.coordinator.planners.replication import ReplicationPlan, greedy, optimal
from perseid.coordinator.planners.state_sizes import Point
from perseid.coordinator.planners.structure_aware import structure_aware
from perseid.coordinator.planners.topology import Topology

SHARES = (0.2, 0.4, 0.6, 0.8)  # of the partitions that are replicated, or of the cost that is free
PERIOD_S = 200.0
TASKS_MAX = 20  # where structure-aware is compared with the optimum
UNLEARNED = live_timing.LEARNED_PERIODS  # its checkpoints before it has a profile
PLANNERS: dict[str, Callable[[Topology, int], ReplicationPlan]] = {
    "dp": optimal, "structure-aware": structure_aware, "greedy": greedy,
}  # fmt: skip
FIGURE_14: dict[tuple[str, str], Drawn] = {
    ("14a", "uniform"): Drawn(skew=0.0),
    ("14a", "Zipf 0.1"): Drawn(skew=0.1),
    ("14b", "1 to 10"): Drawn(parallelism=(1, 10)),
    ("14b", "1 to 10, doubled"): Drawn(parallelism=(1, 10), times=2),
    ("14b", "10 to 20"): Drawn(parallelism=(10, 20)),
    ("14c", "structured"): Drawn(structure="structured"),
    ("14c", "full"): Drawn(structure="full"),
    ("14d", "no joins"): Drawn(correlated=False),
    ("14d", "joins"): Drawn(),
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """Random cases a point, and where they begin."""

    cases: int = 100
    seed: int = 1


def run(settings: Settings) -> list[Row]:
    """All rows. Some minutes with 100 cases a point."""
    rows: list[Row] = []
    parts = (
        _figure_13, _figure_14, _optimum, _figure_15, _bounded_seeds, _timing, _delta_timing,
        _scale,
    )  # fmt: skip
    for part in parts:
        output.note(f"planners: {part.__name__.strip('_').replace('_', ' ')}")
        rows += part(settings)
    return rows


def _row(figure: str, setting: str, x: float, system: str, values: list[float]) -> Row:
    return {
        "figure": figure, "setting": setting, "x": x, "system": system,
        "value": round(fmean(values), 4), "worst": round(min(values), 4), "cases": len(values),
    }  # fmt: skip


def _figure_13(settings: Settings) -> Iterator[Row]:
    """Fidelity of the three planners on the two queries of PPA figure 11."""
    for name, topology in (("Q1", query_1()), ("Q2", query_2(Random(settings.seed)))):
        for share in SHARES:
            for system, planner in PLANNERS.items():
                kept = planner(topology, round(share * topology.partitions)).fidelity
                yield _row("13", name, share, system, [kept])


def query_1() -> Topology:
    """Hierarchical aggregation: eight servers' logs, four merging tasks, one top-k."""
    servers = [1000.0 * (1 + i % 3) for i in range(8)]
    merged = substreams("merge", servers, [0.25] * 4)
    into = [sum(rate for _, j, rate in merged if j == task) for task in range(4)]
    return Topology(
        [Node("o1", 8), Node("o2", 4), Node("o3", 1, output_rates=(sum(into),))],
        [Stream("o1", "o2", merged), Stream("o2", "o3", substreams("merge", into, [1.0]))],
    )


def query_2(random: Random) -> Topology:
    """Incident detection: locations (Zipf 0.5 over segments) joined with incidents, counted."""
    weights = [1 / (rank + 1) ** 0.5 for rank in range(8)]
    random.shuffle(weights)
    users = [20_000 * weight / sum(weights) for weight in weights]
    speeds = substreams("merge", users, [0.25] * 4)
    incidents = [sum(rate for _, j, rate in speeds if j == task) / 1000 for task in range(4)]
    joined = substreams("one-to-one", incidents, [0.25] * 4)
    return Topology(
        [
            Node("o1", 8), Node("o2", 4), Node("o3", 4, "correlated"),
            Node("o4", 1, output_rates=(sum(incidents),)),
        ],
        [
            Stream("o1", "o3", speeds), Stream("o2", "o3", joined),
            Stream("o3", "o4", substreams("merge", incidents, [1.0])),
        ],
    )  # fmt: skip


def _figure_14(settings: Settings) -> Iterator[Row]:
    """Fidelity on random topologies: skew, parallelism, structure, joins."""
    for (figure, setting), drawn in FIGURE_14.items():
        topologies = [draw(Random(settings.seed + i), drawn) for i in range(settings.cases)]
        for share in SHARES:
            ours, theirs = (
                [planner(t, round(share * t.partitions)).fidelity for t in topologies]
                for planner in (structure_aware, greedy)
            )
            yield {
                **_row(figure, setting, share, "structure-aware", ours),
                "worst_to_greedy": worst_ratio(ours, theirs),
            }
            yield _row(figure, setting, share, "greedy", theirs)


def worst_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The lowest of ours to theirs in one case; None where theirs has nothing in any."""
    pairs = zip(ours, theirs, strict=True)
    found = min((a / b for a, b in pairs if b > 0), default=None)
    return None if found is None else round(found, 4)


def _optimum(settings: Settings) -> Iterator[Row]:
    """Fidelity as a share of the best one that there is, by branch and bound over the tasks."""
    drawn = Drawn(operators=(3, 7), parallelism=(1, 5), skew=0.5)
    small: list[Topology] = []
    seed = settings.seed
    while len(small) < settings.cases:
        topology = draw(Random(seed), drawn)
        seed += 1
        if topology.partitions <= TASKS_MAX:
            small.append(topology)
    for share in SHARES:
        found: dict[str, list[float]] = {"structure-aware": [], "greedy": []}
        for topology in small:
            budget = round(share * topology.partitions)
            best = branch_and_bound(topology, budget).fidelity
            for system, values in found.items():
                if best > 0:
                    values.append(PLANNERS[system](topology, budget).fidelity / best)
        for system, values in found.items():
            if values:
                yield _row("of the optimum", "at most 20 tasks", share, system, values)


def _figure_15(settings: Settings) -> Iterator[Row]:
    """Recovered priority as a share of the dynamic programme's."""
    variants = {
        ("15a", "shared by 3"): DrawnQueries(share_max=3),
        ("15a", "shared by 6"): DrawnQueries(share_max=6),
        ("15b", "skew 0.2"): DrawnQueries(share_max=6, skew=0.2),
        ("15b", "skew 0.5"): DrawnQueries(share_max=6, skew=0.5),
        ("15c", "priority random"): DrawnQueries(),
        ("15c", "priority by cost"): DrawnQueries(priority="by cost"),
    }
    schedulers = {"best-density": best_density, "oc": recovery.operator_centric}
    for (figure, setting), drawn in variants.items():
        for share in SHARES:
            found: dict[str, list[float]] = {system: [] for system in schedulers}
            for number in range(settings.cases):
                problem = draw_queries(Random(settings.seed + number), drawn.with_free(share))
                best = recovery.optimal(problem).priority
                for system, scheduler in schedulers.items():
                    if best:
                        found[system].append(scheduler(problem).priority / best)
            for system, values in found.items():
                if values:
                    yield _row(figure, setting, share, system, values)


def _bounded_seeds(settings: Settings) -> Iterator[Row]:
    """Priority of BestDensity with fewer seeds, as a share of that with all pairs as seeds."""
    for low, high, partitions, cases, fewest in (
        (20, 60, 150, 10 * settings.cases, 20),  # fewer than there ever are
        (61, 110, 400, -(-settings.cases // 2), None),  # as many as there are
    ):
        ratios = []
        for number in range(cases):
            random = Random(settings.seed + number)
            drawn = DrawnQueries(
                queries=random.randint(low, high), partitions=partitions,
                share_max=random.choice([3, 6]), free=random.uniform(0.2, 0.8),
            )  # fmt: skip
            problem = draw_queries(random, drawn)
            full = best_density(problem, seed_queries=len(problem.queries)).priority
            ratios.append(best_density(problem, seed_queries=fewest).priority / full)
        setting = f"{low} to {high} queries, {fewest or 'as many as affordable'} seeds"
        yield _row("bounded seeds", setting, 1.0, "best-density", ratios)


def _timing(settings: Settings) -> Iterator[Row]:
    """Bytes of all checkpoints as a multiple of the oracle's; profiles from other seeds."""
    for shape in SHAPES:
        found: dict[str, list[float]] = {"first minimum": [], "ours": [], "fixed": []}
        for number in range(settings.cases):
            learned = profile(draw_sizes(Random(settings.seed + 10_000 + number), shape), PERIOD_S)
            sizes = draw_sizes(Random(settings.seed + number), shape)
            best = _bytes(oracle(sizes, PERIOD_S))
            for system, plan in (
                ("first minimum", played(sizes, PERIOD_S, FirstMinimum(learned))),
                ("ours", played(sizes, PERIOD_S, Stopping(learned))),
                ("fixed", fixed(sizes, PERIOD_S)),
            ):
                found[system].append(_bytes(plan) / best)
        for system, values in found.items():
            row = _row("checkpoint size", shape, 1.0, system, values)
            yield {**row, "worst": round(max(values), 4)}


def _delta_timing(settings: Settings) -> Iterator[Row]:
    """The same where changes are written: an hour later, with a table that grows without end."""
    for shape in SHAPES:
        found: dict[str, list[float]] = {"by size": [], "ours": [], "live": [], "fixed": []}
        for number in range(settings.cases):
            before = draw_changes(Random(settings.seed + 10_000 + number), shape)
            changes = draw_changes(Random(settings.seed + number), shape, age_s=3600.0)
            by_size = Stopping(profile(before.sizes, PERIOD_S))
            plans = {
                "by size": played(changes.sizes, PERIOD_S, by_size),
                "ours": delta_stopping.played(changes, DeltaStopping(before, PERIOD_S)),
                "fixed": fixed(changes.sizes, PERIOD_S),
            }
            best = _bytes(delta_timing.oracle(changes, PERIOD_S))
            for system, plan in plans.items():
                written = changes.checkpoints([point.time_s for point in plan])
                found[system].append(_bytes(written) / best)
            found["live"].append(_live(changes))
        for system, values in found.items():
            row = _row("checkpoint delta", shape, 1.0, system, values)
            yield {**row, "worst": round(max(values), 4)}


def _live(changes: Changes) -> float:
    """What the coordinator's policy writes a second, over the oracle's, once it has a profile.

    A second, because its periods end with an epoch, so that an hour may have one fewer.
    """
    taken = live_timing.played(changes, PERIOD_S, changes.sizes.end_s)
    ours, best = changes.checkpoints(taken), delta_timing.oracle(changes, PERIOD_S)
    rates = [
        _bytes(plan[UNLEARNED:]) / (plan[-1].time_s - plan[UNLEARNED - 1].time_s)
        for plan in (ours, best)
    ]
    return rates[0] / rates[1]


def _scale(settings: Settings) -> Iterator[Row]:
    return planner_scale.rows(settings.seed)


def _bytes(checkpoints: list[Point]) -> float:
    return sum(point.bytes for point in checkpoints)
