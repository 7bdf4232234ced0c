"""Keys as rows of tables: distinct ones, membership, and sums."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perseid.state.primitives.columns import conform
from perseid.state.primitives.folds import summed
from perseid.state.primitives.keys import KeyFields, codes, first_rows
from perseid.state.primitives.undo import Slots, Values


def added_up(batch: pa.Table, keys: KeyFields, column: str | None = None) -> pa.Table:
    """A row for each key, by first appearance, of its declared types.

    `n` is the number of its rows, or the sum of the int64 `column`, in which nulls are zero.
    BadInputError for null keys, and for sums that do not fit into 64 bits.
    """
    arrays = keys.arrays(batch)
    number, count = codes(arrays)
    if column is None:
        totals = np.bincount(number, minlength=count)
    else:
        amounts = conform(batch[column], pa.int64(), f"column {column!r}")
        totals = summed(amounts, number, count)
    chosen = pa.array(first_rows(number, count))
    found = {name: array.take(chosen) for name, array in zip(keys.types, arrays, strict=True)}
    return pa.table({**found, "n": totals})


def numbered(keys: pa.Table) -> tuple[Slots, int]:
    """A number for each different row by first appearance, and the count; nulls are equal."""
    return codes(tuple(map(_without_nulls, keys.columns)))


def _without_nulls(column: pa.ChunkedArray) -> pa.Array:
    array = conform(column, column.type, "a key")
    return array.dictionary_encode("encode").indices if array.null_count else array


def different(keys: pa.Table) -> pa.Table:
    """The different rows, in the order of their first appearance."""
    return keys.take(pa.array(first_rows(*numbered(keys))))


def among(keys: pa.Table, wanted: pa.Table) -> Values:
    """For each row of `keys`, whether it is one of `wanted`."""
    number, count = numbered(pa.concat_tables([wanted, keys]))
    known = np.zeros(count, bool)
    known[number[: wanted.num_rows]] = True
    inside: Values = known[number[wanted.num_rows :]]
    return inside
