"""The partition function of shuffles and buffers: pmod(xxhash64(key columns), P), as in Spark.

It is not a Spark expression because rows cross the shuffle as whole Arrow blobs, one for each
consumer. tests/system compares it with Spark's own `xxhash64`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError, PermanentError
from perseid.jobs.validation import key_types
from perseid.state.primitives import xxh64
from perseid.state.primitives.xxh64 import Hashes

SEED = 42  # Spark's


def partitions(table: pa.Table, key: tuple[str, ...], count: int) -> npt.NDArray[np.int64]:
    """The operator partition of each row's key, 0 <= p < `count`."""
    if count == 1 or table.num_rows == 0:
        return np.zeros(table.num_rows, dtype=np.int64)
    seeds: Hashes | int = SEED
    for name in key:
        if name not in table.column_names:
            raise BadInputError(
                f"the rows have no column {name}, which is a key of the next operator; they have "
                f"{', '.join(table.column_names)}. Emit it, and declare `output` so that `perseid "
                "jobs validate` reports it"
            )
        seeds = _hash(table.column(name), name, seeds)
    hashes = np.broadcast_to(np.asarray(seeds, dtype=np.uint64), (table.num_rows,))
    return np.mod(hashes.astype(np.int64, copy=False), count)


def grouped(
    parts: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row indices by partition, in row order, and where each of the `count` partitions begins."""
    # NumPy sorts 16-bit numbers by radix; for larger types it is ten times slower.
    order = parts.astype(np.uint16 if count <= 1 << 16 else np.int64).argsort(kind="stable")
    return order, np.append(0, np.bincount(parts, minlength=count).cumsum())


def _hash(column: pa.ChunkedArray, name: str, seeds: Hashes | int) -> Hashes:
    bits = xxh64.hashed_bits(column.type)
    if bits == 0:
        return _hash_bytes(column, seeds)
    if bits is not None:
        return _hash_integers(column, bits, seeds)
    raise PermanentError(
        f"key column {name!r} has type {column.type}: expected {key_types.EXPECTED}; "
        f"{key_types.CAST}"
    )


def check_inputs(operator: str, key: tuple[str, ...], tables: Mapping[str, pa.Table]) -> None:
    """BadInputError when inputs that have rows differ in the type of a key column."""
    if len(tables) < 2:
        return
    for column in key:
        kinds = {i: t.schema.field(column).type for i, t in tables.items() if t.num_rows}
        text = key_types.difference(column, kinds)
        if text:
            raise BadInputError(f"operator {operator}: key {text}")


def _hash_bytes(column: pa.ChunkedArray, seeds: Hashes | int) -> Hashes:
    """XXH64 of the bytes; a null leaves the seed unchanged, as in Spark."""
    start = np.broadcast_to(np.asarray(seeds, dtype=np.uint64), (len(column),))
    ends = np.cumsum([0, *map(len, column.chunks)])
    parts = zip(column.chunks, pairwise(ends), strict=True)
    hashed = [xxh64.of_bytes(chunk, start[first:end]) for chunk, (first, end) in parts]
    found = np.concatenate([np.zeros(0, np.uint64), *hashed])
    return np.where(column.is_null().to_numpy(), start, found) if column.null_count else found


def _hash_integers(column: pa.ChunkedArray, bits: int, seeds: Hashes | int) -> Hashes:
    """Spark hashes 64-bit integers as 8 bytes and all shorter ones as 4."""
    nulls = column.is_null().to_numpy()
    start = np.broadcast_to(np.asarray(seeds, dtype=np.uint64), (len(column),))
    wide = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    hashed = xxh64.of_int64(wide, start) if bits == 64 else xxh64.of_int32(wide, start)
    return np.where(nulls, start, hashed)
