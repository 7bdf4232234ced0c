"""Event times of an operator's rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.columns import conform, numbers
from perseid.state.undo import Slots


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
    """BadInputError for columns that the rows have not."""
    missing = [name for name in columns if name not in rows.column_names]
    if missing:
        raise BadInputError(
            f"library:{operator}: its input has no column {missing[0]!r}, but "
            f"{', '.join(rows.column_names)}; write one of them in `with:`"
        )


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return conform(column, column.type, "column")
