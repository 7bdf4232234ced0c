"""Kafka's own partition of a key, for many keys at once: murmur2 as Java and librdkafka have it.

Sink topics are partitioned as other producers would, so that their consumers find a key where they
look for it. Keys are grouped by length: one NumPy pass per length hashes all keys of that length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)
_BLOCK_ROWS = 1000  # rows without a key that stay together, so a small epoch touches one partition


def murmur2(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """The 32-bit hash of every key."""
    hashes = np.empty(len(keys), dtype=np.uint32)
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        rows = np.flatnonzero(lengths == length)
        same = keys if len(rows) == len(keys) else [keys[i] for i in rows.tolist()]
        block = np.frombuffer(b"".join(same), dtype=np.uint8).reshape(len(rows), length)
        hashes[rows] = _hash_block(block)
    return hashes


def partitions(
    keys: Sequence[bytes | None], count: int, first_unkeyed: int = 0
) -> NDArray[np.int64]:
    """The partition of each record among `count`.

    Records without a key go to one partition after another in blocks, from `first_unkeyed` on: the
    same for a re-run, unlike the client's random choice.
    """
    keyed = [k for k in keys if k is not None]
    hashed = (murmur2(keyed) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    if len(keyed) == len(keys):
        return hashed
    found = np.empty(len(keys), dtype=np.int64)
    present = np.fromiter((k is not None for k in keys), dtype=bool, count=len(keys))
    found[present] = hashed
    ordinals = np.arange(len(keys) - len(keyed))
    found[~present] = (first_unkeyed + ordinals // _BLOCK_ROWS) % count
    return found


def _hash_block(block: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """murmur2 of each row; all rows have the same length. Overflow of uint32 is meant."""
    rows, length = block.shape
    state = np.full(rows, _SEED ^ length, dtype=np.uint32)
    whole = length - length % 4
    words = np.ascontiguousarray(block[:, :whole]).view("<u4")
    for column in range(whole // 4):
        k = words[:, column] * _M
        k ^= k >> _R
        k *= _M
        state = (state * _M) ^ k
    for place in range(length - whole):
        state ^= block[:, whole + place].astype(np.uint32) << np.uint32(8 * place)
    if length > whole:
        state *= _M
    state ^= state >> np.uint32(13)
    state *= _M
    state ^= state >> np.uint32(15)
    return state
