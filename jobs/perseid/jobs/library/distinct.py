"""Counts the different values of each key: `Distinct`.

    users: {input: views, key: page, use: "library:Distinct", with: {column: user}}
    users: {input: views, key: page, use: "library:Distinct",
            with: {column: user, error: 0.05, keys: 5000}}

Emits one row per epoch for each key whose count changed: the key columns and `distinct`. Nulls are
not counted. `types: {user: int64}` for columns that are no strings; floats are refused.

Without `error` the count is exact, and the state has every different value. With it the count is
HyperLogLog's: `error` is the relative standard error, from 0.023 (2048 registers per key) to 0.09
(128); two thirds of all counts are closer than it and 95 % closer than twice it. The state is then
one byte per register for each of `keys` keys (default 1000). An operator partition with more keys
stops the job with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.jobs.library import hyperloglog
from perseid.jobs.library.hashing import hashed
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.rows import different
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Matrix, Set, Table
from perseid.state.primitives.columns import conform

EXAMPLES = {"column": "user", "error": "0.05", "keys": "1000", "types": "{user: int64}"}
COUNT = "distinct"
REGISTERS_MAX = 2**28  # bytes of one operator partition: a snapshot writes them all


class Counting(Operator):
    """Common to both ways: values come once per split, without nulls."""

    keys: ClassVar[tuple[str, ...]]
    column: ClassVar[str]

    def combine(self, batch: pa.Table) -> pa.Table:
        rows = batch.filter(pc.is_valid(batch[self.column]))
        return rows.group_by([*self.keys, self.column], use_threads=False).aggregate([])


def distinct(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `column`; `error` and `keys` of an approximate count; `types`."""
    given = Parameters(spec, "Distinct", EXAMPLES)
    column = given.column("column")
    types = given.types("types", dict.fromkeys([*spec.key, column], "string"))
    given.distinct(f"the key, the column and {COUNT}", [*spec.key, column, COUNT])
    if pa.types.is_floating(types[column]):
        raise given.wrong("types", f"{column!r} not to be a float; round it to int64 before")
    keys = {name: types[name] for name in spec.key}
    base = type("Distinct", (Counting,), {
        "keys": spec.key, "column": column,
        "metadata": metadata_among([column]),
        "output": pa.schema([*keys.items(), (COUNT, pa.int64())]),
    })  # fmt: skip
    given.only_for("keys", "error" in given, "approximate counts, with `error`")
    if "error" in given:
        return _approximate(base, given, types, keys)
    return _exact(base, types, keys)


def _exact(
    base: type[Counting], types: dict[str, pa.DataType], keys: dict[str, pa.DataType]
) -> type[Operator]:
    class Distinct(base):  # type: ignore[valid-type, misc]  # made for the columns of one use
        """Every different value, and the number of values."""

        seen = Set(types)
        counts = Table(key=keys, distinct=pa.int64())

        def process(self, batch: pa.Table, out: Emitter) -> None:
            new = batch.filter(self.seen.add(batch))
            out.emit(self.counts.add(new.select(list(keys)), distinct=1))

    return Distinct


def _approximate(
    base: type[Counting],
    given: Parameters,
    types: dict[str, pa.DataType],
    keys: dict[str, pa.DataType],
) -> type[Operator]:
    precision = _precision(given)
    column = base.column
    keys_max = given.whole("keys", 1000, 1, REGISTERS_MAX >> precision)

    class Distinct(base):  # type: ignore[valid-type, misc]  # made for the columns of one use
        """A row of registers for each key."""

        rows = Table(key=keys, row=pa.int64(), distinct=pa.int64())
        registers = Matrix(pa.uint8(), keys_max, 2**precision)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            names = batch.select(list(keys))
            self._give_rows(names)
            hashes = hashed([conform(batch[column], types[column], f"column {column!r}")])
            register, least = hyperloglog.places(hashes, precision)
            self.registers.max_at(self.rows.lookup(names)["row"].to_numpy(), register, least)
            changed = self.rows.lookup(different(names))
            row = changed["row"].to_numpy()
            found = hyperloglog.estimates(
                self.registers.take(row[:, None], np.arange(2**precision))
            )
            counts = np.rint(found).astype(np.int64)
            moved = counts != changed[COUNT].to_numpy()
            changed = changed.filter(pa.array(moved)).select(list(keys))
            out.emit(self.rows.upsert(changed, distinct=counts[moved]).select([*keys, COUNT]))

        def rescale(self, old: Sequence[Any]) -> None:
            """Each key keeps its registers, in a row of its new partition."""
            names = self.rows.scan().select(list(keys))
            _check_room(len(names), keys_max, self.partition)
            registers = np.zeros((keys_max, 2**precision), np.uint8)
            for one in old:
                held = one.rows.lookup(names)
                there = np.flatnonzero(held["found"].to_numpy())
                registers[there] = one.registers.values[held["row"].to_numpy()[there].astype(int)]
            self.rows.upsert(names, row=np.arange(len(names)))
            self.registers.set(registers)

        def _give_rows(self, names: pa.Table) -> None:
            """Numbers the keys that are new, by first appearance."""
            held = self.rows.lookup(names)
            new = different(held.filter(pc.invert(held["found"])).select(list(keys)))
            count = len(self.rows) + new.num_rows
            _check_room(count, keys_max, self.partition)
            numbers = np.arange(count - new.num_rows, count)
            self.rows.upsert(new, row=numbers, distinct=0)

    return Distinct


def _precision(given: Parameters) -> int:
    """The fewest bits of a register's place with which `error` holds."""
    finest = hyperloglog.standard_error(hyperloglog.PRECISIONS[-1])
    coarsest = hyperloglog.standard_error(hyperloglog.PRECISIONS[0])
    error = given.number("error", None, 0, round(coarsest, 3))
    if error < finest:
        raise given.wrong("error", f"a relative error from {finest:.3f} to {coarsest:.3f}")
    return next(p for p in hyperloglog.PRECISIONS if hyperloglog.standard_error(p) <= error)


def _check_room(count: int, keys_max: int, partition: int) -> None:
    if count > keys_max:
        raise BadInputError(
            f"library:Distinct: {count} keys in partition {partition}, expected up to {keys_max} "
            f"(with.keys); write `keys: {2 * keys_max}` and start from scratch, raise the "
            "parallelism, or count exactly, without `error`"
        )
