"""Draws a benchmark result, a JSON document on stdin, into a folder. Run by the peer's Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PANELS = {
    "rows_per_s": "lines/s (higher is better)",
    "p50_ms": "median latency, ms",
    "p99_ms": "99th percentile latency, ms",
    "seconds": "seconds from SIGKILL to output",
    "rss_mb": "peak memory, MB",
}


def main() -> None:
    import matplotlib as mpl  # type: ignore[import-not-found]

    mpl.use("Agg")
    from matplotlib import pyplot

    result: dict[str, Any] = json.load(sys.stdin)
    rows = result["rows"]
    panels = [column for column in PANELS if any(column in row for row in rows)]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels), 3.6), squeeze=False)
    for axis, column in zip(axes[0], panels, strict=True):
        shown = [row for row in rows if column in row]
        bars = axis.bar([row["system"] for row in shown], [row[column] for row in shown])
        axis.bar_label(bars, fmt=lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.3g}")
        axis.margins(y=0.12)  # room for the figures
        axis.set_title(PANELS[column], fontsize=9)
        axis.tick_params(axis="x", labelrotation=20, labelsize=8)
    figure.suptitle(f"{result['bench']}, {result['machine']['cores']} cores", fontsize=10)
    figure.tight_layout()
    for kind in ("png", "svg"):
        path = Path(sys.argv[1]) / f"{result['bench']}.{kind}"
        figure.savefig(path)
        print(path)


if __name__ == "__main__":
    main()
