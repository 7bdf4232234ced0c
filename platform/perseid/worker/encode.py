"""Output rows to Kafka keys and values, whole columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.kernels import json_text
from perseid.kernels.library import one


def keys(table: pa.Table, column: str | None) -> pa.BinaryArray:
    """The record keys: text of the key column as UTF-8, binary as it is; null without a key."""
    if column is None:
        return pa.nulls(table.num_rows, pa.binary())
    return _bytes(_column(table, column, "key"), "key")


def values(table: pa.Table, format_: str, avro: dict[str, Any] | None) -> pa.BinaryArray:
    """The record values: json of all columns, or the only or `value` column of text and bytes."""
    if format_ == "json":
        return json_values(table)
    if format_ == "avro":
        from perseid.worker.avro_format import encode_avro

        assert avro is not None, "a sink of format avro has a schema file"
        return pa.array(encode_avro(table, avro), pa.binary())
    name = table.column_names[0] if table.num_columns == 1 else "value"
    use = f"value of format {format_}"
    return _bytes(_column(table, name, use), use)


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
    except Exception:  # some value is none of Python's or of JSON's: which one?
        texts = [_json_value(value, name, row) for row, value in enumerate(column)]
    return pa.array(texts, pa.string())


def _json_value(value: pa.Scalar, name: str, row: int) -> str:
    """The value as JSON text; times also where Python has no value for them."""
    try:
        return orjson.dumps(value.as_py()).decode()
    except MemoryError:  # of the host, not of the row
        raise
    except Exception as error:
        if pa.types.is_timestamp(value.type) or pa.types.is_date32(value.type):
            return orjson.dumps(_iso(value)).decode()
        if isinstance(error, TypeError):
            raise BadInputError(
                f"output column {name!r} of type {value.type} has no JSON form ({error}); cast it "
                "to a string, number, boolean or timestamp, or use the sink format bytes"
            ) from error
        raise BadInputError(
            f"output column {name!r} of type {value.type} has a value without a JSON form "
            f"({type(error).__name__}) in row {row}; correct the operator"
        ) from None


def _iso(time: pa.TimestampScalar | pa.Date32Scalar) -> str:
    """Any timestamp or date as Python's are written, in UTC where it has a zone."""
    if pa.types.is_date32(time.type):
        return str(np.datetime64(time.value, "D"))
    text = str(np.datetime64(time.value, time.type.unit))  # Arrow's own text is wrong beyond 32767
    return text if time.type.tz is None else f"{text}+00:00"


def _column(table: pa.Table, name: str, use: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise BadInputError(
            f"the sink's {use} is column {name!r}, and its input has only "
            f"{', '.join(table.column_names) or 'no columns'}; correct job.yaml or the operator"
        )
    return table.column(name)


def _bytes(column: Any, use: str) -> pa.BinaryArray:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        try:
            column = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise BadInputError(
                f"the sink's {use} is of type {kind}, which has no text; cast it to a string or to "
                "binary in the operator"
            ) from None
    return one(column.cast(pa.binary()))
