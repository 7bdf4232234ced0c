"""Keys to slots: an open-addressing hash table, for many keys at a time.

A Python dictionary has several cache misses per key, one after another; here the misses of many
keys overlap (`kernels.slots`; decisions/0008). The index knows hashes and slots only: for keys with
equal hashes it asks the caller, who has the keys, whether they are equal.

A place holds a slot, EMPTY, or GONE (a removed key, which a search must skip). At most half of the
places are used, so searches are short; growing drops the GONE ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa

from perseid.kernels import hashing, slots

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

EMPTY, GONE = -1, -2
PLACES_MIN = 2048
_SEED = 0x5EED  # differs from the partition function's: its hashes agree in their low bits here

# (slots, rows) -> for each pair, whether the stored key in the slot is the key of the row
Same = Callable[[Numbers, Numbers], Bools]


class SlotIndex:
    """Slots by hash. Slots are below 2**31."""

    def __init__(self) -> None:
        self._reset(PLACES_MIN)

    def find(self, hashes: Numbers, same: Same) -> Numbers:
        """The slot of each key, -1 where there is none."""
        places = hashes & self._mask
        out = slots.find(self._hashes, self._slots, hashes, places)
        rows = np.flatnonzero(out >= 0)
        while len(rows):  # other keys with the same hash: nearly always none
            rows = rows[~same(out[rows], rows)]
            onward = (places[rows] + 1) & self._mask
            out[rows] = slots.find(self._hashes, self._slots, hashes[rows], onward)
            places[rows] = onward
            rows = rows[out[rows] >= 0]
        return out

    def insert(self, hashes: Numbers, given: Numbers) -> None:
        """Adds new keys, each with a slot of its own."""
        self._make_room(len(given))
        slots.insert(self._hashes, self._slots, hashes, given)
        self._used += len(given)

    def remove(self, hashes: Numbers, removed: Numbers) -> None:
        """Removes existing keys, given with their slots."""
        places = hashes & self._mask
        while len(removed):
            here = self._slots[places] == removed
            self._slots[places[here]] = GONE
            removed, places = removed[~here], (places[~here] + 1) & self._mask

    def renumber(self, new_slots: Numbers) -> None:
        """Gives each key the slot `new_slots[old slot]`."""
        held = np.flatnonzero(self._slots >= 0)
        hashes, renumbered = self._hashes[held], new_slots[self._slots[held]]
        self._reset(places_for(len(renumbered)))
        self.insert(hashes, renumbered)

    def _make_room(self, count: int) -> None:
        if (self._used + count) * 2 <= len(self._slots):
            return
        held = np.flatnonzero(self._slots >= 0)
        hashes, again = self._hashes[held], self._slots[held].astype(np.int64)
        self._reset(places_for(len(held) + count))
        if len(held):
            self.insert(hashes, again)

    def _reset(self, places: int) -> None:
        self._mask = places - 1
        self._slots = np.full(places, EMPTY, np.int32)
        self._hashes = np.zeros(places, np.int64)
        self._used = 0  # places that are not EMPTY


def places_for(count: int) -> int:
    """Number of places so that `count` keys use less than half of them: a power of two."""
    return max(PLACES_MIN, 1 << (count * 2).bit_length())


def hash_numbers(values: np.ndarray[Any, np.dtype[Any]]) -> Numbers:
    """splitmix64's finaliser: different numbers have different hashes."""
    mixed = values.astype(np.int64).view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(Numbers, (mixed ^ (mixed >> np.uint64(31))).view(np.int64))


def hash_texts(values: pa.Array) -> Numbers:
    """XXH64 of strings or binaries, with a seed that makes it independent of their partition."""
    seeds = np.full(len(values), _SEED, np.uint64)
    return cast(Numbers, hashing.xxh64(values, seeds).view(np.int64))
