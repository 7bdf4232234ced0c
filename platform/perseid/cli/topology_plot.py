"""Draws a topology: operators as columns, partitions as dots, substreams as lines.

An operator is right of all that it reads; operators with the same number of steps before them share
a column. The lines of a large stream would be one dark area, so it is drawn as a light one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perseid.cli import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perseid.coordinator.planners.graph import Stream
    from perseid.coordinator.planners.topology import Topology

LINES_MAX = 500  # substreams of a stream that are drawn one by one
NUMBERS_MAX = 24  # partitions in a column that are numbered
GREY = "#9aa0a6"
COLOURS = {
    "replicated": "#1e8e3e", "replica started": "#1a73e8", "replica stopped": "#f29900",
    "failed": "#d93025", "loses input": "#f29900", "not replicated": GREY, "whole": "#1e8e3e",
}  # fmt: skip
Places = npt.NDArray[np.float64]  # (partitions, 2): column, and height from 0 to 1


def draw(path: Path, topology: Topology, groups: Mapping[str, Iterable[int]], title: str) -> None:
    """`groups` are partitions by a name of COLOURS; each has the colour of its first group."""
    places = placed(topology)
    columns = int(places[:, 0].max()) + 1
    crowd = int(np.unique(places[:, 0], return_counts=True)[1].max())
    high = min(3.0 + 0.3 * crowd, 12.0)
    with canvas.figure(min(3.0 + 1.6 * columns, 30.0), high, path) as figure:
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set_title(title)
        axis.margins(x=0.1, y=0.05)
        for stream in topology.streams:
            _draw_stream(axis, topology, stream, places)
        dot = min(0.5 * 72 * high / crowd, 13.0)  # points
        _explain_lines(axis, topology)
        left = np.ones(topology.partitions, dtype=bool)
        for name, numbers in groups.items():
            some = topology.mask(numbers) & left
            left &= ~some
            if some.any():
                x, y = places[some].T
                label = f"{name} ({some.sum()})"
                axis.scatter(x, y, s=dot**2, color=COLOURS[name], label=label, zorder=2)
        _name(axis, topology, places, numbered=crowd <= NUMBERS_MAX)
        figure.legend(loc="outside lower center", ncols=3, frameon=False, markerscale=8 / dot)


def placed(topology: Topology) -> Places:
    """The position of each partition."""
    columns: dict[str, int] = {}
    for node in topology.nodes:  # topologically ordered
        inputs = [columns[s.source] + 1 for s in topology.inputs(node.name)]
        columns[node.name] = max(inputs, default=0)
    found = np.zeros((topology.partitions, 2))
    for column in set(columns.values()):
        nodes = [node for node in topology.nodes if columns[node.name] == column]
        # Room for the name and a row for each partition, from the top downwards.
        partitions = sum(node.parallelism for node in nodes)
        name, used = 1 + partitions // 20, 0
        for node in nodes:
            some = topology.slice(node.name)
            found[some, 0] = column
            found[some, 1] = used + name + np.arange(node.parallelism)
            used += name + node.parallelism
        here = found[:, 0] == column
        found[here, 1] = 1 - found[here, 1] / used
    return found


def _explain_lines(axis: Axes, topology: Topology) -> None:
    """Adds the lines to the legend."""
    large = [len(stream.substreams) > LINES_MAX for stream in topology.streams]
    if not all(large):
        axis.plot([], [], color=GREY, label="substream (width: records/s)")
    if any(large):
        label = f"stream of more than {LINES_MAX} substreams"
        axis.plot([], [], color=GREY, alpha=0.25, linewidth=9, label=label)


def _draw_stream(axis: Axes, topology: Topology, stream: Stream, places: Places) -> None:
    from matplotlib.collections import LineCollection

    ends = [places[topology.slice(name)] for name in (stream.source, stream.target)]
    if len(stream.substreams) > LINES_MAX:
        corners = np.array([ends[0][0], ends[1][0], ends[1][-1], ends[0][-1]])
        axis.fill(*corners.T, color=GREY, alpha=0.25, zorder=0, linewidth=0)
        return
    table = np.array(stream.substreams)
    pairs = table[:, :2].astype(np.int64)
    lines = np.stack([ends[0][pairs[:, 0]], ends[1][pairs[:, 1]]], axis=1)
    widths = 0.3 + 1.7 * table[:, 2] / max(table[:, 2].max(), 1e-300)
    style = "--" if stream.feedback else "-"
    axis.add_collection(
        LineCollection(list(lines), linewidths=widths, colors=GREY, linestyles=style, zorder=1)
    )


def _name(axis: Axes, topology: Topology, places: Places, *, numbered: bool) -> None:
    for node in topology.nodes:
        some = places[topology.slice(node.name)]
        axis.annotate(
            f"{node.name} ({node.parallelism})" if node.parallelism > 1 else node.name,
            some[0], (0, 9), textcoords="offset points", ha="center",
        )  # fmt: skip
        for number, place in enumerate(some if numbered else ()):
            axis.annotate(str(number), place, ha="center", va="center", color="white", fontsize=7)
