"""State sizes over time as the checkpoint timing sees them: turning points, dynamic operators.

Meteor Shower section 4.2. Between two turning points a size is assumed to change linearly. Creating
`Sizes` and reading its points is O(points), with a sort O(points * log points); asking it for sizes
is O(times * operators * log points).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perseid.errors import BadInputError, UsageError

Numbers = npt.NDArray[np.float64]

BYTES_MAX = 1e18  # of one operator, an exabyte: totals and rates stay finite
TIME_MAX_S = 1e12  # before and after 0


@dataclass(frozen=True, slots=True)
class Point:
    """A size at a time."""

    time_s: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Report:
    """A turning point of an operator: its size, and its change rate from here on, in bytes/s."""

    time_s: float
    operator: str
    bytes: float
    rate: float


class Sizes:
    """The sizes of a job's operators. Raises BadInputError for invalid values. Immutable."""

    def __init__(self, operators: Mapping[str, Sequence[Point]]) -> None:
        if not operators:
            raise BadInputError("no sizes: at least two points of one operator")
        self.operators = {name: tuple(points) for name, points in operators.items()}
        for name, points in self.operators.items():
            _check(name, points)
        # Contiguous rows: `np.interp` copies the whole history of others each time.
        self._arrays = {
            name: np.array([[p.time_s for p in points], [p.bytes for p in points]], np.float64)
            for name, points in self.operators.items()
        }
        self.start_s = max(points[0].time_s for points in self.operators.values())
        self.end_s = min(points[-1].time_s for points in self.operators.values())
        if self.start_s >= self.end_s:
            raise BadInputError("the operators' sizes have no time in common")

    def at(self, times: Sequence[float] | Numbers) -> Numbers:
        """The total of all operators at these times."""
        return np.asarray(self.each(times).sum(axis=0))

    def each(self, times: Sequence[float] | Numbers) -> Numbers:
        """By operator, a row: its size at these times; outside the known ones, that of the end."""
        if not np.isfinite(times).all():
            raise UsageError(f"sizes at the times {list(times)}: finite seconds")
        return np.array([np.interp(times, *points) for points in self._arrays.values()])

    def of(self, operators: Sequence[str]) -> Sizes:
        for name in operators:
            if name not in self.operators:
                raise BadInputError(f"no sizes of operator {name}")
        return Sizes({name: self.operators[name] for name in operators})

    @property
    def dynamic(self) -> list[str]:
        """Operators whose smallest size is below half of their mean: only these count."""
        return [name for name, points in self.operators.items() if _is_dynamic(points)]

    @property
    def bends(self) -> Numbers:
        """The times of all points within the range that the operators have in common."""
        times = np.unique(np.concatenate([times for times, _ in self._arrays.values()]))
        return times[(times >= self.start_s) & (times <= self.end_s)]

    def times(self) -> Numbers:
        """All operators' turning points, and both ends: the total has its extremes at these."""
        found = {self.start_s, self.end_s}
        for points in self.operators.values():
            found |= {p.time_s for p in turning_points(points)}
        inside = [t for t in found if self.start_s <= t <= self.end_s]
        return np.array(sorted(inside))

    def reports(self) -> list[Report]:
        """The operators' reports at their turning points, in order of time."""
        found = []
        for name, points in self.operators.items():
            turns = turning_points(points)
            for here, there in pairwise(turns):
                rate = (there.bytes - here.bytes) / (there.time_s - here.time_s)
                found.append(Report(here.time_s, name, here.bytes, rate))
        return sorted(found, key=lambda r: (r.time_s, r.operator))


def turning_points(points: Sequence[Point]) -> list[Point]:
    """Both ends and the local extremes; the last point of a level stretch.

    >>> [p.bytes for p in turning_points([Point(t, b) for t, b in enumerate([1, 5, 9, 0, 4])])]
    [1, 9, 0, 4]
    """
    if len(points) < 2:
        raise BadInputError(f"{len(points)} sizes have no turning points: at least 2")
    kept = [points[0]]
    for here, after in pairwise(points[1:]):
        if (here.bytes - kept[-1].bytes) * (after.bytes - here.bytes) < 0:
            kept.append(here)
        elif kept[-1].bytes == here.bytes != after.bytes:
            kept.append(here)
    return [*kept, points[-1]]


def _is_dynamic(points: Sequence[Point]) -> bool:
    sizes = np.array([p.bytes for p in points])
    spans = np.diff([p.time_s for p in points])
    mean = float(((sizes[1:] + sizes[:-1]) / 2 * spans).sum() / spans.sum())
    return float(sizes.min()) < mean / 2


def _check(name: str, points: Sequence[Point]) -> None:
    if len(points) < 2:
        raise BadInputError(f"operator {name} has {len(points)} sizes: at least 2")
    for point in points:
        if not (0 <= point.bytes <= BYTES_MAX and abs(point.time_s) <= TIME_MAX_S):
            raise BadInputError(
                f"operator {name} at {point.time_s} s: {point.bytes} is no size, or that no time"
            )
    for before, after in pairwise(points):
        if after.time_s <= before.time_s:
            raise BadInputError(
                f"operator {name}: {after.time_s} s does not come after {before.time_s} s"
            )
        if not math.isfinite((after.bytes - before.bytes) / (after.time_s - before.time_s)):
            raise BadInputError(
                f"operator {name}: {before.bytes} bytes at {before.time_s} s and {after.bytes} at "
                f"{after.time_s} s: too close to each other"
            )
