"""Keyed rows at the marked backup, for keys that have changed since.

It costs something only while divergence is on: `note` is called at a commit with the keys that the
epoch changed, and writes nothing into the rows themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.state.primitives.columns import Column
from perseid.state.primitives.divergence import Distance, differences, distance, same_bits
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.rows import KeyedRows
from perseid.state.primitives.texts import TextColumn, column_of
from perseid.state.primitives.undo import Cells, Slots, Values

TAG = "tag"
CAPACITY_MIN = 1024


class RowsBackup:
    """Of every key that changed since the mark: its row then, and its distance from the row now.

    A missing key, and a null, count as zero; equality of rows is exact. Each key has a number for
    its entry, which is the tag of the key's slot; 0 means none. Only for a key that returns after a
    deletion is the number looked up by key.
    """

    def __init__(self, keys: KeyFields, types: dict[str, pa.DataType], rows: KeyedRows) -> None:
        self._then = {name: column_of(kind) for name, kind in types.items()}
        self._apart = {n: Column(pa.float64()) for n, c in self._then.items() if c.is_number}
        self._there, self._differs = Column(pa.bool_()), Column(pa.bool_())
        self._lost = KeyedRows(keys, {TAG: pa.int64()})
        self._capacity, self._next = 0, 1
        self._reserve(CAPACITY_MIN)
        rows.tag_all()

    def distance(self, kind: Distance) -> float:
        """The last commit's distance from the mark; O(keys changed since the mark)."""
        kept = slice(0, self._next)
        if kind is Distance.KEYS:
            return float(np.count_nonzero(self._differs.cells(kept).values))
        return distance(kind, [column.cells(kept).values for column in self._apart.values()])

    def note(self, rows: KeyedRows) -> None:
        """Records the changes since the last commit; call it just before the next one."""
        written, gone = rows.written(), rows.gone()
        base = rows.is_base(written)
        if len(gone):
            self._lose(rows, gone)
        self._measure(self._of_base(rows, written[base]), rows, written[base])
        self._measure(self._of_born(rows, written[~base]), rows, written[~base])

    def _of_base(self, rows: KeyedRows, slots: Slots) -> Slots:
        """Numbers of keys of the last commit. A key without one has not changed since the mark."""
        numbers = rows.tags(slots)
        new = np.flatnonzero(numbers == 0)
        numbers[new] = self._given(len(new), there=True)
        for name, column in self._then.items():
            column.put(numbers[new], rows.columns[name].committed(slots[new]))
        rows.set_tags(slots, numbers)
        return numbers

    def _of_born(self, rows: KeyedRows, slots: Slots) -> Slots:
        """Numbers of keys that are new since the last commit; also since the mark, unless lost."""
        numbers = np.zeros(len(slots), np.int64)
        if len(self._lost) and len(slots):
            found = self._lost.find(rows.keys_of(slots))
            back = np.flatnonzero(found >= 0)
            numbers[back] = self._lost.columns[TAG].cells(found[back]).values
        new = np.flatnonzero(numbers == 0)
        numbers[new] = self._given(len(new), there=False)
        for column in self._then.values():
            column.put_null(numbers[new])
        rows.set_tags(slots, numbers)
        return numbers

    def _lose(self, rows: KeyedRows, slots: Slots) -> None:
        """Deleted keys: their distance is that of their old values from zero."""
        numbers = self._of_base(rows, slots)
        keys = rows.keys_of(slots)
        places = self._lost.find(keys)
        new = self._lost.insert(keys, places)
        self._lost.columns[TAG].put_numbers(places[new], numbers[new])
        for name, column in self._apart.items():
            then = self._then[name].cells(numbers).values
            column.put_numbers(numbers, differences(np.zeros_like(then), then))
        self._differs.put_numbers(numbers, self._there.cells(numbers).values)

    def _measure(self, numbers: Slots, rows: KeyedRows, slots: Slots) -> None:
        differs = ~self._there.cells(numbers).values
        for name, column in self._then.items():
            if isinstance(column, TextColumn):
                differs |= ~same_texts(rows.columns[name].take(slots), column.take(numbers))
                continue
            now, then = rows.columns[name].cells(slots), column.cells(numbers)
            differs |= ~same(now, then)
            if name in self._apart:
                self._apart[name].put_numbers(numbers, differences(now.values, then.values))
        self._differs.put_numbers(numbers, differs)

    def _given(self, count: int, *, there: bool) -> Slots:
        """New numbers; `there`: whether the mark had their keys."""
        given = np.arange(self._next, self._next + count)
        self._next += count
        self._reserve(self._next)
        self._there.put_numbers(given, np.full(count, there))
        return given

    def _reserve(self, count: int) -> None:
        if count > self._capacity:
            self._capacity = max(count, self._capacity * 3 // 2)
            for column in (*self._then.values(), *self._apart.values(), self._there, self._differs):
                column.grow(self._capacity)


def same(now: Cells, then: Cells) -> Values:
    """Where two columns are equal; two nulls are equal."""
    one, other = nulls_of(now), nulls_of(then)
    if now.values.dtype.hasobject:
        pairs: Any = zip(now.values.tolist(), then.values.tolist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), bool, len(one))
    return (one & other) | (~(one | other) & same_bits(now.values, then.values))


def same_texts(now: Any, then: Any) -> Values:
    """Like `same`, for texts in Arrow's form."""
    both_null = pc.and_(pc.is_null(now), pc.is_null(then))
    found: Values = pc.coalesce(pc.equal(now, then), both_null).to_numpy(zero_copy_only=False)
    return found


def nulls_of(cells: Cells) -> Values:
    return np.zeros(len(cells.values), bool) if cells.nulls is None else cells.nulls
