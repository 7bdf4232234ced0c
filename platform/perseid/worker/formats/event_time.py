"""Event times of source rows: their values, which are wrong, which are late. Pure, vectorised.

A row is late when its event time is below the watermark of its token, so every run of the epoch
finds the same rows late.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.worker.formats.years import END_S, FIRST_S

Times = npt.NDArray[np.int64]  # milliseconds since 1970

FIRST_MS = FIRST_S * 1000  # the year 1
END_MS = END_S * 1000  # the year 10000: microseconds taken for milliseconds are above it
UNKNOWN = np.iinfo(np.int64).min


def milliseconds(column: pa.Array | pa.ChunkedArray) -> Times:
    """The milliseconds of a timestamp column, or of int64 milliseconds; UNKNOWN for nulls."""
    times: Times = pc.fill_null(column.cast(pa.int64()), UNKNOWN).to_numpy()
    if not pa.types.is_timestamp(column.type) or column.type.unit != "us":
        return times
    return np.where(times == UNKNOWN, UNKNOWN, times // 1000)


def wrong(times: Times) -> list[int]:
    """The rows without a time between the years 1 and 9999."""
    found: list[int] = np.flatnonzero((times < FIRST_MS) | (times >= END_MS)).tolist()
    return found


def refusal(column: str, time_ms: Any) -> str:
    """Why a row of `wrong` is refused."""
    digits = len(str(abs(int(time_ms))))  # enough to recognise its unit
    found = "null" if time_ms == UNKNOWN else f"a number of {digits} digits"
    return (
        f"its event time in column {column} is {found}, expected milliseconds since 1970, of the "
        "years 1 to 9999"
    )


def largest(times: Times) -> int | None:
    """The largest valid time."""
    fine = times[(times >= FIRST_MS) & (times < END_MS)]
    return int(fine.max()) if len(fine) else None


def late(times: Times, watermark_ms: int | None) -> list[int]:
    """The rows below the watermark; excludes rows without a time."""
    if watermark_ms is None:
        return []
    found: list[int] = np.flatnonzero((times < watermark_ms) & (times >= FIRST_MS)).tolist()
    return found


def late_refusals(rows: list[int], times: Times, watermark_ms: int | None) -> dict[int, str]:
    """Why each of the late rows is a dead letter."""
    return {
        i: f"late: its event time is {times[i]}, and the watermark is {watermark_ms}" for i in rows
    }


def without(table: pa.Table, rows: list[int]) -> pa.Table:
    """`table` without `rows`."""
    if not rows:
        return table
    keep = np.ones(table.num_rows, bool)
    keep[rows] = False
    return table.filter(pa.array(keep))
