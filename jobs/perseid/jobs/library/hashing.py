"""XXH64 hashes for sketches: equal for equal values in every process and on every host.

A sketch outlives its process, so Python's `hash` cannot be used: for strings it differs between
processes. Strings and binaries are hashed as bytes, all other types as 64-bit integers. A `Table`
does not find its keys by these hashes: its index has hashes of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from perseid.state.primitives import xxh64
from perseid.state.primitives.columns import conform, numbers, type_is
from perseid.state.primitives.xxh64 import Hashes


def hashed(columns: Iterable[pa.Array | pa.ChunkedArray], seed: int = 0) -> Hashes:
    """Hashes each row over all columns; a column's hash is the seed of the next one's."""
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
