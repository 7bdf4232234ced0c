"""Hashes of string and binary keys, of a whole array at once."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.kernels.library import binary, kernels


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Kafka's 32-bit hash of every key, as in its Java client; a null hashes like an empty key."""
    hashes = np.empty(len(keys), np.uint32)
    kernels().perseid_murmur2(byref(binary(keys)), len(keys), hashes.ctypes.data)
    return hashes


def xxh64(values: pa.Array, seeds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """XXH64 of every value with its own seed; a null hashes like an empty value."""
    hashes = np.array(seeds, np.uint64)
    assert len(hashes) == len(values), "a seed for each value"
    kernels().perseid_xxh64(byref(binary(values)), len(values), hashes.ctypes.data)
    return hashes
