"""`Timers`: for each key the time at which its operator wants to be called.

A timer is a row of state, so it survives crashes, restores and moves like any other. At the
beginning of an epoch the worker removes the due timers and passes them to `on_timer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.state.primitives.table import Table

AT = "at"
Clock = Literal["event", "token"]


class Timers(Table):
    """`Timers(key=pa.string())`: one timer per key, due when the watermark reaches it.

    With `time="token"` it is due when the token's time (`self.now`) reaches it. Composite keys as
    in `Table`; for several timers per key, add a column to the key. Times are int64 milliseconds
    since
    1970. Written with `set` and `cancel`.
    """

    _soonest: int | None  # no timer is earlier; None: not known
    _then: int | None  # the same for the timers left in this epoch

    def __init__(
        self, key: pa.DataType | Mapping[str, pa.DataType], *, time: Clock = "event"
    ) -> None:
        if time not in ("event", "token"):
            raise BadInputError(f"Timers with time={time!r}: expected 'event' or 'token'")
        super().__init__(key, at=pa.int64())
        self.time = time
        self._key = key
        self._none = self.scan()
        self._forget()

    def fresh(self) -> Timers:
        return Timers(self._key, time=self.time)

    def schema(self) -> dict[str, Any]:
        return {**super().schema(), "kind": "timers", "time": self.time}

    def set(self, keys: Any, at: Any) -> None:
        """Sets the timer of each key to `at`, replacing an existing one; its last row wins."""
        changed = super().upsert(keys, at=at)[AT]
        if changed.null_count:
            raise BadInputError("a timer was set to null: expected milliseconds since 1970")
        if len(changed) and self._soonest is not None and self._then is not None:
            first = pc.min(changed).as_py()
            self._soonest, self._then = min(self._soonest, first), min(self._then, first)

    def cancel(self, keys: Any) -> int:
        """Removes the timers of `keys`, set or not; returns how many were set."""
        return self.delete(keys)

    def due(self, now_ms: int) -> pa.Table:
        """Removes and returns the timers up to `now_ms`: key columns and `at`.

        They are sorted by time, then by arrival.
        """
        if self._soonest is not None and now_ms < self._soonest:
            return self._none
        rows = self.scan()
        times = rows[AT].to_numpy()
        over = times <= now_ms
        self._soonest = int(times.min(initial=_NEVER))
        self._then = int(times[~over].min(initial=_NEVER))
        places = np.flatnonzero(over)
        if not len(places):
            return self._none
        found = rows.take(pa.array(places[np.argsort(times[places], kind="stable")]))
        self.delete(found.select([name for name in found.column_names if name != AT]))
        return found

    # What the worker calls ----------------------------------------------------------------------

    def commit(self) -> None:
        """From now on the bound need not cover the timers of the previous commit.

        Until the commit it covers them too, so that it stays right after a rollback.
        """
        super().commit()
        self._soonest = self._then

    def apply_all(self, changes: Sequence[pa.Table]) -> None:
        super().apply_all(changes)
        self._forget()

    def restore(self, snapshot: pa.Table) -> None:
        super().restore(snapshot)
        self._forget()

    def _forget(self) -> None:
        self._soonest = self._then = None

    # Other ways to write, which would bypass the bound -----------------------------------------

    def upsert(self, keys: Any, **values: Any) -> pa.Table:
        raise BadInputError("Timers are written with set(keys, at) and cancel(keys)")

    def fold(self, keys: Any, **amounts: Any) -> pa.Table:  # called by add, min and max
        raise BadInputError("Timers are written with set(keys, at) and cancel(keys)")


_NEVER = np.iinfo(np.int64).max


def due_of(live: Mapping[str, Any], watermark_ms: int | None, time_ms: int) -> Sequence[pa.Table]:
    """The due timers of an operator; a column `timer` has the primitive's name."""
    found = []
    for name, primitive in live.items():
        now_ms = watermark_ms if getattr(primitive, "time", "") == "event" else time_ms
        if isinstance(primitive, Timers) and now_ms is not None:
            rows = primitive.due(now_ms)
            if rows.num_rows:
                found.append(rows.append_column("timer", pa.repeat(name, rows.num_rows)))
    return found
