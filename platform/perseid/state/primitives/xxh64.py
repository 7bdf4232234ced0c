"""XXH64 over Arrow and NumPy columns, all rows at once.

The algorithm is that of https://github.com/Cyan4973/xxHash (doc/xxhash_spec.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.kernels import hashing

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

Hashes = npt.NDArray[np.uint64]


def hashed_bits(kind: pa.DataType) -> int | None:
    """How a key column of `kind` is hashed: 0 as bytes, 64 or 32 as an integer; None: not a key.

    Equal values in two columns have equal hashes if, and only if, this number is the same.
    """
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return 0
    if pa.types.is_integer(kind):
        return 64 if kind.bit_width == 64 else 32
    return None


def of_bytes(values: pa.Array, seeds: Hashes) -> Hashes:
    """The hash of each string or binary with its seed; a null hashes like an empty one."""
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())
    return hashing.xxh64(values, seeds)


def of_int64(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """Each value hashed as 8 little-endian bytes."""
    with np.errstate(over="ignore"):
        found = seeds + np.uint64(_P5) + np.uint64(8)
        return _avalanche(_eight(found, values.view(np.uint64)))


def of_int32(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """The low 32 bits of each value hashed as 4 little-endian bytes."""
    with np.errstate(over="ignore"):
        found = seeds + np.uint64(_P5) + np.uint64(4)
        return _avalanche(_four(found, (values & 0xFFFFFFFF).view(np.uint64)))


def _eight(found: Hashes, values: Hashes) -> Hashes:
    k = _rotate(values * np.uint64(_P2), 31) * np.uint64(_P1)
    return _rotate(found ^ k, 27) * np.uint64(_P1) + np.uint64(_P4)


def _four(found: Hashes, values: Hashes) -> Hashes:
    return _rotate(found ^ values * np.uint64(_P1), 23) * np.uint64(_P2) + np.uint64(_P3)


def _rotate(x: Hashes, bits: int) -> Hashes:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _avalanche(h: Hashes) -> Hashes:
    h = (h ^ (h >> np.uint64(33))) * np.uint64(_P2)
    h = (h ^ (h >> np.uint64(29))) * np.uint64(_P3)
    return h ^ (h >> np.uint64(32))
