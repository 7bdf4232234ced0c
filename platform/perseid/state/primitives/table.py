"""`Table`: rows by key; for counts, sums, extremes, latest values and look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.columns import Column, conform
from perseid.state.primitives.divergence import Distance
from perseid.state.primitives.folds import FOLDS
from perseid.state.primitives.keyed import Keyed
from perseid.state.primitives.undo import Slots

FOUND = "found"
Amounts = Mapping[str, Any]


class Table(Keyed):
    """`Table(key=pa.string(), n=pa.int64())`: a column `key` and a column `n`.

    A composite key is a dict: `Table(key={"user": pa.string(), "day": pa.date32()}, n=...)`. Keys
    are given as an Arrow array, composite ones as a table, record batch or dict of arrays, or as a
    result of `KeyFields.distinct`; values as arrays of the same length, or one Python value for all
    rows. With `ttl=timedelta(minutes=10)` rows expire, see `advance`.
    """

    kind = "table"
    distances = (Distance.MANHATTAN, Distance.EUCLIDEAN, Distance.MAXIMUM, Distance.KEYS)

    def __init__(
        self,
        key: pa.DataType | Mapping[str, pa.DataType],
        *,
        ttl: timedelta | None = None,
        **columns: pa.DataType,
    ) -> None:
        super().__init__(key, columns, ttl)
        taken = [n for n in columns if n in self._keys.types or n == FOUND]
        if taken:
            raise BadInputError(f"Table columns {taken}: these names are taken, choose others")

    def fresh(self) -> Table:
        return Table(self._keys.types, ttl=self._ttl, **self._types)

    def schema(self) -> dict[str, Any]:
        return {**super().schema(), "columns": {n: str(kind) for n, kind in self._types.items()}}

    # What operators call ------------------------------------------------------------------------

    def add(self, keys: Any, **amounts: Any) -> pa.Table:
        """Adds to number columns and returns the changed rows, one per key, by first appearance.

        A null, stored or added, counts as zero. Other columns keep their values, and are null for a
        new key. Integers that do not fit are refused without any change.
        """
        return self.fold(keys, add=amounts)

    def min(self, keys: Any, **amounts: Any) -> pa.Table:
        """Like `add`, keeping the smaller of old value and amounts, of numbers or points in time.

        Null and NaN amounts are ignored, and any number replaces a stored null or NaN.
        """
        return self.fold(keys, min=amounts)

    def max(self, keys: Any, **amounts: Any) -> pa.Table:
        """Like `min`, keeping the larger."""
        return self.fold(keys, max=amounts)

    def fold(
        self, keys: Any, *, add: Amounts | None = None,
        min: Amounts | None = None, max: Amounts | None = None,  # noqa: A002 - as the methods
    ) -> pa.Table:  # fmt: skip
        """`add`, `min` and `max` of different columns with one look-up of the keys."""
        self._check_time()
        distinct = self._keys.distinct(keys)
        slots = self._rows.find(distinct)
        found = slots >= 0
        known = slice(None) if found.all() else np.flatnonzero(found)  # a slice copies nothing
        folded = {}
        for how, amounts in (("add", add), ("min", min), ("max", max)):
            for name, amount in (amounts or {}).items():
                column = self._folding(name, how)
                array = self._array(name, amount, distinct.rows_given)
                old = column.save(slots[known])
                if name in folded:
                    raise BadInputError(f"column {name!r} is folded twice; name it once")
                folded[name] = FOLDS[how](array, distinct.rows, len(distinct), old, known)
        new = self._rows.insert(distinct, slots)
        for name, (values, nulls) in folded.items():
            self._rows.columns[name].put_numbers(slots, values, nulls)
        self._fill(slots[new], folded)
        self._wrote(slots)
        return self._changed(distinct.arrays, slots)

    def upsert(self, keys: Any, **values: Any) -> pa.Table:
        """Sets columns; the last row of a key wins. Returns the changed rows, one per key.

        Other columns keep their values, and are null for a new key.
        """
        self._check_time()
        distinct = self._keys.distinct(keys)
        last = distinct.last_rows()
        arrays = {}
        for name, value in values.items():
            array = self._array(name, value, distinct.rows_given)
            arrays[name] = array if last is None else array.take(pa.array(last))
        slots = self._rows.find(distinct)
        known = slots[slots >= 0]
        new = self._rows.insert(distinct, slots)
        for name, array in arrays.items():
            column = self._rows.columns[name]
            column.save(known)
            column.put(slots, array)
        self._fill(slots[new], arrays)
        self._wrote(slots)
        return self._changed(distinct.arrays, slots)

    def lookup(self, keys: Any) -> pa.Table:
        """A row for each row of `keys`: key columns, values (null where absent), and `found`."""
        arrays = self._keys.arrays(keys)
        distinct = self._keys.distinct(dict(zip(self._keys.types, arrays, strict=True)))
        slots = distinct.spread(self._rows.find(distinct))
        found = slots >= 0
        places = pa.array(np.cumsum(found) - 1, mask=~found)
        out = dict(zip(self._keys.types, arrays, strict=True))
        for name in self._types:
            out[name] = self._rows.columns[name].take(slots[found]).take(places)
        out[FOUND] = pa.array(found)
        return pa.table(out)

    def delete(self, keys: Any) -> int:
        """Removes keys, known or not; returns how many existed."""
        return self._rows.remove(self._keys.distinct(keys))

    # Columns ------------------------------------------------------------------------------------

    def _changed(self, keys: tuple[pa.Array, ...], slots: Slots) -> pa.Table:
        out = dict(zip(self._keys.types, keys, strict=True))
        out.update((name, self._rows.columns[name].take(slots)) for name in self._types)
        return pa.table(out)

    def _fill(self, new: Slots, named: Mapping[str, Any]) -> None:
        """Sets columns of new rows to null, except those in `named`."""
        for name in self._types:
            if len(new) and name not in named:
                self._rows.columns[name].put_null(new)

    def _folding(self, name: str, how: str) -> Column:
        column = self._column(name)
        if not (column.is_number if how == "add" else column.is_ordered):
            raise BadInputError(
                f"{how}() to column {name!r} of type {column.kind}: not a number"
                + ("" if how == "add" else " or a point in time")
            )
        return column

    def _column(self, name: str) -> Column:
        if name not in self._types:
            raise BadInputError(f"no column {name!r}; the table has {list(self._types)}")
        return self._rows.columns[name]

    def _array(self, name: str, value: Any, count: int) -> pa.Array:
        kind = self._column(name).kind
        what = f"column {name!r}"
        if isinstance(value, pa.Array | pa.ChunkedArray | list | tuple | np.ndarray):
            array = conform(value, kind, what)
        else:
            single = value.as_py() if isinstance(value, pa.Scalar) else value
            array = pa.repeat(conform([single], kind, what)[0], count)
        if len(array) != count:
            raise BadInputError(f"{what} has {len(array)} rows, the keys have {count}")
        return array
