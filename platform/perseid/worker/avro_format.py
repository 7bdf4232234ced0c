"""Avro values (schemaless, one schema a source) to Arrow, and rows to Avro, with fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from perseid.errors import BadInputError
from perseid.records.redaction import misfit, redacted
from perseid.topics.schema_registry import Schema
from perseid.worker.wire_format import refuse_all

_UNREADABLE = (
    EOFError, ValueError, IndexError, StopIteration, OverflowError, SchemaResolutionError,
)  # fmt: skip
_PRIMITIVES = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}


def arrow_schema(avro: dict[str, Any]) -> pa.Schema:
    """The Arrow schema of an Avro record of primitive, optionally nullable, fields."""
    return pa.schema([(f["name"], _arrow_type(f["type"], f["name"])) for f in avro["fields"]])


def _arrow_type(kind: Any, field: str) -> pa.DataType:
    if isinstance(kind, list):
        others = [k for k in kind if k != "null"]
        if len(others) == 1:
            return _arrow_type(others[0], field)
    if isinstance(kind, dict):
        if kind.get("logicalType") in {"timestamp-millis", "timestamp-micros"}:
            return pa.timestamp("us", tz="UTC")
        kind = kind.get("type")
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    raise BadInputError(
        f"Avro field {field!r} has type {kind!r}: expected one of {', '.join(_PRIMITIVES)} or a "
        "union of one of them with null; change the schema file"
    )


def decode_avro(
    values: pa.BinaryArray,
    avro: dict[str, Any],
    schema: pa.Schema,
    reader: dict[str, Any] | None = None,
) -> tuple[pa.Table, dict[int, str]]:
    """The rows that fit, and for each other one the reason.

    `avro` is the schema of who wrote them, `schema` the columns of `reader`, which is the same one
    when it is left out. Between two of them Avro's schema resolution decides.
    """
    parsed = fastavro.parse_schema(avro)
    resolved = None if reader is None else fastavro.parse_schema(reader)
    rows: list[Any] = []
    kept: list[int] = []
    refused: dict[int, str] = {}
    for index, value in enumerate(values.to_pylist()):
        stream = io.BytesIO(value or b"")
        try:
            row = fastavro.schemaless_reader(stream, parsed, resolved)
        except _UNREADABLE as error:
            refused[index] = f"not an Avro record of the schema: {type(error).__name__} {error}"
            continue
        if stream.read(1):
            refused[index] = "bytes are left over behind the Avro record"
            continue
        rows.append(row)
        kept.append(index)
    return _table(rows, kept, schema, refused), refused


def _table(
    rows: list[dict[str, Any]], kept: list[int], schema: pa.Schema, refused: dict[int, str]
) -> pa.Table:
    """The rows as columns; those with a number too large for its column join `refused`."""
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowInvalid, OverflowError):
        tables = []
        for index, row in zip(kept, rows, strict=True):
            try:
                tables.append(pa.Table.from_pylist([row], schema=schema))
            except (pa.ArrowInvalid, OverflowError):
                refused[index] = misfit(row, schema)
        return pa.concat_tables(tables) if tables else schema.empty_table()


def encode_avro(table: pa.Table, avro: dict[str, Any]) -> list[bytes]:
    """One schemaless Avro value a row; BadInputError when a row does not fit the schema."""
    parsed = fastavro.parse_schema(avro)
    found = []
    for number, row in enumerate(table.to_pylist()):
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, parsed, row)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInputError(
                f"an output row does not fit the sink's Avro schema ({type(error).__name__}): "
                f"{redacted(table.slice(number, 1))}; change the schema file or the operator's "
                "output columns"
            ) from None
        found.append(stream.getvalue())
    return found


def written_with(
    writer: Schema, *, reader: dict[str, Any], schema: pa.Schema
) -> Callable[[pa.BinaryArray], tuple[pa.Table, dict[int, str]]]:
    """Decodes what was written with the registry's schema `writer` into columns of `reader`."""
    try:
        avro = json.loads(writer.text)
        fastavro.parse_schema(avro)
    except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
        return refuse_all(f"its schema cannot be used: {type(error).__name__} {error}", schema)
    return partial(decode_avro, avro=avro, schema=schema, reader=reader)
