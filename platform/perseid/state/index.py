"""From keys to slots: an open-addressing hash table in NumPy, for many keys at a time.

A Python dictionary misses the processor's caches several times for each key, one after another;
the misses of all keys overlap here (README, Figures). It knows hashes and slots only: whether
two keys with equal hashes are equal is asked of the caller, who has the keys.

A place holds a slot, EMPTY, or GONE (a removed key, which a search must step over). At most half of
the places are used, so searches are short; growing drops the GONE ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

EMPTY, GONE = -1, -2
PLACES_MIN = 2048

# (slots, rows) -> for each pair, whether the stored key in the slot is the key of the row
Same = Callable[[Numbers, Numbers], Bools]


class SlotIndex:
    """Slots by hash. Slots are below 2**31."""

    def __init__(self) -> None:
        self._reset(PLACES_MIN)

    def find(self, hashes: Numbers, same: Same) -> Numbers:
        """The slot of each key, -1 where there is none."""
        out = np.full(len(hashes), -1, np.int64)
        rows = np.arange(len(hashes))
        places = hashes & self._mask
        while len(rows):
            slots = self._slots[places]
            hit = np.flatnonzero((self._hashes[places] == hashes) & (slots >= 0))
            found = hit[same(slots[hit], rows[hit])]
            out[rows[found]] = slots[found]
            onward = slots != EMPTY
            onward[found] = False
            left = np.flatnonzero(onward)
            rows, hashes, places = rows[left], hashes[left], (places[left] + 1) & self._mask
        return out

    def insert(self, hashes: Numbers, slots: Numbers) -> None:
        """Adds keys that are not there, each with a slot of its own."""
        self._make_room(len(slots))
        places = hashes & self._mask
        self._used += len(slots)
        while len(slots):
            free = self._slots[places] == EMPTY
            self._slots[places[free]] = slots[free]
            # Of several keys at one free place one has won; the others go on to the next place.
            won = self._slots[places] == slots
            self._hashes[places[won]] = hashes[won]
            lost = ~won
            hashes, slots = hashes[lost], slots[lost]
            places = (places[lost] + 1) & self._mask

    def remove(self, hashes: Numbers, slots: Numbers) -> None:
        """Removes keys that are there, given with their slots."""
        places = hashes & self._mask
        while len(slots):
            here = self._slots[places] == slots
            self._slots[places[here]] = GONE
            slots, places = slots[~here], (places[~here] + 1) & self._mask

    def renumber(self, new_slots: Numbers) -> None:
        """Gives each key the slot `new_slots[old slot]`."""
        held = np.flatnonzero(self._slots >= 0)
        hashes, slots = self._hashes[held], new_slots[self._slots[held]]
        self._reset(places_for(len(slots)))
        self.insert(hashes, slots)

    def _make_room(self, count: int) -> None:
        if (self._used + count) * 2 <= len(self._slots):
            return
        held = np.flatnonzero(self._slots >= 0)
        hashes, slots = self._hashes[held], cast(Numbers, self._slots[held])
        self._reset(places_for(len(held) + count))
        if len(held):
            self.insert(hashes, slots)

    def _reset(self, places: int) -> None:
        self._mask = places - 1
        self._slots = np.full(places, EMPTY, np.int32)
        self._hashes = np.zeros(places, np.int64)
        self._used = 0  # places that are not EMPTY


def places_for(count: int) -> int:
    """Places so that `count` keys use less than half of them: a power of two."""
    return max(PLACES_MIN, 1 << (count * 2).bit_length())


def hash_numbers(values: np.ndarray[Any, np.dtype[Any]]) -> Numbers:
    """splitmix64's finaliser: different numbers have different hashes."""
    mixed = values.astype(np.int64).view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(Numbers, (mixed ^ (mixed >> np.uint64(31))).view(np.int64))


def hash_objects(values: np.ndarray[Any, np.dtype[Any]]) -> Numbers:
    """Python's own hashes."""
    return np.fromiter(map(hash, values.tolist()), np.int64, len(values))
