"""The parameters of one use of `Window`, from its `with:`, and its windows over panes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from perseid.jobs.library.aggregates import Aggregate, check_types, over, parsed
from perseid.jobs.library.frames import Aligned, Kind, Panes, Session, Sliding
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.times import one_array
from perseid.jobs.model.spec import RECORD_TIME, OperatorSpec
from perseid.state.primitives.keys import codes

NAME = "Window"
START, END = "start", "end"
FIRST, LAST = "__first", "__last"  # of the rows of a session's pane
EXAMPLES = {
    "kind": "tumbling", "size": '"1m"', "step": '"10s"', "gap": '"30s"', "time": "ms",
    "aggregate": '{n: count, total: "sum(amount)"}', "types": "{amount: float64}",
    "correct": '"1h"',
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Design:
    """The content of `with:`: types of the key columns and aggregates, column of the time."""

    kind: Kind
    keys: dict[str, pa.DataType]
    aggregates: tuple[Aggregate, ...]
    results: dict[str, pa.DataType]
    time: str

    @property
    def reads(self) -> list[str]:
        return [a.column for a in self.aggregates if a.column is not None]

    @property
    def has_ends(self) -> bool:
        """Whether panes have the first and last time of their rows."""
        return isinstance(self.kind, Session)

    @property
    def combines(self) -> bool:
        """Whether splits can be combined into panes before the shuffle.

        Not for sums of floats, which would round by split, and not where single times are needed.
        """
        sums = [self.results[a.name] for a in self.aggregates if a.how == "sum"]
        return isinstance(self.kind, Aligned) and pa.float64() not in sums

    def panes(self, rows: pa.Table) -> Panes:
        key, _ = codes(tuple(one_array(rows[name]) for name in self.keys))
        start = rows[START].to_numpy()
        order = np.lexsort((start, key))
        ends = (FIRST, LAST) if self.has_ends else (START, START)
        first, last = (rows[name].to_numpy()[order] for name in ends)
        return Panes(order, key[order], start[order], first, last)

    def windows(self, rows: pa.Table, panes: Panes, low: int, high: int) -> pa.Table:
        """The windows over the panes in `rows` with `low < end <= high`, by end, then key."""
        found = self.kind.frames(panes, low, high)
        columns = {name: rows[name].take(pa.array(panes.row[found.lows])) for name in self.keys}
        columns |= {START: pa.array(found.start), END: pa.array(found.end)}
        for one in self.aggregates:
            values = one_array(rows[one.name]).take(pa.array(panes.row))
            columns[one.name] = over(one.how, values, found.lows, found.highs)
        return pa.table(columns).take(pa.array(np.argsort(found.end, kind="stable")))


def designed(spec: OperatorSpec) -> Design:
    """`with:` has `kind`, `aggregate`, and the parameters of the kind."""
    given = Parameters(spec, NAME, EXAMPLES)
    aggregates = parsed(given, "aggregate")
    types = _types(given, aggregates, spec.key)
    keys = {name: types[name] for name in spec.key}
    results = {a.name: types[a.column] if a.column else pa.int64() for a in aggregates}
    return Design(_kind(given), keys, aggregates, results, given.column("time", RECORD_TIME))


def _kind(given: Parameters) -> Kind:
    name = given.choice("kind", ("tumbling", "hopping", "sliding", "session"))
    given.only_for("step", name == "hopping", "kind hopping")
    given.only_for("gap", name == "session", "kind session")
    given.only_for("size", name != "session", "windows that are no sessions")
    correct = given.milliseconds("correct", default=0)
    if name == "session":
        return Session(given.milliseconds("gap"), correct)
    size = given.milliseconds("size")
    if name == "sliding":
        return Sliding(size, correct)
    step = given.milliseconds("step") if name == "hopping" else size
    if step > size:
        raise given.wrong("step", "at most the size, else rows between windows would be lost")
    return Aligned(size, step, correct)


def _types(
    given: Parameters, aggregates: tuple[Aggregate, ...], key: tuple[str, ...]
) -> dict[str, pa.DataType]:
    """Of the key columns and of the aggregated ones."""
    defaults = {a.column: "int64" for a in aggregates if a.column is not None}
    types = given.types("types", {**defaults, **dict.fromkeys(key, "string")})
    check_types(given, aggregates, types)
    names = [a.name for a in aggregates]
    given.distinct(f"the key, {START}, {END} and the aggregates", [*key, START, END, *names])
    return types
