"""Common to joins: their two inputs, with columns, types and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.times import milliseconds, need, spans
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import metadata_among
from perseid.state import Pool
from perseid.state.primitives.columns import conform
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.pairs import groups
from perseid.state.primitives.undo import Slots

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)
TIME = "__time"  # in state: the row's event time in ms, from any column


@dataclass(frozen=True, slots=True)
class Side:
    """One input: its columns besides the key with their types, and the time column among them.

    `names`: the names of the emitted columns.
    """

    keys: dict[str, pa.DataType]
    columns: dict[str, pa.DataType]
    names: dict[str, str]
    time: str
    operator: str

    def pool(self) -> Pool:
        """State for rows of this side."""
        columns = {**self.keys, **self.columns, TIME: pa.int64()}
        return Pool(columns, time=TIME, key=list(self.keys))

    def rows(self, batch: pa.Table) -> pa.Table:
        """The rows of an epoch as the pool holds them; a table without columns has no rows."""
        fields = [*self.keys.items(), *self.columns.items(), (TIME, pa.int64())]
        if not batch.num_rows:
            return pa.schema(fields).empty_table()
        need(batch, [*self.keys, *self.columns], self.operator)
        times = pa.array(milliseconds(batch, self.time, self.operator))
        try:
            plain = [conform(batch[n], of, f"column {n!r}") for n, of in fields[:-1]]
        except BadInputError as error:
            raise BadInputError(
                f"library:{self.operator}: {error}; write the column's type in `with:`"
            ) from None
        return pa.table([*plain, times], schema=pa.schema(fields))

    def emitted(self, rows: pa.Table) -> dict[str, Any]:
        """The columns besides the key as they are emitted."""
        return {self.names[name]: rows[name] for name in self.columns}

    @property
    def output(self) -> list[tuple[str, pa.DataType]]:
        return [(self.names[name], kind) for name, kind in self.columns.items()]


def check_inputs(spec: OperatorSpec, given: Parameters) -> None:
    """Refuses inputs that are not called left and right."""
    if set(spec.inputs) != set(SIDES):
        raise given.inputs_wrong(spec.inputs, "inputs: {left: NAME, right: NAME}")


def sides(spec: OperatorSpec, given: Parameters) -> tuple[Side, Side]:
    """Left and right; `with:` has the columns of each, `time`, and `types` of the key columns."""
    check_inputs(spec, given)
    keys = given.types("types", dict.fromkeys(spec.key, "string"))
    times = given.get("time")
    if not isinstance(times, dict):
        times = dict.fromkeys(SIDES, times)
    columns = {}
    for side in SIDES:
        columns[side] = {n: given.type(side, kind) for n, kind in given.mapping(side).items()}
        kind = columns[side].get(times.get(side) or "")
        if kind is None or not (pa.types.is_timestamp(kind) or kind == pa.int64()):
            raise given.wrong("time", f"a column of {side} with type int64 or timestamp")
    both = columns[LEFT].keys() & columns[RIGHT].keys()
    left, right = (
        Side(
            keys,
            columns[side],
            {n: f"{side}_{n}" if n in both else n for n in columns[side]},
            times[side],
            given.name,
        )
        for side in SIDES
    )
    names = [*keys, *left.names.values(), *right.names.values()]
    given.distinct("the key, the columns of left and of right", names)
    return left, right


def metadata(left: Side, right: Side) -> tuple[str, ...]:
    """The metadata columns that are read of the records."""
    return metadata_among({*left.keys, *left.columns, *right.columns})


def found(
    rows: pa.Table, others: pa.Table, fields: KeyFields, low: Slots, high: Slots
) -> tuple[Slots, Slots, Slots]:
    """For each of `rows`, which of `others` have its key and a time from `low` to `high`.

    As ranges of the third array, which has positions in `others`, for each range by time, then by
    arrival: those of row i are `places[starts[i]:stops[i]]`.
    """
    distinct = fields.distinct(rows)
    wanted = distinct.spread(np.arange(len(distinct)))
    group = groups(distinct.arrays, [others[name] for name in fields.types])
    places = np.flatnonzero(group >= 0)
    times = others[TIME].to_numpy()[places]
    order = np.lexsort((times, group[places]))
    places = places[order]
    return *spans(group[places], times[order], wanted, low, high), places
