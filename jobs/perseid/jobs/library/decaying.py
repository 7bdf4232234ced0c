"""Sums that decay exponentially: `Decaying`, in which a row counts half after each half-life.

    hot: {input: views, key: page, use: "library:Decaying", with: {halfLife: "10m", time: ms}}

Emits one row per changed key per epoch: the key, `sum` and `at`, the reference time of `sum` (ms
since 1970), which is the key's newest time. The sum at a later time t is
`sum * 0.5 ** ((t - at) / halfLife)`.

`column: amount` adds a column up instead of counting rows; nulls count as nothing. `time` is a
column of event time, by whose age late rows decay; without it the token's time is used, which needs
no `eventTime`. `types: {page: int64}` names key columns that are no strings.

A key is removed when its sum has halved 64 times, which is below the rounding of later rows. Sums
are float64 and round differently if epochs end elsewhere (relative error 1e-15).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.times import milliseconds, need
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Table, Value
from perseid.state.primitives.columns import conform, numbers
from perseid.state.primitives.keys import KeyFields, codes, first_rows
from perseid.state.primitives.table import FOUND
from perseid.state.primitives.undo import Slots

NAME = "Decaying"
SUM, AT = "sum", "at"
HALVINGS = 64  # then a sum is negligible next to another row: float64 has 53 bits
SWEEPS = 16  # in half-lives: how often expired keys are looked for, which costs a scan
EXAMPLES = {"halfLife": '"10m"', "time": "ms", "column": "amount", "types": "{user: int64}"}

Floats = npt.NDArray[np.float64]


def decaying(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `halfLife`."""
    given = Parameters(spec, NAME, EXAMPLES)
    types = given.types("types", dict.fromkeys(spec.key, "string"))
    given.distinct("the key, sum and at", [*types, SUM, AT])
    timed = given.column("time") if "time" in given else None
    added = given.column("column") if "column" in given else None
    half = given.milliseconds("halfLife")

    class Decaying(DecayingSums):
        """Sums of one use of the library."""

        half_life_ms, time, column = half, timed, added
        fields = KeyFields(types)
        output = pa.schema([*types.items(), (SUM, pa.float64()), (AT, pa.int64())])
        metadata = metadata_among({timed, added, *types})
        needs_watermark = timed is not None
        sums = Table(key=types, sum=pa.float64(), at=pa.int64())

    return Decaying


class DecayingSums(Operator):
    """A decaying sum per key. Subclasses define the column and the half-life."""

    half_life_ms: ClassVar[int]
    time: ClassVar[str | None]
    column: ClassVar[str | None]
    fields: ClassVar[KeyFields]
    sums: Table
    swept = Value(pa.int64(), default=0)

    def process(self, batch: pa.Table, out: Emitter) -> None:
        need(batch, [self.column] if self.column else [], NAME)
        keys = self.fields.arrays(batch)
        rows, count = codes(keys)
        first = pa.array(first_rows(rows, count))
        changed = {
            name: array.take(first) for name, array in zip(self.fields.types, keys, strict=True)
        }
        old = self.sums.lookup(changed)
        before, since = (numbers(conform(old[n], old[n].type, n)) for n in (SUM, AT))
        if self.time is None:
            times = np.full(len(batch), self.now)
        else:
            times = milliseconds(batch, self.time, NAME)
        known = old[FOUND].to_numpy()
        at = np.where(known, since, np.iinfo(np.int64).min)
        np.maximum.at(at, rows, times)
        came = np.bincount(rows, self._amounts(batch) * self._weight(at[rows] - times), count)
        kept = before * self._weight(np.where(known, at - since, 0))
        out.emit(self.sums.upsert(changed, sum=pa.array(kept + came), at=pa.array(at)))

    def on_epoch_end(self, out: Emitter) -> None:
        now = self.now if self.time is None else self.watermark
        sweep = 0 if now is None else now // (SWEEPS * self.half_life_ms)
        if sweep <= self.swept.get():
            return
        self.swept.set(sweep)
        rows = self.sums.scan()
        assert now is not None, "without a time there is nothing to sweep"
        gone = rows[AT].to_numpy() <= now - HALVINGS * self.half_life_ms
        self.sums.delete(rows.select(list(self.fields.types)).filter(pa.array(gone)))

    def rescale(self, old: Sequence[Any]) -> None:
        """All partitions follow the same time, so they agree."""
        self.swept.set(old[0].swept.get())

    def _amounts(self, batch: pa.Table) -> Floats:
        if self.column is None:
            return np.ones(len(batch))
        amounts = conform(batch[self.column], pa.float64(), f"column {self.column!r}")
        return np.asarray(numbers(amounts), np.float64)

    def _weight(self, age_ms: Slots) -> Floats:
        return np.asarray(np.exp2(-age_ms / self.half_life_ms), np.float64)
