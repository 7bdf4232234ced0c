"""Hashes for sketches: the same for the same value in every process and on every host.

Python's own hashes, which find keys in a `Table`, are not: those of strings differ from process to
process, and a sketch outlives its process.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from perseid.state.primitives import xxh64
from perseid.state.primitives.columns import conform, numbers, type_is
from perseid.state.primitives.xxh64 import Hashes


def hashed(columns: Iterable[pa.Array | pa.ChunkedArray], seed: int = 0) -> Hashes:
    """One XXH64 for each row over all columns, each column's hash the seed of the next one's."""
    found: Hashes | None = None
    for column in columns:
        if found is None:
            found = np.full(len(column), seed, np.uint64)
        if type_is.is_string(column.type) or type_is.is_binary(column.type):
            found = xxh64.of_bytes(conform(column, pa.binary(), "a column to hash"), found)
        else:
            plain = numbers(conform(column, column.type, "a column to hash"))
            found = xxh64.of_int64(plain.astype(np.int64), found)
    assert found is not None, "nothing to hash"
    return found
