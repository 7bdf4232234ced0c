"""SlotIndex against a dictionary, with hashes that collide all the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.state import Table
from perseid.state.primitives import keys
from perseid.state.primitives.index import SlotIndex, hash_numbers, places_for

# A key is (hash, number): many have the same hash, and many hashes the same first place.
KEY = st.tuples(st.sampled_from([0, 1, 2, 2047, 2048, -1]), st.integers(0, 5))
STEP = st.tuples(st.sampled_from(["insert", "remove", "renumber"]), st.sets(KEY, max_size=10))


class Keyed:
    """An index with the keys that its caller would have."""

    def __init__(self) -> None:
        self.index = SlotIndex()
        self.by_slot: list[tuple[int, int]] = []
        self.model: dict[tuple[int, int], int] = {}

    def find(self, wanted: list[tuple[int, int]]) -> list[int]:
        def same(slots: Any, rows: Any) -> Any:
            pairs = zip(slots.tolist(), rows.tolist(), strict=True)
            return np.array([self.by_slot[slot] == wanted[row] for slot, row in pairs], bool)

        found: list[int] = self.index.find(hashes_of(wanted), same).tolist()
        return found

    def insert(self, chosen: list[tuple[int, int]]) -> None:
        new = [key for key in chosen if key not in self.model]
        slots = range(len(self.by_slot), len(self.by_slot) + len(new))
        self.index.insert(hashes_of(new), np.array(slots, np.int64))
        self.by_slot += new
        self.model.update(zip(new, slots, strict=True))

    def remove(self, chosen: list[tuple[int, int]]) -> None:
        old = [key for key in chosen if key in self.model]
        slots = np.array([self.model.pop(key) for key in old], np.int64)
        self.index.remove(hashes_of(old), slots)

    def renumber(self) -> None:
        order = sorted(self.model, key=self.model.__getitem__)
        new_slots = np.zeros(len(self.by_slot), np.int64)
        for slot, key in enumerate(order):
            new_slots[self.model[key]] = slot
        self.index.renumber(new_slots)
        self.by_slot = order
        self.model = {key: slot for slot, key in enumerate(order)}


def hashes_of(wanted: list[tuple[int, int]]) -> Any:
    return np.array([key[0] for key in wanted], np.int64)


@given(st.lists(STEP, max_size=30))
def test_find_knows_what_was_inserted_and_not_removed(steps: list[tuple[str, set[Any]]]) -> None:
    keyed = Keyed()
    everything = [(h, n) for h in (0, 1, 2, 2047, 2048, -1) for n in range(6)]
    for what, chosen in steps:
        if what == "renumber":
            keyed.renumber()
        elif what == "insert":
            keyed.insert(sorted(chosen))
        else:
            keyed.remove(sorted(chosen))
        assert keyed.find(everything) == [keyed.model.get(key, -1) for key in everything]


def test_it_grows_and_forgets_removed_keys() -> None:
    keyed = Keyed()
    for start in range(0, 6000, 500):
        keyed.insert([(n * 7, 0) for n in range(start, start + 500)])
        keyed.remove([(n * 7, 0) for n in range(start - 500, start - 100)])
    wanted = [(n * 7, 0) for n in range(6500)]
    assert keyed.find(wanted) == [keyed.model.get(key, -1) for key in wanted]
    assert len(keyed.index._slots) <= places_for(6000)


def test_a_table_of_keys_with_equal_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "hash_texts", lambda values: np.zeros(len(values), np.int64))
    table = Table(key=pa.string(), n=pa.int64())
    names = [f"k{n}" for n in range(60)]
    table.add(names, n=range_array(60))
    table.delete(names[::2])
    assert table.add(["k1", "k0", "k59"], n=100)["n"].to_pylist() == [101, 100, 159]
    assert table.lookup(["k2", "k3"])["n"].to_pylist() == [None, 3]


def range_array(count: int) -> pa.Array:
    return pa.array(np.arange(count))


def test_hashes_of_numbers_are_different_and_spread() -> None:
    hashes = hash_numbers(np.arange(-50_000, 50_000))
    assert len(np.unique(hashes)) == 100_000
    filled = len(np.unique(hashes & 0xFFFF))
    assert filled > 0.75 * 65536  # of 100,000 random ones 78 % of the places would be taken
    shifted = hash_numbers(np.arange(1000) << 40)
    assert len(np.unique(shifted & 0xFFFF)) > 950
