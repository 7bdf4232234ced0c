"""Windows of event time, tumbling, hopping, sliding or of sessions: `Window`.

    sources:
      orders: {topic: orders, format: json, columns: {user: string, amount: int64, ms: int64},
               eventTime: {column: ms, watermark: "5s"}}
    operators:
      spent:
        input: orders
        key: user
        use: "library:Window"
        with:
          kind: hopping
          size: "10m"
          step: "1m"
          time: ms
          aggregate: {n: count, total: "sum(amount)", lo: "min(amount)", hi: "max(amount)"}

| kind | parameters | windows of a key |
|---|---|---|
| tumbling | `size` | adjacent ones, from multiples of `size` since 1970 |
| hopping | `size`, `step` | one from each multiple of `step` |
| sliding | `size` | one up to the time of each row, that included: the rows of the last `size` |
| session | `gap` | rows with less than `gap` between neighbours, until `gap` after the last one |

Emits a row per key and window once the watermark has reached its end: key columns, `start` and
`end` (milliseconds since 1970; `start <= time < end`), and the aggregates. `time` is the column of
event time (int64 milliseconds or a timestamp; the Kafka record's time if left out). `types: {user:
int64, amount: float64}` names the types of key columns that are no strings, and of aggregated ones
that are no int64. A window without rows is not emitted. To window windows, use `end - 1` as time.

A late row (of a source with `late: update`) counts in windows that were not emitted yet; a session
takes none. With `correct: "1h"` windows are kept for an hour after their end, and late rows in them
emit the changed windows again. A session that no longer exists, since a late row joined it to
another or gave it an earlier start, is retracted: its `end` is its `start`, its aggregates null.
Later rows are dropped, with a line in the log; the job's `late_records` counts them.

State is a row per key and pane (as long as `step`; a session's as `gap`) until its windows have
ended. It is in checkpoints; but a start from scratch, or an audit, finds only what the topic still
has, so a source topic whose retention is below `size + correct` is refused. Sums of floats round
differently if epochs end elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import pyarrow as pa

from perseid.jobs.library.design import END, FIRST, LAST, NAME, START, Design, designed
from perseid.jobs.library.rows import among
from perseid.jobs.library.times import NEVER, milliseconds, need
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Table, Value
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.pairs import groups
from perseid.state.primitives.undo import Slots

log = logging.getLogger(__name__)


def window(spec: OperatorSpec) -> type[Operator]:
    """The class for one use of the library."""
    made = designed(spec)
    keys, results = made.keys, made.results
    ends = {FIRST: pa.int64(), LAST: pa.int64()} if made.has_ends else {}

    class Window(Windows):
        """Windows of one use of the library."""

        design, history_ms = made, made.kind.history
        output = pa.schema([*keys.items(), (START, pa.int64()), (END, pa.int64()),
                            *results.items()])  # fmt: skip
        metadata = metadata_among({made.time, *made.reads, *keys})
        panes = Table(key={**keys, START: pa.int64()}, **results, **ends)

    if made.combines:
        cast(Any, Window).combine = Windows.panes_of
    return Window


class Windows(Operator):
    """A row per key and window. Subclasses set `design`, `output`, `metadata` and `panes`."""

    design: ClassVar[Design]
    needs_watermark = True
    panes: Table
    emitted_to = Value(pa.int64(), default=NEVER)  # windows up to here were emitted

    def panes_of(self, batch: pa.Table) -> pa.Table:
        """A combiner: the panes of one split."""
        panes = self.panes.fresh()
        self._fold(panes, batch, self._times(batch), combined=False)
        return panes.scan()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        design, kind, emitted_to = self.design, self.design.kind, self.emitted_to.get()
        times = batch[START].to_numpy() if design.combines else self._times(batch)
        counting = kind.counts(times, emitted_to)
        if not counting.all():
            log.warning("%d rows, once combined, came too late: left out", (~counting).sum())
            batch, times = batch.filter(pa.array(counting)), times[counting]
        late = times < emitted_to
        if not (kind.keep and late.any()):
            self._add(batch, times)
            return
        keys = KeyFields(design.keys).distinct(batch.filter(pa.array(late))).arrays
        before = self._kept(keys, emitted_to)
        self._add(batch, times)
        after = self._kept(keys, emitted_to)
        out.emit(corrections(before, after, list(design.keys)))

    def on_epoch_end(self, out: Emitter) -> None:
        design, emitted_to = self.design, self.emitted_to.get()
        mark = NEVER if self.watermark is None else design.kind.mark(self.watermark)
        if mark <= emitted_to:
            return
        self.emitted_to.set(mark)
        rows = self.panes.scan()
        panes = design.panes(rows)
        out.emit(design.windows(rows, panes, emitted_to, mark))
        gone = pa.array(panes.row[design.kind.over(panes, mark)])
        self.panes.delete(rows.select([*design.keys, START]).take(gone))

    def rescale(self, old: Sequence[Any]) -> None:
        """All partitions follow the same watermark, so they agree."""
        self.emitted_to.set(old[0].emitted_to.get())

    def _times(self, batch: pa.Table) -> Slots:
        need(batch, self.design.reads, NAME)
        return milliseconds(batch, self.design.time, NAME)

    def _add(self, batch: pa.Table, times: Slots) -> None:
        self._fold(self.panes, batch, times, combined=self.design.combines)

    def _fold(self, panes: Table, batch: pa.Table, times: Slots, *, combined: bool) -> None:
        """Folds rows, or panes of splits, into `panes`."""
        pane = {name: batch[name] for name in self.design.keys}
        pane[START] = pa.array(self.design.kind.pane(times))
        folds: dict[str, dict[str, Any]] = {"add": {}, "min": {}, "max": {}}
        for one in self.design.aggregates:
            amounts = batch[one.name] if combined else batch[one.column] if one.column else 1
            folds[one.how if one.how in folds else "add"][one.name] = amounts
        if self.design.has_ends:
            folds["min"][FIRST] = folds["max"][LAST] = pa.array(times)
        panes.fold(pane, **folds)

    def _kept(self, keys: tuple[pa.Array, ...], emitted_to: int) -> pa.Table:
        """The current windows of `keys` that were emitted and can be corrected."""
        design, rows = self.design, self.panes.scan()
        rows = rows.filter(pa.array(groups(keys, [rows[name] for name in design.keys]) >= 0))
        return design.windows(rows, design.panes(rows), emitted_to - design.kind.keep, emitted_to)


def corrections(before: pa.Table, after: pa.Table, keys: list[str]) -> pa.Table:
    """The windows of `after` that differ from `before`, after the retracted ones."""
    named = [*keys, START]
    gone = before.filter(pa.array(~among(before.select(named), after.select(named))))
    names = [name for name in gone.column_names if name not in {*keys, START, END}]
    gone = gone.set_column(gone.column_names.index(END), END, gone[START])
    for name in names:
        kind = gone.schema.field(name).type
        gone = gone.set_column(gone.column_names.index(name), name, pa.nulls(len(gone), kind))
    new = after.filter(pa.array(~among(after, before)))
    return pa.concat_tables([gone, new])
