"""Event times of an operator's rows, and which rows are within a time of others. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.columns import conform, numbers
from perseid.state.primitives.undo import Slots

NEVER = -(2**62)  # before every time in ms


def milliseconds(rows: pa.Table, column: str, operator: str) -> Slots:
    """The times of `rows`: a column of int64 milliseconds since 1970, or a timestamp.

    Raises BadInputError for rows without a time: they would be in no window.
    """
    need(rows, [column], operator)
    times = one_array(rows[column])
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    elif times.type != pa.int64():
        raise BadInputError(
            f"library:{operator}: column {column!r} is of type {times.type}, expected a timestamp "
            "or int64 (milliseconds since 1970)"
        )
    if times.null_count:
        raise BadInputError(
            f"library:{operator}: column {column!r} is null in row "
            f"{times.is_null().index(True).as_py()}; every row needs its time: filter such rows out"
        )
    return np.asarray(numbers(times), np.int64)


def need(rows: pa.Table, columns: Iterable[str], operator: str) -> None:
    """BadInputError for columns that the rows do not have."""
    missing = [name for name in columns if name not in rows.column_names]
    if missing:
        raise BadInputError(
            f"library:{operator}: its input has no column {missing[0]!r}, but "
            f"{', '.join(rows.column_names)}; write one of them in `with:`"
        )


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return conform(column, column.type, "column")


def spans(
    groups: Slots, times: Slots, wanted: Slots, low: Slots, high: Slots
) -> tuple[Slots, Slots]:
    """Where in `groups` and `times` the rows of group `wanted[i]` from `low[i]` to `high[i]` are.

    `groups`, from 0, then `times` rise. Bounds are inclusive; row i has rows `starts[i]:stops[i]`.
    Times are replaced by their ranks, so that no product is too large.
    """
    ranks = np.unique(np.concatenate([times, low, high]))
    held = groups * len(ranks) + np.searchsorted(ranks, times)
    starts = np.searchsorted(held, wanted * len(ranks) + np.searchsorted(ranks, low), "left")
    stops = np.searchsorted(held, wanted * len(ranks) + np.searchsorted(ranks, high), "right")
    return starts, stops
