"""Draws the result of a benchmark on a cluster: a panel a measure, a bar a system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perseid.cli import canvas

PANELS = {
    "rows_per_s": "lines/s (higher is better)",
    "p50_ms": "median latency, ms",
    "p99_ms": "99th percentile latency, ms",
    "seconds": "seconds from SIGKILL to output",
    "rss_mb": "peak memory, MB",
}


def draw(result: dict[str, Any], *paths: Path) -> None:
    rows = result["rows"]
    panels = [column for column in PANELS if any(column in row for row in rows)]
    with canvas.figure(3.2 * len(panels), 3.6, *paths) as figure:
        axes = figure.subplots(1, len(panels), squeeze=False)
        for axis, column in zip(axes[0], panels, strict=True):
            shown = [row for row in rows if column in row]
            bars = axis.bar([row["system"] for row in shown], [row[column] for row in shown])
            axis.bar_label(bars, fmt=lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.3g}")
            axis.margins(y=0.12)  # room for the figures
            axis.set_title(PANELS[column])
            axis.tick_params(axis="x", labelrotation=20, labelsize=8)
        figure.suptitle(f"{result['bench']}, {result['machine']['cores']} cores")
