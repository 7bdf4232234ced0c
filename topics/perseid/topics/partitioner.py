"""Kafka's partition of a key, for many keys at once: murmur2 as in Java and librdkafka.

Sink topics are partitioned like those of other producers, so that consumers find a key in the
expected partition.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from perseid.kernels.hashing import murmur2

_BLOCK_ROWS = 1000  # rows without a key that stay together, so a small epoch touches one partition


def partitions(keys: pa.BinaryArray, count: int, first_unkeyed: int = 0) -> NDArray[np.int64]:
    """The partition of each record among `count`.

    Records without a key go to one partition after another in blocks, from `first_unkeyed` on: the
    same in a repeated run, unlike the client's random choice.
    """
    found: NDArray[np.int64] = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    if keys.null_count:
        unkeyed = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        found[unkeyed] = (first_unkeyed + np.arange(len(unkeyed)) // _BLOCK_ROWS) % count
    return found
