"""Avro values (schemaless, one schema a source) to Arrow, and rows to Avro, with fastavro."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from perseid.errors import BadInputError

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
    values: Sequence[bytes | None], avro: dict[str, Any], schema: pa.Schema
) -> tuple[pa.Table, dict[int, str]]:
    """The rows that fit, and for each other one the reason."""
    parsed = fastavro.parse_schema(avro)
    rows, refused = [], {}
    for index, value in enumerate(values):
        stream = io.BytesIO(value or b"")
        try:
            rows.append(fastavro.schemaless_reader(stream, parsed, None))
            if stream.read(1):
                rows.pop()
                refused[index] = "bytes are left over behind the Avro record"
        except (EOFError, ValueError, IndexError, StopIteration, UnicodeDecodeError) as error:
            refused[index] = f"not an Avro record of the schema: {type(error).__name__} {error}"
    return pa.Table.from_pylist(rows, schema=schema), refused


def encode_avro(table: pa.Table, avro: dict[str, Any]) -> list[bytes]:
    """One schemaless Avro value a row; BadInputError when a row does not fit the schema."""
    parsed = fastavro.parse_schema(avro)
    found = []
    for row in table.to_pylist():
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, parsed, row)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInputError(
                f"an output row does not fit the sink's Avro schema: {error}; change the schema "
                "file or the operator's output columns"
            ) from error
        found.append(stream.getvalue())
    return found
