"""Running totals by key: `CountByKey` and `Sum`.

    counts: {input: words, key: word, use: "library:CountByKey"}
    spent:  {input: orders, key: user, use: "library:Sum", with: {column: amount, type: float64}}

Both emit one row per changed key per epoch: the key columns and `n` or `sum`. `with: {types: {user:
int64}}` names the types of key columns that are no strings.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.parameters import refuse_unknown
from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.jobs.model.problems import listed
from perseid.jobs.model.spec import COLUMN_TYPES, OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Table


def count_by_key(spec: OperatorSpec) -> type[Operator]:
    """`with:` has only `types`."""
    types = key_types(spec, "CountByKey", set())
    keys = list(types)

    class CountByKey(Operator):
        """The number of rows of each key."""

        output = pa.schema([*types.items(), ("n", pa.int64())])
        metadata = ()
        total = Table(key=types, n=pa.int64())

        def combine(self, batch: pa.Table) -> pa.Table:
            counted = batch.group_by(keys).aggregate([([], "count_all")])
            return counted.rename_columns([*keys, "n"])

        def process(self, batch: pa.Table, out: Emitter) -> None:
            out.emit(self.total.add(batch.select(keys), n=batch["n"]))

    return CountByKey


def sum_by_key(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `column`, and `type` when it is not int64.

    No combiner for floating point: a sum of sums rounds differently from a sum in input order.
    """
    types = key_types(spec, "Sum", {"column", "type"})
    column = column_of(spec, "Sum")
    amount = _type(spec.with_.get("type", "int64"), "Sum", "type", ("int64", "float64"))
    keys = list(types)

    class Sum(Operator):
        """The sum of one column by key."""

        output = pa.schema([*types.items(), ("sum", amount)])
        metadata = metadata_among([column])
        total = Table(key=types, sum=amount)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            out.emit(self.total.add(batch.select(keys), sum=batch[column].cast(amount)))

    if amount == pa.int64():

        def combine(self: Operator, batch: pa.Table) -> pa.Table:
            summed = batch.group_by(keys).aggregate([(column, "sum")])
            return summed.rename_columns([*keys, column])

        cast(Any, Sum).combine = combine
    return Sum


def column_of(spec: OperatorSpec, name: str) -> str:
    """The column that `with:` names to be added up."""
    column = spec.with_.get("column")
    if not isinstance(column, str):
        raise BadInputError(
            f"library:{name}: with.column is {column!r}, expected the column to add up; "
            "write `with: {column: amount}`"
        )
    return column


def key_types(spec: OperatorSpec, name: str, known: set[str]) -> dict[str, pa.DataType]:
    """Key columns with their types; BadInputError for parameters that are not `known`."""
    refuse_unknown(spec.with_, name, known | {"types"})
    types = spec.with_.get("types", {})
    if not isinstance(types, dict) or types.keys() - set(spec.key):
        raise BadInputError(
            f"library:{name}: with.types is {types!r}, expected key columns "
            f"({listed(spec.key)}) with types; write `types: {{{spec.key[0]}: string}}`"
        )
    return {c: _type(types.get(c, "string"), name, f"types.{c}", COLUMN_TYPES) for c in spec.key}


def _type(kind: object, name: str, where: str, allowed: tuple[str, ...]) -> pa.DataType:
    if kind not in allowed:
        raise BadInputError(
            f"library:{name}: with.{where} is {kind!r}, expected one of {', '.join(allowed)}; "
            f"write `{allowed[0]}`"
        )
    return ARROW_TYPES[str(kind)]
