"""A stream as a matrix over partitions: a row for each target, a column for each source.

A cell is the source's share of what the target gets from this stream. The planners only need
products with a vector: sums over sources or targets, and the best of them. Each is O(substreams),
in the representation that is fastest:

1. `Even`: all rows are alike, as in a shuffle by hash. One row represents all: O(partitions).
2. `Full`: many pairs exist. The matrix itself, so that no operation needs an index.
3. `Listed`: few pairs exist. The substreams.

>>> flow = flow_of([(0, 0, 1.0), (1, 0, 3.0), (1, 1, 2.0)], source=0, target=2)
>>> flow.received(np.array([1.0, 0.0, 0.0, 0.0])).tolist()
[0.25, 0.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Rates = npt.NDArray[np.float64]
Best = tuple[Ids, Rates]  # the chosen position, and its cell

FULL_MIN = 0.2  # of all pairs; with fewer, the list is faster (measured with 1000 x 1000)
BLOCK = 16  # rows of a full matrix that are weighted at once: some 100 kB
ALIKE = 1e-9  # rows with a smaller relative difference are alike


class Flow(Protocol):
    """What a stream carries. Immutable."""

    @property
    def sources(self) -> Ids:
        """The numbers of the partitions that send."""
        ...

    @property
    def targets(self) -> Ids:
        """The numbers of the partitions that receive."""
        ...

    @property
    def rate(self) -> Rates:
        """Records/s that each target gets."""
        ...

    def received(self, values: Rates) -> Rates:
        """By target, the weighted sum over its sources of values (..., all partitions)."""
        ...

    def sent(self, values: Rates) -> Rates:
        """By source, the weighted sum over its targets of a value for each target."""
        ...

    def best_source(self, worth: Rates, *, alike: bool) -> Best:
        """By target, the source with the highest weighted worth, the first of these.

        `worth` has a value of 0 or more for each source; `alike` counts every weight above 0 as 1.
        """
        ...

    def best_target(self, worth: Rates, *, alike: bool) -> Best:
        """By source, the target with the highest weighted worth; `worth` is by target."""
        ...


def flow_of(substreams: Sequence[tuple[int, int, float]], source: int, target: int) -> Flow:
    """`source` and `target` are the numbers of the operators' first partitions."""
    table = np.array(substreams, dtype=np.float64)
    table = table[np.lexsort((table[:, 0], table[:, 1]))]
    targets, starts, row = np.unique(
        table[:, 1].astype(np.int64) + target, return_index=True, return_inverse=True
    )
    sources, column = np.unique(table[:, 0].astype(np.int64) + source, return_inverse=True)
    rate = np.add.reduceat(table[:, 2], starts)
    # If all rates of a target are 0 they are unknown, and each substream counts the same.
    known = rate[row] > 0
    counts = np.diff(np.append(starts, len(table)))
    weight = np.where(known, table[:, 2], 1.0) / np.where(known, rate[row], counts[row])
    if len(table) < FULL_MIN * len(targets) * len(sources):
        by_source = np.argsort(column, kind="stable")
        ends = np.searchsorted(column[by_source], np.arange(len(sources)))
        return Listed(sources, targets, rate, weight, row, column, starts, by_source, ends)
    matrix = np.zeros((len(targets), len(sources)))
    matrix[row, column] = weight
    if (np.abs(matrix - matrix[0]) <= ALIKE * matrix[0]).all():
        return Even(sources, targets, rate, matrix[0])
    return Full(sources, targets, rate, matrix, matrix.T.copy())


@dataclass(frozen=True, slots=True)
class Even:
    """Every target gets the same mix of all sources."""

    sources: Ids
    targets: Ids
    rate: Rates
    weight: Rates  # by source

    def received(self, values: Rates) -> Rates:
        each = values[..., self.sources] @ self.weight
        return np.repeat(each[..., None], len(self.targets), axis=-1)

    def sent(self, values: Rates) -> Rates:
        return np.asarray(self.weight * values.sum())

    def best_source(self, worth: Rates, *, alike: bool) -> Best:
        at = int(np.argmax((self.weight > 0 if alike else self.weight) * worth))
        shape = len(self.targets)
        return np.full(shape, at), np.full(shape, self.weight[at])

    def best_target(self, worth: Rates, *, alike: bool) -> Best:
        return np.full(len(self.sources), np.argmax(worth)), self.weight


