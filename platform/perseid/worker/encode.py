"""Output rows to Kafka keys and values, whole columns at a time."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.kernels import json_text
from perseid.kernels.library import one


def keys(table: pa.Table, column: str | None) -> pa.BinaryArray:
    """The record keys: text of the key column as UTF-8, binary as it is; null without a key."""
    if column is None:
        return pa.nulls(table.num_rows, pa.binary())
    return _bytes(_column(table, column, "key"))


def values(table: pa.Table, format_: str, avro: dict[str, Any] | None) -> pa.BinaryArray:
    """The record values: json of all columns, or the only or `value` column of text and bytes."""
    if format_ == "json":
        return json_values(table)
    if format_ == "avro":
        from perseid.worker.avro_format import encode_avro

        assert avro is not None, "a sink of format avro has a schema file"
        return pa.array(encode_avro(table, avro), pa.binary())
    name = table.column_names[0] if table.num_columns == 1 else "value"
    return _bytes(_column(table, name, f"value of format {format_}"))


def json_values(table: pa.Table) -> pa.BinaryArray:
    """One JSON object a row, fields in the order of the columns, as `{"word": "x", "n": 12}`."""
    fields = []
    for index, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        before = b"%s%s: " % (b", " if index else b"{", orjson.dumps(name))
        fields.append(json_text.Field(before, column))
    while isinstance(found := json_text.write(fields, table.num_rows), int):
        texts = _json_column(table.column(found), table.column_names[found])
        fields[found] = json_text.Field(fields[found].before, texts, is_json=True)
    return found


def _json_column(column: pa.ChunkedArray, name: str) -> pa.StringArray:
    """The column as JSON texts, value by value."""
    try:
        texts = [orjson.dumps(v).decode() for v in column.to_pylist()]
    except TypeError as error:
        raise BadInputError(
            f"output column {name!r} of type {column.type} has no JSON form ({error}); cast it to "
            "a string, number, boolean or timestamp, or use the sink format bytes"
        ) from error
    return pa.array(texts, pa.string())


def _column(table: pa.Table, name: str, use: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise BadInputError(
            f"the sink's {use} is column {name!r}, and its input has only "
            f"{', '.join(table.column_names) or 'no columns'}; correct job.yaml or the operator"
        )
    return table.column(name)


def _bytes(column: Any) -> pa.BinaryArray:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        column = column.cast(pa.string())
    return one(column.cast(pa.binary()))
