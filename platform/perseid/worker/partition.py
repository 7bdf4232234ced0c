"""The partition function of shuffles and buffers: pmod(xxhash64(key columns), P), as Spark has it.

It is computed here and not by a Spark expression because rows cross the shuffle as whole Arrow
blobs, one for each consumer. tests/system compares it with Spark's own `xxhash64`.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from perseid.errors import PermanentError

SEED = 42  # Spark's
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

Hashes = npt.NDArray[np.uint64]


def partitions(table: pa.Table, key: tuple[str, ...], count: int) -> npt.NDArray[np.int64]:
    """For each row the operator partition, 0 <= p < `count`, that its key belongs to."""
    if count == 1 or table.num_rows == 0:
        return np.zeros(table.num_rows, dtype=np.int64)
    seeds: Hashes | int = SEED
    for name in key:
        seeds = _hash(table.column(name), name, seeds)
    hashes = np.broadcast_to(np.asarray(seeds, dtype=np.uint64), (table.num_rows,))
    return np.mod(hashes.astype(np.int64, copy=False), count)


def _hash(column: pa.ChunkedArray, name: str, seeds: Hashes | int) -> Hashes:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return _hash_bytes(column, seeds)
    if pa.types.is_integer(kind):
        return _hash_integers(column, kind.bit_width, seeds)
    raise PermanentError(
        f"key column {name!r} has type {kind}: expected string, binary or an integer type; "
        "cast it in the operator before (for instance CAST(x AS STRING) in SQL)"
    )


def _hash_bytes(column: pa.ChunkedArray, seeds: Hashes | int) -> Hashes:
    """XXH64 of the bytes; a null leaves the seed as it is, as Spark does."""
    if not isinstance(seeds, int):
        values = column.cast(pa.binary()).to_pylist()
        return _digests(values, seeds.tolist(), len(values))
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    words = coded.dictionary.cast(pa.binary()).to_pylist()
    table = np.append(_digests(words, repeat(seeds), len(words)), np.uint64(seeds))
    found: Hashes = table[coded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
    return found


def _digests(values: list[Any], seeds: Any, count: int) -> Hashes:
    if None in values:
        pairs = zip(values, seeds, strict=False)
        found = [s if v is None else xxhash.xxh64_intdigest(v, s) for v, s in pairs]
        return np.array(found, dtype=np.uint64)
    return np.fromiter(map(xxhash.xxh64_intdigest, values, seeds), np.uint64, count)


def _hash_integers(column: pa.ChunkedArray, bits: int, seeds: Hashes | int) -> Hashes:
    """Spark hashes 64-bit integers as 8 bytes and all shorter ones as 4."""
    nulls = column.is_null().to_numpy()
    start = np.broadcast_to(np.asarray(seeds, dtype=np.uint64), (len(column),))
    wide = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    with np.errstate(over="ignore"):
        hashed = _xxh64_of_8(wide, start) if bits == 64 else _xxh64_of_4(wide, start)
    return np.where(nulls, start, hashed)


def _rotate(x: Hashes, bits: int) -> Hashes:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _avalanche(h: Hashes) -> Hashes:
    h = (h ^ (h >> np.uint64(33))) * np.uint64(_P2)
    h = (h ^ (h >> np.uint64(29))) * np.uint64(_P3)
    return h ^ (h >> np.uint64(32))


def _xxh64_of_8(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    k = _rotate(values.view(np.uint64) * np.uint64(_P2), 31) * np.uint64(_P1)
    h = seeds + np.uint64(_P5) + np.uint64(8)
    return _avalanche(_rotate(h ^ k, 27) * np.uint64(_P1) + np.uint64(_P4))


def _xxh64_of_4(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    k = (values & 0xFFFFFFFF).view(np.uint64) * np.uint64(_P1)
    h = seeds + np.uint64(_P5) + np.uint64(4)
    return _avalanche(_rotate(h ^ k, 23) * np.uint64(_P2) + np.uint64(_P3))
