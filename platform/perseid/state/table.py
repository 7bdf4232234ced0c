"""`Table`: rows by key, the primitive for counts, sums, latest values and look-ups.

An index gives each key a slot, columns hold the values by slot. Slots only go up: a deleted
key's slot stays empty until the table is compacted, and a key that comes back gets a new one. So
the order of slots is the order of insertion, and base plus deltas gives that order again: an
operator that scans after a restore sees what it would have seen without the crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.state.columns import Column, Slots, Values, conform, grown, numbers
from perseid.state.index import SlotIndex
from perseid.state.keys import Distinct, KeyFields
from perseid.state.primitives import Primitive

DELETED = "__deleted"
FOUND = "found"
CAPACITY_MIN = 1024


class Table(Primitive):
    """`Table(key=pa.string(), n=pa.int64())`: a column `key` and a column `n`.

    A composite key is a dict: `Table(key={"user": pa.string(), "day": pa.date32()}, n=...)`. Keys
    are given as an Arrow array, composite ones as a table, record batch or dict of arrays; values
    as arrays of the same length, or one Python value for all rows.
    """

    def __init__(
        self, key: pa.DataType | Mapping[str, pa.DataType], **columns: pa.DataType
    ) -> None:
        self._keys = KeyFields(key)
        self._types = dict(columns)
        taken = [n for n in columns if n in self._keys.types or n in (DELETED, FOUND)]
        if taken:
            raise BadInputError(f"Table columns {taken}: these names are taken, choose others")
        self._clear()

    def fresh(self) -> Table:
        return Table(self._keys.types, **self._types)

    def schema(self) -> dict[str, Any]:
        return {
            "kind": "table",
            "key": {name: str(kind) for name, kind in self._keys.types.items()},
            "columns": {name: str(kind) for name, kind in self._types.items()},
        }

    # What operators call ------------------------------------------------------------------------

    def add(self, keys: Any, **amounts: Any) -> pa.Table:
        """Adds to number columns and returns the changed rows, one a key, by first appearance.

        A key that is new starts at zero in number columns and at null in others. A null amount
        adds nothing. Integers that do not fit are refused, and then nothing is changed.
        """
        distinct = self._keys.distinct(keys)
        slots = self._find(distinct)
        known = np.flatnonzero(slots >= 0)
        totals = {}
        for name, amount in amounts.items():
            column = self._number_column(name)
            totals[name] = self._amounts(column, name, amount, distinct)
            if len(known):
                totals[name][known] = column.sums(slots[known], totals[name][known])
        new = self._insert(distinct, slots)
        for name, total in totals.items():
            self._columns[name].put_numbers(slots, total)
        for column in self._columns.values():
            if len(new) and not column.is_number:
                column.put_null(slots[new])
        self._dirty[slots] = True
        return self._rows(distinct.arrays, slots)

    def upsert(self, keys: Any, **values: Any) -> pa.Table:
        """Sets columns; the last row of a key wins. Returns the changed rows, one a key.

        A column that is not named keeps its value, and is null for a new key.
        """
        distinct = self._keys.distinct(keys)
        last = distinct.last_rows()
        count = len(distinct) if distinct.rows is None else len(distinct.rows)
        arrays = {}
        for name, value in values.items():
            array = self._array(name, value, count)
            arrays[name] = array if last is None else array.take(pa.array(last))
        slots = self._find(distinct)
        new = self._insert(distinct, slots)
        for name, column in self._columns.items():
            if name in arrays:
                column.put(slots, arrays[name])
            elif len(new):
                column.put_null(slots[new])
        self._dirty[slots] = True
        return self._rows(distinct.arrays, slots)

    def lookup(self, keys: Any) -> pa.Table:
        """A row for each row of `keys`: key columns, values (null where absent), and `found`."""
        arrays = self._keys.arrays(keys)
        distinct = self._keys.distinct(dict(zip(self._keys.types, arrays, strict=True)))
        slots = self._find(distinct)
        if distinct.rows is not None:
            slots = slots[distinct.rows]
        found = slots >= 0
        places = pa.array(np.cumsum(found) - 1, mask=~found)
        out = dict(zip(self._keys.types, arrays, strict=True))
        for name, column in self._columns.items():
            out[name] = column.take(slots[found]).take(places)
        out[FOUND] = pa.array(found)
        return pa.table(out)

    def delete(self, keys: Any) -> int:
        """Removes keys, known or not; returns how many were there."""
        return self._remove(self._keys.distinct(keys), tracked=True)

    def scan(self) -> pa.Table:
        """All rows, in the order in which their keys came."""
        slots = self._live_slots()
        return self._rows([column.take(slots) for column in self._key_columns], slots)

    def __len__(self) -> int:
        return self._count

    # What the worker calls ----------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        columns = self._all_columns
        fixed = sum(column.row_bytes for column in columns)
        return self._count * fixed + sum(column.variable_bytes for column in columns)

    def delta(self) -> pa.Table | None:
        """Deleted keys, then changed rows; a key that went and came back is in both parts."""
        changed = np.flatnonzero(self._dirty[: self._next])
        if not len(changed) and not self._gone:
            return None
        rows = self._rows([column.take(changed) for column in self._key_columns], changed)
        rows = rows.append_column(DELETED, flags(rows, False))
        gone = [part.append_column(DELETED, flags(part, True)) for part in self._gone]
        parts = [rows.slice(0, 0), *gone, rows]  # the empty one sets the order of columns
        return pa.concat_tables(parts, promote_options="default")

    def commit(self) -> None:
        self._dirty[: self._next] = False
        self._born[: self._next] = False
        self._gone.clear()

    def apply(self, delta: pa.Table) -> None:
        assert not self._gone, "apply on uncommitted changes"
        assert not self._dirty[: self._next].any(), "apply on uncommitted changes"
        self._agree([*self._keys.types, *self._types, DELETED], delta)
        deleted = delta[DELETED]
        self._remove(self._keys.known_distinct(delta.filter(deleted)), tracked=False)
        self._load(delta.filter(pc.invert(deleted)))

    def apply_all(self, deltas: Sequence[pa.Table]) -> None:
        """Neighbours that delete nothing become one delta: a restore has hundreds of small ones."""
        if len(deltas) < 2:
            super().apply_all(deltas)
            return
        waiting: list[pa.Table] = []
        for delta in deltas:
            if pc.any(delta[DELETED]).as_py():
                self._apply_merged(waiting)
                waiting = []
                self.apply(delta)
            else:
                waiting.append(delta)
        self._apply_merged(waiting)

    def _apply_merged(self, deltas: list[pa.Table]) -> None:
        """Each key keeps the place of its first row, as if applied one by one, and its last row."""
        if not deltas:
            return
        rows = pa.concat_tables(deltas).combine_chunks()
        keys = self._keys.distinct(rows.select(list(self._keys.types)))
        last = keys.last_rows()
        self.apply(rows if last is None else rows.take(pa.array(last)))

    def snapshot(self) -> pa.Table:
        return self.scan()

    def restore(self, snapshot: pa.Table) -> None:
        self._agree([*self._keys.types, *self._types], snapshot)
        self._clear()
        self._load(snapshot)

    # Slots --------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._index = SlotIndex()
        self._count = 0
        self._key_columns = [Column(kind) for kind in self._keys.types.values()]
        self._columns = {name: Column(kind) for name, kind in self._types.items()}
        self._all_columns = [*self._key_columns, *self._columns.values()]
        self._next = 0  # slots below were given out
        self._live: Values = np.zeros(0, bool)
        self._dirty: Values = np.zeros(0, bool)  # changed since the last commit
        self._born: Values = np.zeros(0, bool)  # came since the last commit
        self._gone: list[pa.Table] = []  # keys of the last commit deleted since

    def _find(self, distinct: Distinct) -> Slots:
        """The slot of each key, -1 where there is none."""

        def same(slots: Slots, rows: Slots) -> Values:
            equal = np.ones(len(slots), bool)
            for column, values in zip(self._key_columns, distinct.values, strict=True):
                equal &= column.equal(slots, values[rows])
            return equal

        return self._index.find(distinct.hashes, same)

    def _insert(self, distinct: Distinct, slots: Slots) -> Slots:
        """Gives slots to the keys that have none, in `slots` itself; returns where they are."""
        new: Slots = np.flatnonzero(slots < 0)
        count = len(new)
        if not count:
            return new
        self._reserve(self._next + count)
        given = np.arange(self._next, self._next + count)
        slots[new] = given
        chosen = None if count == len(distinct) else pa.array(new)
        for column, array, values in zip(
            self._key_columns, distinct.arrays, distinct.values, strict=True
        ):
            if chosen is None:
                column.put(given, array, values)
            else:
                column.put(given, array.take(chosen), values[new])
        self._index.insert(distinct.hashes[new], given)
        self._count += count
        self._live[given] = True
        self._born[given] = True
        self._next += count
        return new

    def _remove(self, distinct: Distinct, *, tracked: bool) -> int:
        slots = self._find(distinct)
        present = np.flatnonzero(slots >= 0)
        if not len(present):
            return 0
        slots = slots[present]
        self._index.remove(distinct.hashes[present], slots)
        self._count -= len(slots)
        old = slots[~self._born[slots]]
        if tracked and len(old):
            keys = [column.take(old) for column in self._key_columns]
            self._gone.append(pa.table(dict(zip(self._keys.types, keys, strict=True))))
        for column in self._all_columns:
            column.clear(slots)
        for mask in (self._live, self._dirty, self._born):
            mask[slots] = False
        self._compact()
        return len(slots)

    def _reserve(self, count: int) -> None:
        if count <= len(self._live):
            return
        capacity = max(count, len(self._live) * 3 // 2, CAPACITY_MIN)
        for column in self._all_columns:
            column.grow(capacity)
        self._live = grown(self._live, capacity)
        self._dirty = grown(self._dirty, capacity)
        self._born = grown(self._born, capacity)

    def _compact(self) -> None:
        """Closes the holes once they are as many as the rows, so that it costs little per key."""
        if self._next - self._count <= max(CAPACITY_MIN, self._count):
            return
        live = np.flatnonzero(self._live[: self._next])
        self._index.renumber(np.cumsum(self._live[: self._next]) - 1)
        for column in self._all_columns:
            column.keep(live)
        self._dirty, self._born = self._dirty[live], self._born[live]
        self._live = np.ones(len(live), bool)
        self._next = len(live)

    def _live_slots(self) -> Slots | slice:
        if self._next == self._count:
            return slice(0, self._next)
        return np.flatnonzero(self._live[: self._next])

    # Rows ---------------------------------------------------------------------------------------

    def _rows(self, keys: Any, slots: Slots | slice) -> pa.Table:
        out = dict(zip(self._keys.types, keys, strict=True))
        out.update((name, column.take(slots)) for name, column in self._columns.items())
        return pa.table(out)

    def _load(self, rows: pa.Table) -> None:
        """Writes whole rows, as part of the base."""
        distinct = self._keys.known_distinct(rows)
        slots = self._find(distinct)
        new = self._insert(distinct, slots)
        for name, column in self._columns.items():
            column.put(slots, conform(rows[name], column.kind, f"column {name!r}"))
        self._born[slots[new]] = False

    def _number_column(self, name: str) -> Column:
        column = self._column(name)
        if not column.is_number:
            raise BadInputError(f"add() to column {name!r} of type {column.kind}: not a number")
        return column

    def _column(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is None:
            raise BadInputError(f"no column {name!r}; the table has {list(self._columns)}")
        return column

    def _amounts(self, column: Column, name: str, amount: Any, distinct: Distinct) -> Values:
        """The amount of each distinct key, summed in the order of the rows."""
        rows = distinct.rows
        array = self._array(name, amount, len(distinct) if rows is None else len(rows))
        amounts = numbers(array)
        if rows is None:
            return amounts.copy()
        sums = np.zeros(len(distinct), amounts.dtype)
        np.add.at(sums, rows, amounts)
        if np.issubdtype(amounts.dtype, np.integer) and may_overflow(amounts):
            refuse_wrong_sums(sums, amounts, rows, column.kind)
        return sums

    def _array(self, name: str, value: Any, count: int) -> pa.Array:
        kind = self._column(name).kind
        what = f"column {name!r}"
        if isinstance(value, pa.Array | pa.ChunkedArray | list | tuple | np.ndarray):
            array = conform(value, kind, what)
        else:
            single = value.as_py() if isinstance(value, pa.Scalar) else value
            array = conform([single], kind, what).take(pa.array(np.zeros(count, np.int64)))
        if len(array) != count:
            raise BadInputError(f"{what} has {len(array)} rows, the keys have {count}")
        return array

    def _agree(self, names: list[str], rows: pa.Table) -> None:
        if rows.schema.names != names:
            raise BadInputError(
                f"state with the columns {rows.schema.names} is not of a table with {names}"
            )


def flags(rows: pa.Table, value: bool) -> pa.Array:
    return pa.array(np.full(len(rows), value))


def may_overflow(amounts: Values) -> bool:
    """Whether some sum of `amounts` might not fit; almost never true."""
    if not len(amounts):
        return False
    largest = max(int(amounts.max()), -int(amounts.min()))
    return largest * len(amounts) > int(np.iinfo(amounts.dtype).max)


def refuse_wrong_sums(sums: Values, amounts: Values, rows: Slots, kind: pa.DataType) -> None:
    exact: dict[int, int] = {}
    for row, amount in zip(rows.tolist(), amounts.tolist(), strict=True):
        exact[row] = exact.get(row, 0) + amount
    wrong = [total for row, total in exact.items() if total != int(sums[row])]
    if wrong:
        raise BadInputError(f"the sum {wrong[0]} does not fit into {kind}; declare a wider column")
