"""`Pool`: a bag of rows with a time each; for windows and joins.

Rows are stored in order of arrival, in Arrow, in immutable chunks: a rollback restores the tuple of
chunks of the last commit. The delta is the added rows and the bound below which rows were removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.chunks import Chunk, cut, joined, since
from perseid.state.primitives.columns import conform, numbers, type_is
from perseid.state.primitives.divergence import Distance, chosen, unmarked
from perseid.state.primitives.keys import KeyFields, among
from perseid.state.primitives.pairs import pairs
from perseid.state.primitives.primitive import Primitive
from perseid.state.primitives.undo import Slots

BEFORE = b"perseid.before"  # metadata of a delta: all older rows were removed
PER_S = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class Pool(Primitive):
    """`Pool({"at": pa.timestamp("ms"), "user": pa.string(), "n": pa.int64()}, time="at")`.

    `time` is a timestamp or integer column; with `key=["user"]` rows can be found by key, see
    `match`. A bound in time is a datetime, or a number: milliseconds since 1970, like `self.now`;
    for an integer column, a number in its own units.
    """

    kind = "pool"

    _base: tuple[Chunk, ...]  # of the last commit, without the rows expired since
    _came: tuple[Chunk, ...]  # added since the last commit
    _committed: tuple[Chunk, ...]
    _bound: int | None  # the highest bound since the last commit that removed its rows
    _marked: int | None  # number of rows in the backup

    def __init__(
        self, columns: Mapping[str, pa.DataType], time: str, key: Sequence[str] = ()
    ) -> None:
        self._columns = pa.schema(list(columns.items()))
        self._time, self._key = time, tuple(key)
        missing = [name for name in (time, *key) if name not in columns]
        if missing:
            raise BadInputError(f"pool columns {list(columns)}: {missing} must be among them")
        if not (type_is.is_timestamp(columns[time]) or type_is.is_integer(columns[time])):
            raise BadInputError(
                f"pool: the time column {time!r} is of type {columns[time]}, expected a timestamp "
                "or an integer"
            )
        self._keys = KeyFields({name: columns[name] for name in key}) if key else None
        self._clear()

    def fresh(self) -> Pool:
        return Pool({f.name: f.type for f in self._columns}, self._time, self._key)

    def schema(self) -> dict[str, Any]:
        columns = {field.name: str(field.type) for field in self._columns}
        return {"kind": self.kind, "columns": columns, "time": self._time, "key": list(self._key)}

    # What operators call ------------------------------------------------------------------------

    def append(self, rows: pa.Table | pa.RecordBatch | Mapping[str, Any]) -> None:
        """Adds rows after the others; extra columns are left out."""
        names = list(rows) if isinstance(rows, Mapping) else rows.schema.names
        missing = [name for name in self._columns.names if name not in names]
        if missing:
            raise BadInputError(f"pool: columns {missing} are missing; given: {names}")
        arrays = [conform(rows[f.name], f.type, f"column {f.name!r}") for f in self._columns]
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1:
            raise BadInputError(f"pool: columns of different lengths {sorted(lengths)}")
        table = pa.table(arrays, schema=self._columns)
        for name in (self._time, *self._key):
            if table[name].null_count:
                row = table[name].combine_chunks().is_null().index(True).as_py()
                raise BadInputError(
                    f"pool: column {name!r} is null in row {row}; every row needs its time and "
                    "key: filter such rows out"
                )
        self._came = joined(self._came, self._chunks_of(table))

    def between(self, start: Any, end: Any) -> pa.Table:
        """Rows with `start <= time < end`, in order of arrival."""
        low, high = self._number(start), self._number(end)
        return self._table([part.between(low, high) for part in self._chunks])

    def expire(self, before: Any) -> int:
        """Removes the rows with `time < before`; returns how many."""
        return self._expire(self._number(before))

    def match(self, keys: Any) -> tuple[Slots, pa.Table]:
        """All pairs of a row of `keys` and a row of the pool with the same key.

        Returns the rows' indices in `keys`, ascending, and the pool's rows, in order of arrival for
        each index. So `batch.take(places)` and the returned rows match row by row. O(rows of the
        pool): the keys are hashed and compared with every row of the pool.
        """
        if self._keys is None:
            raise BadInputError("pool without a key: declare `key=[...]` to find rows by it")
        rows = self.scan()
        places, found = pairs(self._keys.distinct(keys), [rows[name] for name in self._key])
        return places, rows.take(pa.array(found))

    def scan(self) -> pa.Table:
        """All rows, in order of arrival."""
        return self._table([part.rows for part in self._chunks])

    def __len__(self) -> int:
        return self.rows

    # What the worker calls ----------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return sum(map(len, self._chunks))

    @property
    def size_bytes(self) -> int:
        return sum(part.bytes for part in self._chunks)

    def shard_key(self, key: Sequence[str]) -> Mapping[str, pa.DataType] | None:
        return among({field.name: field.type for field in self._columns}, key)

    def delta(self) -> pa.Table | None:
        """The added rows that still exist, with the highest bound of `expire`."""
        if not self._came and self._bound is None:
            return None
        came = self._table([part.rows for part in self._came])
        bound = {} if self._bound is None else {BEFORE: str(self._bound)}
        return came.replace_schema_metadata(bound)

    def commit(self) -> None:
        self._base = joined(self._base, self._came)
        self._committed = self._base
        self._came, self._bound = (), None

    def rollback(self) -> None:
        self._base = self._committed
        self._came, self._bound = (), None

    def apply(self, delta: pa.Table) -> None:
        assert not self._came and self._bound is None, "apply on uncommitted changes"
        came = self._loaded(delta)
        bound = (delta.schema.metadata or {}).get(BEFORE)
        if bound is not None:
            self._expire(int(bound))
        self._came = came
        self.commit()

    def snapshot(self) -> pa.Table:
        return self.scan()

    def restore(self, snapshot: pa.Table) -> None:
        came = self._loaded(snapshot)
        self._clear()
        self._came = came
        self.commit()

    def mark_backup(self) -> None:
        assert not self._came and self._bound is None, "mark_backup on uncommitted changes"
        self._marked = self.rows
        self._base = tuple(part.marked() for part in self._base)
        self._committed = self._base

    def divergence(self, kind: str) -> float:
        """The number of added rows that still exist plus that of the backup's removed rows."""
        chosen(kind, (Distance.KEYS,), self.kind)
        if self._marked is None:
            raise unmarked(self.kind)
        new = sum(part.new for part in self._committed)
        old = sum(map(len, self._committed)) - new
        return float(new + self._marked - old)

    # Rows ---------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._base = self._came = self._committed = ()
        self._bound = self._marked = None

    @property
    def _chunks(self) -> tuple[Chunk, ...]:
        return (*self._base, *self._came)

    def _expire(self, bound: int) -> int:
        """`bound` is in units of the time column."""
        rows, base = self.rows, self._base
        self._base, self._came = since(base, bound), since(self._came, bound)
        if sum(map(len, self._base)) < sum(map(len, base)):
            self._bound = bound if self._bound is None else max(bound, self._bound)
        return rows - self.rows

    def _loaded(self, rows: pa.Table) -> tuple[Chunk, ...]:
        if rows.schema.names != self._columns.names:
            raise BadInputError(
                f"state with the columns {rows.schema.names} is not of a pool with "
                f"{self._columns.names}"
            )
        return self._chunks_of(rows.replace_schema_metadata(None).cast(self._columns))

    def _chunks_of(self, rows: pa.Table) -> tuple[Chunk, ...]:
        return cut(rows, numbers(rows[self._time].combine_chunks()).astype(np.int64))

    def _table(self, parts: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._columns.empty_table(), *parts])

    def _number(self, time: Any) -> int:
        """A point in time in the units of the time column, rounded up."""
        kind = self._columns.field(self._time).type
        if isinstance(time, int | np.integer):
            ms = int(time)
            return ms if type_is.is_integer(kind) else -(-ms * PER_S[kind.unit] // 1000)
        plain = time.as_py() if isinstance(time, pa.Scalar) else time
        array = conform([plain], kind, f"pool: a bound of the time column {self._time!r}")
        if array.null_count:
            raise BadInputError("pool: a bound in time is null; expected a point in time")
        return int(numbers(array)[0])