@dataclass(frozen=True, slots=True)
class Full:
    """Many pairs exist: the matrix, with 0 for a missing substream."""

    sources: Ids
    targets: Ids
    rate: Rates
    weight: Rates  # (targets, sources)
    by_source: Rates  # (sources, targets)

    def received(self, values: Rates) -> Rates:
        return _product(values[..., self.sources], self.by_source)

    def sent(self, values: Rates) -> Rates:
        return _product(values, self.weight)

    def best_source(self, worth: Rates, *, alike: bool) -> Best:
        return _best_of_rows(self.weight, worth, alike=alike)

    def best_target(self, worth: Rates, *, alike: bool) -> Best:
        return _best_of_rows(self.by_source, worth, alike=alike)


def _product(values: Rates, weight: Rates) -> Rates:
    """`values @ weight`, skipping rows of zeros: a plan has few of many partitions."""
    some = np.flatnonzero(values.reshape(-1, len(weight)).any(axis=0))
    if 2 * len(some) > len(weight):
        return np.asarray(values @ weight)
    return np.asarray(values[..., some] @ weight[some])


def _best_of_rows(weight: Rates, worth: Rates, *, alike: bool) -> Best:
    """By row, the first column with the highest weighted worth. The products stay in the cache."""
    at = np.empty(len(weight), np.int64)
    weighed = np.empty((BLOCK, len(worth)))
    for start in range(0, len(weight), BLOCK):
        rows = weight[start : start + BLOCK]
        np.multiply(rows > 0 if alike else rows, worth, out=weighed[: len(rows)])
        at[start : start + BLOCK] = weighed[: len(rows)].argmax(axis=1)
    return at, weight[np.arange(len(at)), at]


@dataclass(frozen=True, slots=True)
class Listed:
    """Few pairs exist: the substreams, sorted by target."""

    sources: Ids
    targets: Ids
    rate: Rates
    weight: Rates  # by substream
    row: Ids  # by substream: the position of its target
    column: Ids  # by substream: the position of its source
    starts: Ids  # by target: where its substreams begin
    by_source: Ids  # by substream: its position when they are sorted by source
    source_starts: Ids  # by source: where its substreams begin in that order

    def received(self, values: Rates) -> Rates:
        carried = values[..., self.sources[self.column]] * self.weight
        return np.asarray(np.add.reduceat(carried, self.starts, axis=-1))

    def sent(self, values: Rates) -> Rates:
        carried = self.weight * values[self.row]
        return np.asarray(np.bincount(self.column, carried, len(self.sources)), dtype=np.float64)

    def best_source(self, worth: Rates, *, alike: bool) -> Best:
        at = _first_best(self._weighed(worth[self.column], alike=alike), self.starts)
        return self.column[at], self.weight[at]

    def best_target(self, worth: Rates, *, alike: bool) -> Best:
        weighed = self._weighed(worth[self.row], alike=alike)
        at = self.by_source[_first_best(weighed[self.by_source], self.source_starts)]
        return self.row[at], self.weight[at]

    def _weighed(self, worth: Rates, *, alike: bool) -> Rates:
        return np.asarray((self.weight > 0 if alike else self.weight) * worth)


def _first_best(worth: Rates, starts: Ids) -> Ids:
    """The first position of the highest value of each group."""
    counts = np.diff(np.append(starts, len(worth)))
    highest = np.repeat(np.maximum.reduceat(worth, starts), counts)
    positions = np.where(worth == highest, np.arange(len(worth)), len(worth))
    return np.asarray(np.minimum.reduceat(positions, starts))
