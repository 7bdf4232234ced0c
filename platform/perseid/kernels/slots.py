"""The places of an open-addressing hash table of slots (`state.index`), for many keys at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perseid.kernels.library import kernels

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


def find(hashes: Int64s, slots: Int32s, wanted: Int64s, places: Int64s) -> Int64s:
    """For each wanted hash the slot of the next key with it, from its place in `places` on.

    -1 if there is none. `places` becomes the places found.
    """
    mask = _mask(hashes, slots)
    assert len(wanted) == len(places), "a place for each hash"
    assert not len(places) or 0 <= places.min() <= places.max() <= mask, "places"
    wanted, found = np.ascontiguousarray(wanted), np.empty(len(wanted), np.int64)
    kernels().perseid_slots_find(
        hashes.ctypes.data, slots.ctypes.data, mask, wanted.ctypes.data, len(wanted),
        places.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    return found


def insert(hashes: Int64s, slots: Int32s, added: Int64s, given: Int64s) -> None:
    """Adds keys, by their hashes, with the slots `given`; needs a free place beyond theirs."""
    mask = _mask(hashes, slots)
    assert len(added) == len(given) <= mask, "a slot for each key"
    added, given = np.ascontiguousarray(added), np.ascontiguousarray(given)
    kernels().perseid_slots_insert(
        hashes.ctypes.data, slots.ctypes.data, mask, added.ctypes.data, given.ctypes.data,
        len(added),
    )  # fmt: skip


def number(hashes: Int64s) -> tuple[Int64s, Int64s]:
    """The number of each row's hash, by first appearance, and the first row of each number."""
    rows = len(hashes)
    hashes = np.ascontiguousarray(hashes, np.int64)
    places = np.full(1 << (rows * 2).bit_length(), -1, np.int32)
    numbers, firsts = np.empty(rows, np.int64), np.empty(rows, np.int64)
    count = kernels().perseid_slots_number(
        hashes.ctypes.data, rows, places.ctypes.data, len(places) - 1,
        numbers.ctypes.data, firsts.ctypes.data,
    )  # fmt: skip
    return numbers, firsts[:count]


def _mask(hashes: Int64s, slots: Int32s) -> int:
    places = len(slots)
    assert len(hashes) == places and places & (places - 1) == 0, "a power of two of places"
    return places - 1
