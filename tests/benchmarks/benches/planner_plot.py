"""Draws the result of `bench planners`: a panel a figure of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.cli import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "13": ("replicated share of partitions", "output fidelity"),
    "14": ("replicated share of partitions", "output fidelity"),
    "of": ("replicated share of partitions", "fidelity / optimum"),
    "15": ("free share of the cost", "priority / optimum"),
    "bo": ("", "priority / all pairs"),
    "ch": ("", "bytes / oracle"),
    "sc": ("", "processor time, s"),
}
# What the papers give in words; the curves of figures 13 to 15 are given nowhere as numbers.
# Meteor Shower, on its figure 14: checkpoint time 66 % less with its policy, 69 % with the oracle.
PAPERS = {"checkpoint size": 0.34 / 0.31}
WIDE = 4  # panels in a row


def draw(result: dict[str, Any], *paths: Path) -> None:
    rows = result["rows"]
    names = list(dict.fromkeys(row["figure"] for row in rows))
    high = -(-len(names) // WIDE)
    with canvas.figure(4.2 * WIDE, 3.4 * high, *paths) as figure:
        axes = figure.subplots(high, WIDE, squeeze=False)
        for axis, name in zip(axes.flat, names, strict=False):
            _draw(axis, name, [row for row in rows if row["figure"] == name])
        for axis in list(axes.flat)[len(names) :]:
            axis.set_axis_off()


def _draw(axis: Axes, figure: str, rows: list[dict[str, Any]]) -> None:
    lines = list(dict.fromkeys((row["setting"], row["system"]) for row in rows))
    if all(row["x"] == rows[0]["x"] for row in rows):
        names = [f"{setting}\n{system}" for setting, system in lines]
        bars = axis.barh(names, [row["seconds" if figure == "scale" else "value"] for row in rows])
        axis.bar_label(bars, fmt="%.2f", fontsize=6)
        axis.invert_yaxis()
        _draw_lines(axis, figure, rows)
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
    axis.set_title(f"figure {figure}" if figure[:1].isdigit() else figure)


def _draw_lines(axis: Axes, figure: str, rows: list[dict[str, Any]]) -> None:
    """Dashed: what a paper has, or what is asked for."""
    if figure in PAPERS:
        axis.axvline(PAPERS[figure], linestyle="--", color="black", label="the paper's policy")
        axis.legend(fontsize=6)
    if figure == "scale":
        for at, row in enumerate(rows):
            axis.plot([row["limit_s"]] * 2, [at - 0.4, at + 0.4], "--", color="black")
