"""Rows of a benchmark: medians over runs, ratios within a run, table, results file, plots."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benches import planner_plot
from benches import plot as cluster_plot
from perseid.cli import canvas, output


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count(), "memory_gib": round(memory / 2**30, 1)}


def median_row(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row from the rows of all runs of a system: the median of what is a number. Pure.

    Columns that a run lacks are taken from the others; what is no number is the first run's.
    """
    columns = dict.fromkeys(column for run in runs for column in run)
    row: dict[str, Any] = {}
    for column in columns:
        values = [run[column] for run in runs if run.get(column) is not None]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if numbers and len(numbers) == len(values):
            row[column] = round(statistics.median(numbers), 3)
        elif values:
            row[column] = all(values) if isinstance(values[0], bool) else values[0]
    row["runs"] = len(runs)
    return row


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Median over runs of our figure over theirs in the same run. Pure."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True) if b]
    return round(statistics.median(pairs), 3) if pairs else None


def document(bench: str, settings: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"bench": bench, "machine": machine(), "settings": settings, "rows": rows}


def append(result: dict[str, Any]) -> Path:
    """Adds the result to the results file of this checkout; returns its path."""
    path = Path(__file__).parents[1] / "results.jsonl"
    stamped = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **result}
    with path.open("a") as file:
        file.write(json.dumps(stamped) + "\n")
    return path


def show(result: dict[str, Any], columns: Sequence[str]) -> None:
    """The rows as a table, only columns that some row has."""
    rows = result["rows"]
    used = [c for c in columns if any(row.get(c) is not None for row in rows)]
    output.table(used, [[_cell(row.get(c)) for c in used] for row in rows], title=result["bench"])


def plot(result: dict[str, Any], folder: Path) -> list[Path]:
    """The result as PNG and SVG in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    others = {"planners": planner_plot.draw, "simulation": cluster_plot.draw_speeds}
    paths = [folder / f"{result['bench']}{ending}" for ending in canvas.ENDINGS]
    others.get(result["bench"], cluster_plot.draw)(result, *paths)
    return paths


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    if isinstance(value, list):
        return ", ".join(str(_cell(v)) for v in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
