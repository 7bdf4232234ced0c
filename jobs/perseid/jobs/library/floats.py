"""Columns of numbers as one matrix."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.times import need, one_array
from perseid.records.redaction import like
from perseid.state.primitives.columns import conform
from perseid.state.primitives.undo import Values

LARGEST = 1e150  # its square is still finite


def matrix(rows: pa.Table, columns: list[str], operator: str) -> Values:
    """The columns as float64 of shape (columns, rows).

    BadInputError for nulls, NaN, infinity and values beyond 1e150: one such number would spoil all
    results that depend on it.
    """
    need(rows, columns, operator)
    found = np.empty((len(columns), rows.num_rows))
    for column, values in zip(columns, found, strict=True):
        array = conform(one_array(rows[column]), pa.float64(), f"column {column!r}")
        values[:] = array.to_numpy(zero_copy_only=False)  # a null becomes NaN
        wrong = ~(np.abs(values) <= LARGEST)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise BadInputError(
                f"library:{operator}: column {column!r} is {like(array[row])} in row {row}, "
                f"expected a number from -{LARGEST:g} to {LARGEST:g}; filter such rows out in the "
                "operator before"
            )
    return found
