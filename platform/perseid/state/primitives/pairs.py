"""Pairs of rows with equal keys: the core of a join.

The wanted keys are hashed and compared with all rows of the other side, so the changing side needs
no index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.state.primitives.keys import Distinct
from perseid.state.primitives.undo import Slots, Values


def pairs(wanted: Distinct, columns: list[Any]) -> tuple[Slots, Slots]:
    """(input row of `wanted`, row of `columns`) for each pair, sorted by the first, then second."""
    group = groups(wanted.arrays, columns)
    hits = np.flatnonzero(group >= 0)
    hits = hits[np.argsort(group[hits], kind="stable")]  # by key
    stops = np.cumsum(np.bincount(group[hits], minlength=len(wanted)))
    starts = np.append(0, stops[:-1])
    keys = wanted.spread(np.arange(len(wanted)))  # of each input row
    left, places = spread(starts[keys], stops[keys])
    return left, hits[places]


def spread(starts: Slots, stops: Slots) -> tuple[Slots, Slots]:
    """Ranges of rows as pairs: (number of the range, row), in that order."""
    counts = stops - starts
    ranges = np.repeat(np.arange(len(starts)), counts)
    nth = np.arange(len(ranges)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranges, starts[ranges] + nth


def groups(wanted: tuple[pa.Array, ...], columns: list[Any]) -> Values:
    """For each row of `columns`, which of the different keys `wanted` it has, or -1."""
    rows = indexes(columns[0], wanted[0])
    if len(columns) == 1:
        return rows
    rows, keys = indexes(columns[0], wanted[0].unique()), indexes(wanted[0], wanted[0].unique())
    for column, values in zip(columns[1:], wanted[1:], strict=True):
        different = values.unique()
        found = indexes(column, different)
        absent = (rows < 0) | (found < 0)
        prefixes = pa.array(keys * len(different) + indexes(values, different))
        every = prefixes.unique()  # numbered again, so that the products stay small
        keys = indexes(prefixes, every)
        rows = indexes(pa.array(rows * len(different) + found, mask=absent), every)
    place = np.full(len(wanted[0]) + 1, -1)  # the last place is for rows without a key
    place[keys] = np.arange(len(keys))
    return place[rows]


def indexes(values: Any, among: pa.Array) -> Values:
    """The index of each value in `among`, -1 if it is missing."""
    found = pc.index_in(values, value_set=among)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    plain: Values = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return plain
