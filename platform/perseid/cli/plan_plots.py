"""Draws the answers of `perseid plan` that have no topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perseid.cli import canvas
from perseid.cli.topology_plot import COLOURS, GREY

if TYPE_CHECKING:
    from perseid.coordinator.planners.delta_timing import Changes
    from perseid.coordinator.planners.recovery import RecoveryPlan, RecoveryProblem
    from perseid.coordinator.planners.state_sizes import Point, Sizes
    from perseid.coordinator.planners.thresholds import Bounds, Share, Window

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
PLANS = {
    "checkpoints": ("chosen", "o"), "first_minimum": ("first minimum", "^"),
    "oracle": ("oracle", "v"), "fixed": ("fixed", "x"),
}  # fmt: skip
NAMES_MAX = 40  # bars that are named


def checkpoints(
    path: Path,
    sizes: Sizes,
    changes: Changes | None,
    period_s: float,
    plans: Mapping[str, Sequence[Point]],
) -> None:
    """Draws the total size over time, the changes since the last checkpoint, and the plans."""
    times = sizes.bends
    totals = sizes.at(times)
    unit, name = next((u for u in UNITS if totals.max() >= u[0]), UNITS[-1])
    with canvas.figure(11.0, 4.5, path) as figure:
        axis = figure.subplots()
        axis.plot(times, totals / unit, color=GREY, label="state size")
        if changes is not None:
            taken = [point.time_s for point in next(iter(plans.values()))]
            since = _since_the_last(changes, taken)
            axis.plot(*since / [[1.0], [unit]], linewidth=0.8, label="a checkpoint would write")
        for plan, points in plans.items():
            shown, marker = PLANS[plan]
            label = f"{shown}, {len(points)}: {sum(p.bytes for p in points) / unit:,.4g} {name}"
            at = np.array([(p.time_s, p.bytes / unit) for p in points]).T
            axis.plot(*at, marker, markersize=8, fillstyle="none", label=label)
        borders = np.arange(sizes.start_s, sizes.end_s + 1e-9, period_s)
        axis.vlines(borders, 0, totals.max() / unit, colors=GREY, linewidths=0.5, linestyles=":")
        axis.set_xlabel(f"time, s (dotted: periods of {period_s:g} s)")
        axis.set_ylabel(f"size, {name}")
        axis.set_ylim(bottom=0)
        figure.legend(loc="outside upper center", ncols=3, frameon=False)


def _since_the_last(changes: Changes, taken: Sequence[float]) -> np.ndarray:
    """Times and bytes: two rows, from the first checkpoint on."""
    ends = [*taken[1:], changes.sizes.end_s]
    parts = []
    for last, end in zip(taken, ends, strict=True):
        inside = changes.bends[(changes.bends > last) & (changes.bends < end)]
        times = np.array([last, *inside, end])
        parts.append(np.stack([times, changes.written(last, times)]))
    return np.concatenate(parts, axis=1)


def recovery(path: Path, problem: RecoveryProblem, plan: RecoveryPlan) -> None:
    """Draws the failed queries by priority, and which are recovered."""
    queries = sorted(problem.queries, key=lambda q: -q.priority)
    done = set(plan.queries)
    with canvas.figure(min(3.0 + 0.25 * len(queries), 14.0), 4.0, path) as figure:
        axis = figure.subplots()
        for label, colour, wanted in (
            ("recovered", COLOURS["replicated"], True), ("not recovered", COLOURS["failed"], False),
        ):  # fmt: skip
            at = [i for i, query in enumerate(queries) if (query.id in done) == wanted]
            heights = [queries[i].priority for i in at]
            axis.bar(at, heights, color=colour, label=f"{label} ({len(at)})")
        named = queries if len(queries) <= NAMES_MAX else []
        axis.set_xticks(range(len(named)), [query.id for query in named], rotation=60)
        axis.set_xlabel("failed queries")
        axis.set_ylabel("priority")
        axis.locator_params(axis="y", integer=True)
        total = sum(query.priority for query in queries)
        axis.set_title(
            f"priority {plan.priority} of {total} for {plan.cost:g} of {problem.free:g} free cores"
        )
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def thresholds(
    path: Path, bounds: Bounds, share: Share, failures: int, window: Window = "none"
) -> None:
    """Draws the three thresholds by the number of failures, down to where work is exact."""
    from perseid.coordinator.planners.thresholds import thresholds as decide

    numbers = [k for k in range(200) if k == 0 or not decide(bounds, k - 1, share, window).exact]
    found = [decide(bounds, k, share, window) for k in numbers]
    with canvas.figure(7.0, 4.5, path) as figure:
        axis = figure.subplots()
        for label, values in (
            ("theta: state divergence", [t.theta for t in found]),
            ("l: unprocessed items", [t.l for t in found]),
            ("gamma: lost output items", [t.gamma for t in found]),
        ):
            shown = [value if value > 0 else np.nan for value in values]
            axis.plot(numbers, shown, marker="o", label=label)
        if found[-1].exact:
            axis.axvspan(numbers[-1] - 0.5, numbers[-1] + 0.5, color=GREY, alpha=0.3, label="exact")
        axis.axvline(min(failures, numbers[-1]), color=GREY, linestyle=":", label="now")
        if any(max(t.theta, t.l, t.gamma) > 0 for t in found):  # zeros have no logarithm
            axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_xlabel("failures so far")
        axis.locator_params(axis="x", integer=True)
        axis.set_ylabel("threshold")
        axis.legend(frameon=False)


def workers(
    path: Path, domains: Mapping[str, str], primaries: Iterable[str], replicas: Iterable[str],
    title: str,
) -> None:  # fmt: skip
    """Draws how many primaries and replicas each worker has, above its failure domain."""
    first, copies = Counter(primaries), Counter(replicas)
    names = list(dict.fromkeys([*domains, *first, *copies]))
    with canvas.figure(min(3.0 + 0.6 * len(names), 20.0), 4.0, path) as figure:
        axis = figure.subplots()
        at = range(len(names))
        below = [first[name] for name in names]
        axis.bar(at, below, color=COLOURS["replica started"], label="primaries")
        above = [copies[name] for name in names]
        axis.bar(at, above, bottom=below, color=COLOURS["replicated"], label="replicas")
        named = names if len(names) <= NAMES_MAX else []
        labels = [f"{name}\n{domains.get(name, '')}" for name in named]
        axis.set_xticks(range(len(named)), labels)
        axis.set_xlabel("workers, with their failure domains")
        axis.set_ylabel("partitions")
        axis.locator_params(axis="y", integer=True)
        axis.set_title(title)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
