"""Draws the result of a benchmark on a cluster: a panel a measure, a bar a system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perseid.cli import canvas
from perseid.errors import RefusedError

PANELS = {
    "rows_per_s": "lines/s (higher is better)",
    "p50_ms": "median latency, ms",
    "p99_ms": "99th percentile latency, ms",
    "seconds": "seconds from SIGKILL to output",
    "rss_mb": "peak memory, MB",
}


NAMING = ("query", "figure", "setting", "x", "checkpoints", "system")


def _figure(value: float) -> str:
    """Next to a bar."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def labels_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each row: what distinguishes them, the system where nothing does. Pure."""
    reported = [c for c in NAMING if len({row.get(c) for row in rows}) > 1] or ["system"]
    return [", ".join(str(row[c]) for c in reported if row.get(c) is not None) for row in rows]


def draw(result: dict[str, Any], *paths: Path) -> None:
    rows = result["rows"]
    labels = labels_of(rows)
    panels = [column for column in PANELS if any(column in row for row in rows)]
    if not panels:
        raise RefusedError(
            f"bench {result['bench']} has nothing that is drawn, which is one of "
            f"{', '.join(PANELS)}: its rows are in the results file"
        )
    with canvas.figure(3.2 * len(panels), 3.6, *paths) as figure:
        axes = figure.subplots(1, len(panels), squeeze=False)
        for axis, column in zip(axes[0], panels, strict=True):
            shown = [i for i, row in enumerate(rows) if column in row]
            bars = axis.bar([labels[i] for i in shown], [rows[i][column] for i in shown])
            axis.bar_label(bars, fmt=_figure)
            axis.margins(y=0.12)  # room for the figures
            axis.set_title(PANELS[column])
            axis.tick_params(axis="x", labelrotation=20, labelsize=8)
        figure.suptitle(f"{result['bench']}, {result['machine']['cores']} cores")


def draw_speeds(result: dict[str, Any], *paths: Path) -> None:
    """A panel a unit, which is the row's system; a bar a setting."""
    rows = result["rows"]
    units = list(dict.fromkeys(row["system"] for row in rows))
    with canvas.figure(4.8 * len(units), 3.2, *paths) as figure:
        axes = figure.subplots(1, len(units), squeeze=False)
        for axis, unit in zip(axes[0], units, strict=True):
            shown = [row for row in rows if row["system"] == unit]
            bars = axis.barh([row["setting"] for row in shown], [row["value"] for row in shown])
            axis.bar_label(bars, fmt=_figure)
            axis.invert_yaxis()
            axis.margins(x=0.15)  # room for the figures
            axis.set_xlabel(f"{unit} of one core (higher is better)")
        figure.suptitle(result["bench"])
