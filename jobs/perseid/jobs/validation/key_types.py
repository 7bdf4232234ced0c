"""Checks that the key columns of an operator have types by which rows find their partition. Pure.

The partition is a hash of the key's bytes, and 1, "1" and a 32-bit 1 have different hashes: an
operator whose inputs differ would silently never see their rows together. Types that are not known
before the job runs (SQL, Avro) are checked by the worker in each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.jobs.model.spec import JobSpec, OperatorSpec, output_of, producer, source_columns
from perseid.jobs.operator import Operator, outputs_of
from perseid.state.primitives.xxh64 import hashed_bits

Classes = Mapping[str, type[Operator]]
Found = tuple[tuple[str, ...], str]

EXPECTED = "string, binary or an integer type"
CAST = (
    "cast it in an operator before, as `sql: \"SELECT CAST(x AS STRING) AS x FROM input\"`, or "
    "declare the column with another type"
)


def usable(kind: pa.DataType) -> bool:
    """Whether the partition function accepts it."""
    return hashed_bits(kind) is not None


def check(spec: JobSpec, classes: Classes) -> Iterator[Found]:
    """The mistakes in the key columns of operators, as far as their types are known."""
    for name, operator in spec.operators.items():
        for column in operator.key:
            yield from _column(name, operator, column, spec, classes)


def _column(
    name: str, operator: OperatorSpec, column: str, spec: JobSpec, classes: Classes
) -> Iterator[Found]:
    path, where = ("operators", name, "key"), f"operators.{name}.key"
    known = {
        input_: kind for input_, stream in operator.inputs.items()
        if (kind := _type(stream, column, spec, classes)) is not None
    }  # fmt: skip
    for input_, kind in known.items():
        if not usable(kind):
            yield path, (
                f"{where}: column {column!r} of {operator.inputs[input_]} has type {kind}, "
                f"expected {EXPECTED}; {CAST}"
            )
            return
    text = difference(column, known)
    if text:
        yield path, f"{where}: {text}"


def difference(column: str, kinds: Mapping[str, pa.DataType]) -> str:
    """The error text when inputs differ in the type of one key column; empty when they agree."""
    if len(set(kinds.values())) < 2:
        return ""
    described = ", ".join(f"{kind} in {input_}" for input_, kind in kinds.items())
    return (
        f"column {column!r} is {described}: rows with one key would go to different partitions and "
        f"never meet, expected one type; {CAST}"
    )


def _type(stream: str, column: str, spec: JobSpec, classes: Classes) -> pa.DataType | None:
    """The type of a column of a source or an operator's output, None when only a run shows it."""
    node = producer(stream)
    if node in spec.sources:
        columns = source_columns(spec.sources[node]) or {}
        return ARROW_TYPES[columns[column]] if column in columns else None
    output = outputs_of(classes[node]).get(output_of(stream)) if node in classes else None
    return output.field(column).type if output is not None and column in output.names else None
