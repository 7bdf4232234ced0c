"""XXH64 over Arrow and NumPy columns, all rows at once.

The algorithm is that of https://github.com/Cyan4973/xxHash (doc/xxhash_spec.md). Keys of 32 bytes
and more, which have another main loop and are rare, go through the xxhash library one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_LONG = 32

Hashes = npt.NDArray[np.uint64]


def hashed_bits(kind: pa.DataType) -> int | None:
    """How a key column of `kind` is hashed: 0 as bytes, 64 or 32 as an integer; None: it is none.

    Two columns with equal values have equal hashes when, and only when, this is the same.
    """
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return 0
    if pa.types.is_integer(kind):
        return 64 if kind.bit_width == 64 else 32
    return None


def of_bytes(values: pa.LargeBinaryArray, seeds: Hashes) -> Hashes:
    """The hash of each value with its seed; of a null, the hash of no bytes."""
    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    data = values.buffers()[2] or pa.py_buffer(b"")
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = seeds + np.uint64(_P5) + lengths.astype(np.uint64)
    with np.errstate(over="ignore"):
        done = _lanes(found, data, starts, lengths)
        _tails(found, data, starts + done, lengths - done)
        found = _avalanche(found)
    for row in np.flatnonzero(lengths >= _LONG).tolist():
        value = data[int(starts[row]) : int(starts[row] + lengths[row])]
        found[row] = xxhash.xxh64_intdigest(value, int(seeds[row]))
    return found


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


def _lanes(found: Hashes, data: Any, starts: Any, lengths: Any) -> Any:
    """Takes in all whole eights of bytes of short values; how many bytes those are."""
    done = np.where(lengths < _LONG, lengths & ~7, lengths)
    words = _at_every_byte(data, np.dtype("<u8"))
    for lane in range(0, _LONG, 8):
        rows = np.flatnonzero((lengths >= lane + 8) & (lengths < _LONG))
        if not len(rows):
            break
        found[rows] = _eight(found[rows], words[starts[rows] + lane])
    return done


def _tails(found: Hashes, data: Any, starts: Any, left: Any) -> None:
    """Takes in what is left behind the eights: a four, then up to three bytes."""
    rows = np.flatnonzero(left >= 4)
    if len(rows):
        words = _at_every_byte(data, np.dtype("<u4"))
        found[rows] = _four(found[rows], words[starts[rows]].astype(np.uint64))
    starts, left = starts + (left & 4), left & 3
    octets = np.frombuffer(data, np.uint8)
    for place in range(3):
        rows = np.flatnonzero(left > place)
        if not len(rows):
            break
        octet = octets[starts[rows] + place].astype(np.uint64)
        found[rows] = _rotate(found[rows] ^ octet * np.uint64(_P5), 11) * np.uint64(_P1)


def _at_every_byte(data: Any, kind: np.dtype[Any]) -> Any:
    """A view of `data` whose element i is the number of `kind` that begins at byte i."""
    count = max(0, len(data) - kind.itemsize + 1)
    return np.ndarray((count,), kind, np.frombuffer(data, np.uint8), strides=(1,))


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
