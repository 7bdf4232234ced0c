"""Folds over rows with numbered keys that return every intermediate result."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perseid.kernels.library import kernels

Int64s = npt.NDArray[np.int64]


def running_sums(keys: Int64s, amounts: Int64s, after: Int64s) -> Int64s | None:
    """For each row the sum of its key up to it, if `after[k]` is the sum of key k so far.

    None: a sum does not fit into 64 bits.
    """
    assert len(keys) == len(amounts), "an amount for each row"
    assert not len(keys) or 0 <= keys.min() <= keys.max() < len(after), "numbers of keys"
    keys, amounts = (np.ascontiguousarray(a, np.int64) for a in (keys, amounts))
    held, sums = np.array(after, np.int64), np.empty(len(keys), np.int64)
    done = kernels().perseid_running_sums(
        keys.ctypes.data, amounts.ctypes.data, len(keys), held.ctypes.data, sums.ctypes.data
    )
    return sums if done == len(keys) else None
