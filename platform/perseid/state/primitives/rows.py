"""Rows by key in slots: the storage of `Table` and `Set`, and how an epoch is rolled back.

An index gives each key a slot, columns hold the values by slot. Slot numbers only increase: a
deleted key's slot stays empty until the rows are compacted, and a key that returns gets a new one.
So the order of slots is the order of insertion, and base plus deltas gives that order again: an
operator that scans after a restore sees the same order as without the crash.

Slots do not change until the commit. So the last commit had a key if its slot is below the first
one allocated since; a deleted key stays in its slot until then, for the delta, for `rollback` and
for the divergence.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from perseid.errors import DamagedFile
from perseid.state.primitives.columns import Column, conform, grown
from perseid.state.primitives.index import SlotIndex
from perseid.state.primitives.keys import Distinct, KeyFields, hashed
from perseid.state.primitives.texts import column_of
from perseid.state.primitives.undo import Slots, Values

CAPACITY_MIN = 1024


class KeyedRows:
    """Rows of the columns `types`, by keys of the fields `keys`."""

    def __init__(self, keys: KeyFields, types: Mapping[str, pa.DataType]) -> None:
        self.keys = keys
        self.columns = {name: column_of(kind) for name, kind in types.items()}
        self.key_columns = {name: column_of(kind) for name, kind in keys.types.items()}
        self._all: list[Column] = [*self.key_columns.values(), *self.columns.values()]
        self._index = SlotIndex()
        self._live: Values = np.zeros(0, bool)
        self._dirty: Values = np.zeros(0, bool)  # written since the last commit
        self._tags: Values | None = None  # the backup's numbers of keys, 0 for none
        self._gone: list[Slots] = []  # slots of the last commit, deleted since
        self._next = 0  # lower slots are allocated
        self._count = 0
        self._base_next = 0  # both at the last commit
        self._base_count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        fixed = sum(column.row_bytes for column in self._all)
        return self._count * fixed + sum(column.variable_bytes for column in self._all)

    # Find, insert, remove -----------------------------------------------------------------------

    def find(self, distinct: Distinct) -> Slots:
        """The slot of each key, -1 where there is none."""

        def same(slots: Slots, rows: Slots) -> Values:
            equal = np.ones(len(slots), bool)
            for column, values in zip(self.key_columns.values(), distinct.values, strict=True):
                equal &= column.equal(slots, values, rows)
            return equal

        return self._index.find(distinct.hashes, same)

    def insert(self, distinct: Distinct, slots: Slots) -> Slots:
        """Allocates slots for keys without one, in `slots` itself; returns their indices.

        The caller writes every column of the new slots.
        """
        new: Slots = np.flatnonzero(slots < 0)
        count = len(new)
        if not count:
            return new
        self._reserve(self._next + count)
        given = np.arange(self._next, self._next + count)
        slots[new] = given
        for column, array, values in zip(
            self.key_columns.values(), distinct.arrays, distinct.values, strict=True
        ):
            if count == len(distinct):
                column.put(given, array, values)
            else:
                column.put_rows(given, array, values, new)
        self._index.insert(distinct.hashes[new], given)
        self._count += count
        self._live[given] = True
        self._next += count
        return new

    def touch(self, slots: Slots) -> None:
        """Marks `slots` as written."""
        self._dirty[slots] = True

    def remove(self, distinct: Distinct) -> int:
        """Removes keys, known or not; returns how many existed."""
        slots = self.find(distinct)
        present = np.flatnonzero(slots >= 0)
        self._remove(distinct.hashes[present], slots[present])
        return len(present)

    def remove_slots(self, slots: Slots) -> None:
        self._remove(self.keys_of(slots).hashes, slots)

    def load(self, rows: pa.Table, *, save: bool) -> None:
        """Writes whole rows from a primitive, one per key; `save`: for `rollback`."""
        distinct = self.keys.known_distinct(rows)
        slots = self.find(distinct)
        known = slots[slots >= 0]
        self.insert(distinct, slots)
        self._write(rows, slots, known if save else None)

    def load_at(self, rows: pa.Table, places: Slots, known: int, *, save: bool) -> None:
        """Like `load`, for rows by their places; the first `known` exist, the others are new.

        DamagedFile when the key of a new row exists.
        """
        old = places[:known]
        if self.has_holes:
            old = np.flatnonzero(self._live[: self._next])[old]
        distinct = self.keys.known_distinct(rows.slice(known))
        slots = self.find(distinct)
        if (slots >= 0).any():
            raise DamagedFile(
                "a delta by row adds a row whose key is there: it was made for another state"
            )
        self.insert(distinct, slots)
        self._write(rows, np.concatenate([old, slots]), old if save else None)

    def _write(self, rows: pa.Table, slots: Slots, saved: Slots | None) -> None:
        for name, column in self.columns.items():
            if saved is not None:
                column.save(saved)
            column.put(slots, conform(rows[name], column.kind, f"column {name!r}"))
        self.touch(slots)

    # Read ---------------------------------------------------------------------------------------

    def take(self, slots: Slots | slice) -> pa.Table:
        """Key columns and columns of `slots`."""
        columns = {**self.key_columns, **self.columns}
        return pa.table({name: column.take(slots) for name, column in columns.items()})

    def keys_of(self, slots: Slots) -> Distinct:
        return hashed(tuple(column.take(slots) for column in self.key_columns.values()))

    @property
    def has_holes(self) -> bool:
        """Whether deleted rows have left gaps; without gaps, slots are places."""
        return self._next != self._count

    def all_slots(self) -> Slots | slice:
        if self.has_holes:
            return np.flatnonzero(self._live[: self._next])
        return slice(0, self._next)

    def tag_all(self) -> None:
        """Keeps a number for each key from now on, 0 at first; it is lost with the key."""
        self._tags = np.zeros(len(self._live), np.int64)

    def tags(self, slots: Slots) -> Slots:
        assert self._tags is not None, "tag_all comes first"
        found: Slots = self._tags[slots]
        return found

    def set_tags(self, slots: Slots, tags: Slots) -> None:
        assert self._tags is not None, "tag_all comes first"
        self._tags[slots] = tags

    # What changed since the last commit -----------------------------------------------------------

    @property
    def changed(self) -> bool:
        return bool(self._gone) or bool(self._dirty[: self._next].any())

    def written(self) -> Slots:
        """Slots that were written and still exist, sorted."""
        return np.flatnonzero(self._dirty[: self._next])

    def gone(self) -> Slots:
        """Slots of the last commit that were deleted, in that order; their keys are readable."""
        return np.concatenate(self._gone) if self._gone else np.zeros(0, np.int64)

    def is_base(self, slots: Slots) -> Values:
        """Which of `slots` the last commit had."""
        return slots < self._base_next

    def commit(self) -> None:
        self._dirty[: self._next] = False
        for slots in self._gone:
            for column in self._all:
                column.drop(slots)
        self._gone.clear()
        for column in self._all:
            column.commit()
        self._compact()
        self._base_next, self._base_count = self._next, self._count

    def rollback(self) -> None:
        """Back to the last commit: O(changes)."""
        born = np.arange(self._base_next, self._next)
        alive = born[self._live[born]]
        if len(alive):
            self._index.remove(self.keys_of(alive).hashes, alive)
        gone = self.gone()
        if len(gone):
            self._index.insert(self.keys_of(gone).hashes, gone)
        for column in self._all:
            column.weigh(gone, +1)
            column.rollback()
            column.weigh(born, -1)
            column.drop(born)
        self._live[gone], self._live[born] = True, False
        self._dirty[: self._next] = False
        self._gone.clear()
        self._next, self._count = self._base_next, self._base_count

    # Slots --------------------------------------------------------------------------------------

    def _remove(self, hashes: Slots, slots: Slots) -> None:
        if not len(slots):
            return
        self._index.remove(hashes, slots)
        self._count -= len(slots)
        base = self.is_base(slots)
        if base.any():
            self._gone.append(slots[base])
        for column in self._all:
            column.weigh(slots, -1)
            column.drop(slots[~base])
        self._live[slots] = False
        self._dirty[slots] = False

    def _reserve(self, count: int) -> None:
        if count <= len(self._live):
            return
        capacity = max(count, len(self._live) * 3 // 2, CAPACITY_MIN)
        for column in self._all:
            column.grow(capacity)
        self._live = grown(self._live, capacity)
        self._dirty = grown(self._dirty, capacity)
        if self._tags is not None:
            self._tags = grown(self._tags, capacity)

    def _compact(self) -> None:
        """Closes the holes once they are as many as the rows, so that the cost per key is small."""
        if self._next - self._count <= max(CAPACITY_MIN, self._count):
            return
        live = np.flatnonzero(self._live[: self._next])
        self._index.renumber(np.cumsum(self._live[: self._next]) - 1)
        for column in self._all:
            column.keep(live)
        if self._tags is not None:
            self._tags = self._tags[live]
        self._live = np.ones(len(live), bool)
        self._dirty = np.zeros(len(live), bool)
        self._next = len(live)
