"""State sizes over time in the shapes of Meteor Shower's three applications (section 4).

`tmi`: windows of minutes fill and are dropped at once, 0 to 300 MB. `bcp`: several buffers that
fill and are emptied in turns, 100 to 700 MB. `signalguru`: bursts, 200 MB to 2 GB. All functions
are O(length).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Literal

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.state_sizes import Point, Sizes

Shape = Literal["tmi", "bcp", "signalguru"]
MB = 1e6
TABLE_RATE = 1 * MB  # growth in bytes/s of a table whose keys never expire
LENGTH_MAX_S = 1e8  # three years: some millions of points
AGE_MAX_S = 1e11  # of a table: its size stays below the maximum
UPDATED = 0.005  # share of its size that an operator rewrites in a second, assumed


def draw_sizes(random: Random, shape: Shape, length_s: float = 3600.0) -> Sizes:
    """Sizes over `length_s` seconds. The same for the same state of `random`.

    Raises UsageError for an unknown shape or an invalid length.

    >>> sizes = draw_sizes(Random(1), "tmi", 600.0)
    >>> sizes.dynamic, round(float(sizes.at([0.0])[0] / 1e6))
    (['window'], 20)
    """
    checks.one_of("the shape", shape, SHAPES)
    checks.positive("the length", length_s, unit=" s")
    checks.within("the length", length_s, 0.0, LENGTH_MAX_S, unit=" s")
    return SHAPES[shape](random, length_s)


def draw_changes(
    random: Random, shape: Shape, length_s: float = 3600.0, age_s: float = 0.0
) -> Changes:
    """Such sizes and a table that has grown for `age_s` before; all growth is change.

    >>> changes = draw_changes(Random(1), "tmi", 600.0, age_s=1000.0)
    >>> {name: round(rate / 1e6, 1) for name, rate in changes.rates.items()}
    {'window': 2.7, 'model': 0.1, 'table': 1.0}
    """
    checks.within("the age", age_s, 0.0, AGE_MAX_S, unit=" s")
    sizes = dict(draw_sizes(random, shape, length_s).operators)
    changed = {name: _changed(points) for name, points in sizes.items()}
    end_s = 2 * length_s
    sizes["table"] = tuple(Point(t, TABLE_RATE * (age_s + t)) for t in (0.0, end_s))
    changed["table"] = [Point(0.0, 0.0), Point(end_s, TABLE_RATE * end_s)]
    return Changes(Sizes(sizes), changed)


def _changed(points: Sequence[Point]) -> list[Point]:
    """The bytes that growth and updates have written since the first point."""
    found, total = [Point(points[0].time_s, 0.0)], 0.0
    for here, there in pairwise(points):
        mean = (here.bytes + there.bytes) / 2
        total += max(there.bytes - here.bytes, 0.0)
        total += UPDATED * mean * (there.time_s - here.time_s)
        found.append(Point(there.time_s, total))
    return found


def _tmi(random: Random, length_s: float) -> Sizes:
    return Sizes({
        "window": _saw_tooth(random, length_s, every_s=(110.0, 130.0), top=(200 * MB, 300 * MB)),
        "model": _level(20 * MB, length_s),
    })  # fmt: skip


def _bcp(random: Random, length_s: float) -> Sizes:
    buffers = {
        f"images{i}": _saw_tooth(random, length_s, every_s=(40.0, 90.0), top=(100 * MB, 200 * MB))
        for i in range(3)
    }
    return Sizes({**buffers, "history": _level(100 * MB, length_s)})


def _signalguru(random: Random, length_s: float) -> Sizes:
    filters = {}
    for number in range(4):
        points, time_s = [Point(0.0, 10 * MB)], 0.0
        while time_s < length_s:
            rise_s, fall_s = random.uniform(10.0, 60.0), random.uniform(5.0, 40.0)
            points.append(Point(time_s + rise_s, random.uniform(100 * MB, 500 * MB)))
            time_s += rise_s + fall_s
            points.append(Point(time_s, random.uniform(5 * MB, 60 * MB)))
        filters[f"filter{number}"] = points
    return Sizes({**filters, "map": _level(180 * MB, length_s)})


def _saw_tooth(
    random: Random, length_s: float, every_s: tuple[float, float], top: tuple[float, float]
) -> list[Point]:
    """A curve that rises and is dropped within a second, repeatedly."""
    points, time_s = [Point(0.0, 0.0)], 0.0
    while time_s < length_s:
        time_s += random.uniform(*every_s)
        points.append(Point(time_s, random.uniform(*top)))
        time_s += 1.0
        points.append(Point(time_s, random.uniform(0.0, 0.05) * top[0]))
    return points


def _level(size: float, length_s: float) -> list[Point]:
    return [Point(0.0, size), Point(2 * length_s, size)]


SHAPES: dict[Shape, Callable[[Random, float], Sizes]] = {
    "tmi": _tmi, "bcp": _bcp, "signalguru": _signalguru,
}  # fmt: skip
