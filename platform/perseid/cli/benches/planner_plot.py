"""Draws `bench planners`, a JSON document on stdin, into a folder. Run by the peer's Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LABELS = {
    "13": ("replicated share of partitions", "output fidelity"),
    "14": ("replicated share of partitions", "output fidelity"),
    "of": ("replicated share of partitions", "fidelity / optimum"),
    "15": ("free share of the cost", "priority / optimum"),
    "bo": ("", "priority / all pairs"),
    "ch": ("", "bytes / oracle"),
}


def main() -> None:
    import matplotlib as mpl  # type: ignore[import-not-found]

    mpl.use("Agg")
    from matplotlib import pyplot

    rows: list[dict[str, Any]] = json.load(sys.stdin)["rows"]
    figures = list(dict.fromkeys(row["figure"] for row in rows))
    wide = 4
    high = -(-len(figures) // wide)
    canvas, axes = pyplot.subplots(high, wide, figsize=(4.2 * wide, 3.4 * high), squeeze=False)
    for axis, figure in zip(axes.flat, figures, strict=False):
        _draw(axis, figure, [row for row in rows if row["figure"] == figure])
    for axis in list(axes.flat)[len(figures):]:
        axis.set_axis_off()
    canvas.tight_layout()
    for kind in ("png", "svg"):
        path = Path(sys.argv[1]) / f"planners.{kind}"
        canvas.savefig(path)
        print(path)


def _draw(axis: Any, figure: str, rows: list[dict[str, Any]]) -> None:
    lines = list(dict.fromkeys((row["setting"], row["system"]) for row in rows))
    if all(row["x"] == rows[0]["x"] for row in rows):
        names = [f"{setting}\n{system}" for setting, system in lines]
        bars = axis.barh(names, [row["value"] for row in rows])
        axis.bar_label(bars, fmt="%.2f", fontsize=6)
        axis.invert_yaxis()
        axis.tick_params(axis="y", labelsize=5)
        axis.set_xlabel(LABELS[figure[:2]][1], fontsize=8)
    else:
        for setting, system in lines:
            some = [r for r in rows if (r["setting"], r["system"]) == (setting, system)]
            label = f"{system}, {setting}"
            axis.plot([r["x"] for r in some], [r["value"] for r in some], marker="o", label=label)
        axis.set_xlabel(LABELS[figure[:2]][0], fontsize=8)
        axis.set_ylabel(LABELS[figure[:2]][1], fontsize=8)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=6)
    axis.set_title(f"figure {figure}" if figure[:1].isdigit() else figure, fontsize=9)


if __name__ == "__main__":
    main()
