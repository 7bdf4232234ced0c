"""The state of the simulated job: a sum and a count for each word, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from perseid.state import Table
from perseid.state.primitives.primitive import Primitive


class Sums(Primitive):
    """`Table.add` for a few rows: a normal seed takes a fifth less time than with `Table`."""

    def __init__(self, *columns: str) -> None:
        self._names = columns
        self._schema = _sums_schema(columns)
        self._rows: dict[str, list[int]] = {}
        self._changed: dict[str, None] = {}
        self._added: pa.Table | None = None  # the change of the one `add` since the last commit

    def add(self, keys: Any, **amounts: Any) -> pa.Table:
        changed: dict[str, None] = {}
        places = [self._names.index(name) for name in amounts]
        columns = [a if isinstance(a, int) else a.to_pylist() for a in amounts.values()]
        for number, key in enumerate(keys.to_pylist()):
            row = self._rows.setdefault(key, [0] * len(self._names))
            for place, column in zip(places, columns, strict=True):
                row[place] += column if isinstance(column, int) else column[number]
            changed[key] = None
        alone = not self._changed
        self._changed.update(changed)
        table = self._table(changed)
        self._added = table if alone else None
        return table

    def fresh(self) -> Sums:
        return Sums(*self._names)

    def shard_key(self, key: Sequence[str]) -> dict[str, pa.DataType]:
        return {"key": pa.string()}

    def schema(self) -> dict[str, Any]:
        """Returns a table's schema, so that its parts are merged as a table's."""
        return Table(key=pa.string(), **dict.fromkeys(self._names, pa.int64())).schema()

    def delta(self) -> pa.Table | None:
        if self._added is None and self._changed:
            return self._table(self._changed)
        return self._added

    def commit(self) -> None:
        self._changed, self._added = {}, None

    def apply(self, delta: pa.Table) -> None:
        assert not self._changed, "apply on uncommitted changes"
        keys, *columns = (column.to_pylist() for column in delta.columns)
        self._rows.update(zip(keys, map(list, zip(*columns, strict=True)), strict=True))

    def snapshot(self) -> pa.Table:
        return self._table(self._rows)

    def restore(self, snapshot: pa.Table) -> None:
        self._rows, self._changed, self._added = {}, {}, None
        self.apply(snapshot)

    @property
    def size_bytes(self) -> int:
        return 8 * len(self._names) * len(self._rows)

    @property
    def rows(self) -> int:
        return len(self._rows)

    def _table(self, keys: Iterable[str]) -> pa.Table:
        listed = list(keys)
        if not listed:
            return self._schema.empty_table()
        columns = zip(*[self._rows[key] for key in listed], strict=True)
        return pa.table([listed, *columns], schema=self._schema)


@cache
def _sums_schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([("key", pa.string()), *((name, pa.int64()) for name in columns)])
