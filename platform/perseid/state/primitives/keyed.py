"""The common part of `Table` and `Set`: everything except what operators call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.state.primitives import deltas
from perseid.state.primitives.backup import RowsBackup
from perseid.state.primitives.divergence import Distance, chosen, unmarked
from perseid.state.primitives.keys import UNNAMED, KeyFields, among
from perseid.state.primitives.primitive import Primitive
from perseid.state.primitives.rows import KeyedRows
from perseid.state.primitives.undo import Slots

WRITTEN = "__written_ms"  # when a row was last written, if rows expire
RESERVED = (deltas.DELETED, deltas.ROW, WRITTEN)


class Keyed(Primitive):
    """Rows by key, which may expire. A subclass sets its `kind` and `distances`."""

    kind: str
    distances: tuple[Distance, ...]

    _rows: KeyedRows
    _backup: RowsBackup | None
    _now_ms: int | None  # the time of this epoch, once set
    _oldest_ms: int | None  # no row was written before it, if known

    def __init__(
        self,
        key: pa.DataType | Mapping[str, pa.DataType],
        types: Mapping[str, pa.DataType],
        ttl: timedelta | None,
    ) -> None:
        self._keys = KeyFields(key)
        self._types = dict(types)
        self._ttl = ttl
        if ttl is not None and ttl < timedelta(milliseconds=1):
            raise BadInputError(f"{self.kind} with ttl={ttl!r}: expected a millisecond or more")
        taken = [n for n in (*self._keys.types, *types) if n in RESERVED]
        if taken:
            raise BadInputError(f"{self.kind} columns {taken}: these names are taken")
        self._clear()

    def schema(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "key": {name: str(kind) for name, kind in self._keys.types.items()},
            **({} if self._ttl is None else {"expires": True}),
        }

    # What operators call ------------------------------------------------------------------------

    def advance(self, now_ms: int) -> pa.Table:
        """Sets the time of this epoch, before its first write; removes and returns expired rows.

        A row expires `ttl` after the last epoch that wrote it; a look-up is no write. `now_ms` must
        come with the input, as the token's time (`self.now`) or its watermark do: then every replay
        agrees. Expired rows are deleted rows, part of the delta.
        """
        if self._ttl is None:
            raise BadInputError(f"advance() of a {self.kind} without ttl; declare `ttl=`")
        self._now_ms = now_ms
        last_ms = now_ms - self._ttl // timedelta(milliseconds=1)
        if self._oldest_ms is not None and self._oldest_ms > last_ms:
            self._oldest_ms = min(now_ms, self._oldest_ms)
            return self._shown(np.zeros(0, np.int64))
        slots = self._all_slots()
        written = self._rows.columns[WRITTEN].cells(slots).values
        old = written <= last_ms
        self._oldest_ms = min(now_ms, int(written[~old].min(initial=now_ms)))
        expired = slots[old]
        rows = self._shown(expired)
        self._rows.remove_slots(expired)
        return rows

    def scan(self) -> pa.Table:
        """All rows, in the order in which their keys were added."""
        return self._shown(self._rows.all_slots())

    def __len__(self) -> int:
        return len(self._rows)

    # What the worker calls ----------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def size_bytes(self) -> int:
        return self._rows.size_bytes

    def shard_key(self, key: Sequence[str]) -> Mapping[str, pa.DataType] | None:
        """An unnamed key is taken to be the operator's one key column."""
        unnamed = len(key) == 1 and list(self._keys.types) == [UNNAMED]
        return among(self._keys.types, [UNNAMED] if unnamed else key)

    def delta(self) -> pa.Table | None:
        """By row if nothing was deleted and rows have no holes, else by key (`deltas`)."""
        rows = self._rows
        if not rows.changed:
            return None
        slots = rows.written()
        if rows.has_holes:
            gone = rows.gone()
            keys = pa.table({n: c.take(gone) for n, c in rows.key_columns.items()})
            return deltas.by_key(keys, rows.take(slots))
        new = slots[~rows.is_base(slots)]
        return deltas.by_row(
            {n: c.take(new) for n, c in rows.key_columns.items()},
            {n: c.take(slots) for n, c in rows.columns.items()},
            slots,
            len(rows) - len(new),
        )

    def commit(self) -> None:
        if self._backup is not None:
            self._backup.note(self._rows)
        self._rows.commit()
        self._now_ms = None

    def rollback(self) -> None:
        self._rows.rollback()
        self._now_ms = self._oldest_ms = None

    def apply(self, delta: pa.Table) -> None:
        self.apply_all([delta])

    def apply_all(self, changes: Sequence[pa.Table]) -> None:
        """Merges the deltas first: a restore has hundreds of small ones."""
        assert not self._rows.changed, "apply on uncommitted changes"
        for run in deltas.runs(list(self._keys.types), changes):
            self._apply_run(run)
            self.commit()
        self._oldest_ms = None

    def _apply_run(self, run: pa.Table) -> None:
        save = self._backup is not None
        if deltas.is_by_row(run):
            self._agree([*self._columns(), deltas.ROW], run)
            self._rows.load_at(run, *deltas.placed(run, len(self._rows)), save=save)
            return
        self._agree([*self._columns(), deltas.DELETED], run)
        deleted = run[deltas.DELETED]
        self._rows.remove(self._keys.known_distinct(run.filter(deleted)))
        self._rows.load(run.filter(pc.invert(deleted)), save=save)

    def snapshot(self) -> pa.Table:
        return self._rows.take(self._rows.all_slots())

    def restore(self, snapshot: pa.Table) -> None:
        self._agree(self._columns(), snapshot)
        self._clear()
        self._rows.load(snapshot, save=False)
        self._rows.commit()

    def mark_backup(self) -> None:
        assert not self._rows.changed, "mark_backup on uncommitted changes"
        self._backup = RowsBackup(self._keys, self._types, self._rows)

    def divergence(self, kind: str) -> float:
        wanted = chosen(kind, self.distances, self.kind)
        if self._backup is None:
            raise unmarked(self.kind)
        return self._backup.distance(wanted)

    # For subclasses -----------------------------------------------------------------------------

    def _clear(self) -> None:
        times = {} if self._ttl is None else {WRITTEN: pa.int64()}
        self._rows = KeyedRows(self._keys, {**self._types, **times})
        self._backup = None
        self._now_ms = self._oldest_ms = None

    def _wrote(self, slots: Slots) -> None:
        """Marks `slots` as written now; call it after the rows were written."""
        self._rows.touch(slots)
        if self._ttl is not None:
            self._rows.columns[WRITTEN].save(slots)
            self._rows.columns[WRITTEN].put_numbers(slots, np.full(len(slots), self._now_ms))

    def _check_time(self) -> None:
        """Refuses a write to rows that expire before the epoch's time is set."""
        if self._ttl is not None and self._now_ms is None:
            raise BadInputError(
                f"a {self.kind} with ttl was written in an epoch whose time it does not know; call "
                "advance(self.now) before the first write of every epoch"
            )

    def _all_slots(self) -> Slots:
        slots = self._rows.all_slots()
        return np.arange(slots.stop) if isinstance(slots, slice) else slots

    def _shown(self, slots: Slots | slice) -> pa.Table:
        """Rows as operators see them."""
        columns = {**self._rows.key_columns, **self._rows.columns}
        return pa.table({n: c.take(slots) for n, c in columns.items() if n != WRITTEN})

    def _columns(self) -> list[str]:
        return [*self._keys.types, *self._rows.columns]

    def _agree(self, names: list[str], rows: pa.Table) -> None:
        if rows.schema.names != names:
            raise BadInputError(
                f"state with the columns {rows.schema.names} is not of a {self.kind} with {names}"
            )
