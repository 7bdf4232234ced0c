"""As-of joins: each left row with the newest right row of its key at or before its time: `AsOf`.

    operators:
      priced:
        inputs: {left: orders, right: prices}
        key: item
        use: "library:AsOf"
        with:
          time: ms
          left: {ms: int64, amount: int64}
          right: {ms: int64, price: float64}
          within: "1h"

Emits each left row once the watermark has passed its time, because then all right rows up to it
have arrived. A row has the key, then the columns that `left` and `right` name with their types;
those of the right are null where there is no row. A column of both is emitted as `left_ms` and
`right_ms`. With `within`, older right rows do not match. Of right rows with one time the last to
arrive counts.
`time: {left: ms, right: changed}` where the columns of event time have different names; a time is
int64 milliseconds or a timestamp. `types: {item: int64}` names key columns that are no strings.

The state holds the rows that the watermark has not passed, and for each key the newest right row
that it has passed: without `within` it is never removed. A late left row (of a source with `late:
update`) is answered in its epoch from that state: with nulls if the kept right row is newer. A late
right row counts for left rows that were not emitted yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from perseid.jobs.library import sides
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.sides import LEFT, RIGHT, TIME, Side
from perseid.jobs.library.times import NEVER
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator
from perseid.state import Pool, Table, Value
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.table import FOUND

NAME = "AsOf"
EXAMPLES = {
    "within": '"1h"', "time": "ms", "left": "{ms: int64, amount: int64}",
    "right": "{ms: int64, price: float64}", "types": "{item: int64}",
}  # fmt: skip


def as_of(spec: OperatorSpec) -> type[Operator]:
    """`with:` has the columns of both sides, `time`, and optionally `within`."""
    given = Parameters(spec, NAME, EXAMPLES)
    one, other = sides.sides(spec, given)
    oldest = given.milliseconds("within") if "within" in given else None

    class AsOf(AsOfs):
        """The join of one use of the library."""

        left_side, right_side, within = one, other, oldest
        history_ms = oldest or 0
        fields = KeyFields(one.keys)
        output = pa.schema([*one.keys.items(), *one.output, *other.output])
        metadata = sides.metadata(one, other)
        left, right = one.pool(), other.pool()
        newest = Table(key=one.keys, **other.columns, **{TIME: pa.int64()})

    return AsOf


class AsOfs(Operator):
    """Left rows with the right row valid at their time. Subclasses define the sides."""

    left_side: ClassVar[Side]
    right_side: ClassVar[Side]
    within: ClassVar[int | None]
    fields: ClassVar[KeyFields]
    needs_watermark = True
    left: Pool
    right: Pool
    newest: Table  # newest right row of each key that the watermark has passed
    swept = Value(pa.int64(), default=NEVER)

    def process(self, inputs: dict[str, pa.Table], out: Emitter) -> None:
        self.left.append(self.left_side.rows(inputs[LEFT]))
        self.right.append(self.right_side.rows(inputs[RIGHT]))

    def on_epoch_end(self, out: Emitter) -> None:
        if self.watermark is None:
            return
        left, right = (pool.between(NEVER, self.watermark) for pool in (self.left, self.right))
        if left.num_rows:
            self.left.expire(self.watermark)
            out.emit(self._joined(left, right))
        if right.num_rows:
            self.right.expire(self.watermark)
            self._remember(right)
        self._forget(self.watermark)

    def rescale(self, old: Sequence[Any]) -> None:
        """All partitions follow the same watermark, so they agree."""
        self.swept.set(old[0].swept.get())

    def _joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Joins `left` with the matching rows of `right` or the newest earlier ones."""
        times = left[TIME].to_numpy()
        low = np.full(len(times), NEVER) if self.within is None else times - self.within
        starts, stops, places = sides.found(left, right, self.fields, low, times)
        here = stops > starts
        kept = self.newest.lookup(left)
        since = kept[TIME].fill_null(NEVER).to_numpy()
        there = kept[FOUND].to_numpy() & (since >= low) & (since <= times)
        last = np.append(places, 0)[np.where(here, stops - 1, -1)]
        found = np.where(here, last, len(right) + np.arange(len(times)))
        columns = list(self.right_side.columns)
        both = pa.concat_tables([right.select(columns), kept.select(columns)])
        partners = both.take(pa.array(found, mask=~(here | there)))
        keys = {name: left[name] for name in self.fields.types}
        return pa.table(
            keys | self.left_side.emitted(left) | self.right_side.emitted(partners),
            schema=self.output,
        )

    def _remember(self, right: pa.Table) -> None:
        """Keeps the newest row of each key; the last of several with one time."""
        since = self.newest.lookup(right)[TIME].fill_null(NEVER).to_numpy()
        times = right[TIME].to_numpy()
        order = np.argsort(times, kind="stable")
        rows = right.take(pa.array(order[times[order] >= since[order]]))
        columns = [*self.right_side.columns, TIME]
        self.newest.upsert(rows, **{name: rows[name] for name in columns})

    def _forget(self, watermark: int) -> None:
        """Occasionally removes right rows that are too old for every left row."""
        if self.within is None or watermark < self.swept.get() + self.within:
            return
        self.swept.set(watermark)
        rows = self.newest.scan()
        gone = rows[TIME].to_numpy() < watermark - self.within
        self.newest.delete(rows.select(list(self.fields.types)).filter(pa.array(gone)))
