"""Finds times outside the years 1 to 9999 in UTC. Pure, vectorised.

Arrow's parser accepts such times ("0001-01-01T00:00:00+01:00" is one in UTC); Python, and most
readers of an output, have no value for them. So a record with one is refused when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST_S = -62_135_596_800  # the year 1
END_S = 253_402_300_800  # the year 10000
PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}


def outside(times: pa.Array | pa.ChunkedArray, per_second: int) -> list[int]:
    """The rows of int64 `times` (`per_second` units per second since 1970) outside these years."""
    first, end = FIRST_S * per_second, END_S * per_second
    least, most = pc.min_max(times).as_py().values()
    if least is None or (first <= least and most < end):
        return []
    plain = pc.fill_null(times, 0).to_numpy()
    rows: list[int] = np.flatnonzero((plain < first) | (plain >= end)).tolist()
    return rows


def refused(table: pa.Table) -> dict[int, str]:
    """The rows with a timestamp outside these years, with the reason."""
    found: dict[int, str] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_timestamp(field.type) and field.type.unit != "ns":  # ns end in 2262
            for row in outside(column.cast(pa.int64()), PER_SECOND[field.type.unit]):
                found.setdefault(row, reason(field.name))
    return found


def reason(column: str) -> str:
    return f"column {column}: its time is outside of the years 1 to 9999 in UTC"


def places(count: int, refused: Sequence[int]) -> list[int]:
    """The indices of the accepted rows in a batch of `count` records."""
    kept: list[int] = np.delete(np.arange(count), list(refused)).tolist()
    return kept
