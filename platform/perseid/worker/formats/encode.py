"""Output rows to Kafka keys and values, whole columns at a time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.kernels import json_encode
from perseid.kernels.library import one
from perseid.worker.formats import years


def check(columns: pa.Schema, format_: str, key: str | None, avro: dict[str, Any] | None) -> None:
    """BadInputError unless rows of `columns` can be written this way, whatever their values."""
    if key is not None:
        _check_text(columns, key, "key")
    if format_ == "json":
        for field in columns:
            _check_json(field.name, field.type)
    elif format_ == "avro":
        from perseid.worker.formats.avro_format import check_columns

        assert avro is not None, "a sink of format avro has a schema file"
        check_columns(columns, avro)
    else:
        _check_text(columns, _value_column(columns.names), f"value of format {format_}")


def keys(table: pa.Table, column: str | None) -> pa.BinaryArray:
    """The record keys: text of the key column as UTF-8, binary as it is; null without a key."""
    if column is None:
        return pa.nulls(table.num_rows, pa.binary())
    return _text(table, column, "key")


def values(table: pa.Table, format_: str, avro: dict[str, Any] | None) -> pa.BinaryArray:
    """The record values: json of all columns, or the only or `value` column of text and bytes."""
    if format_ == "json":
        return json_values(table)
    if format_ == "avro":
        from perseid.worker.formats.avro_format import encode_avro

        assert avro is not None, "a sink of format avro has a schema file"
        return pa.array(encode_avro(table, avro), pa.binary())
    return _text(table, _value_column(table.column_names), f"value of format {format_}")


def json_values(table: pa.Table) -> pa.BinaryArray:
    """One JSON object per row, fields in column order, such as `{"word": "x", "n": 12}`."""
    fields = []
    for index, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        before = b"%s%s: " % (b", " if index else b"{", orjson.dumps(name))
        is_json = not json_encode.is_plain(column.type)
        texts = _json_column(column, name) if is_json else column
        fields.append(json_encode.Field(before, texts, is_json))
    return json_encode.encode(fields, table.num_rows)


def _json_column(column: pa.ChunkedArray, name: str) -> pa.StringArray:
    """The column as JSON texts."""
    _check_json(name, column.type)
    numbers = _as_numpy(column)
    if numbers is not None:
        with suppress(TypeError):  # of arrays orjson takes no time of the last 26 hours of 9999
            return _json_numbers(numbers, column)
    try:
        texts = [orjson.dumps(v).decode() for v in column.to_pylist()]
    except Exception:  # some value has no Python or JSON form: find it
        texts = [_json_value(value, name, row) for row, value in enumerate(column)]
    return pa.array(texts, pa.string())


def _as_numpy(column: pa.ChunkedArray) -> np.ndarray[Any, Any] | None:
    """Numbers and times of which orjson writes an array as it does single values, else None."""
    kind = column.type
    if pa.types.is_floating(kind):
        floats: np.ndarray[Any, Any] = column.cast(pa.float64()).fill_null(0.0).to_numpy()
        return floats
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in (None, "UTC"):
        return None
    times = column.cast(pa.int64()).fill_null(0)
    return None if years.outside(times, years.PER_SECOND["us"]) else times.to_numpy().view("M8[us]")


def _json_numbers(numbers: np.ndarray[Any, Any], column: pa.ChunkedArray) -> pa.StringArray:
    """The texts of all numbers, which have no commas; null where the column has one."""
    if not len(numbers):
        return pa.array([], pa.string())
    zone = orjson.OPT_NAIVE_UTC if getattr(column.type, "tz", None) else 0
    joined = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY | zone)[1:-1]
    texts = pc.split_pattern(pa.array([joined.decode()]), ",").values
    return pc.if_else(one(column.is_valid()), texts, None) if column.null_count else texts


def _json_value(value: pa.Scalar, name: str, row: int) -> str:
    """The value as JSON text; times too if Python has no value for them."""
    try:
        return orjson.dumps(value.as_py()).decode()
    except MemoryError:  # of the host, not of the row
        raise
    except Exception as error:
        if pa.types.is_timestamp(value.type) or pa.types.is_date32(value.type):
            return orjson.dumps(_iso(value)).decode()
        raise BadInputError(
            f"output column {name!r} of type {value.type} has a value without a JSON form "
            f"({type(error).__name__}) in row {row}; correct the operator"
        ) from None


def _iso(time: pa.TimestampScalar | pa.Date32Scalar) -> str:
    """Any timestamp or date in Python's notation, in UTC if it has a time zone."""
    if pa.types.is_date32(time.type):
        return str(np.datetime64(time.value, "D"))
    # Arrow's own text is wrong after the year 32767
    text = str(np.datetime64(time.value, time.type.unit))
    return text if time.type.tz is None else f"{text}+00:00"


def _check_json(name: str, kind: pa.DataType) -> None:
    if not _has_json(kind):
        write = "base64({})" if pa.types.is_binary(kind) else "CAST({} AS STRING)"
        raise BadInputError(
            f"output column {name!r} of type {kind} has no JSON form; cast it to a string, number, "
            f"boolean or timestamp (in SQL `{write.format(name)} AS {name}`), or use the sink "
            "format bytes"
        )


def _has_json(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_nested(kind):
        below = kind if types.is_struct(kind) else [kind.field(i) for i in range(kind.num_fields)]
        return all(_has_json(field.type) for field in below)
    if types.is_dictionary(kind):
        return _has_json(kind.value_type)
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind)
        or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)
        or types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind)
    )  # fmt: skip


def _value_column(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "value"


def _text(table: pa.Table, name: str, use: str) -> pa.BinaryArray:
    _check_text(table.schema, name, use)
    return _bytes(table.column(name), f"{use} is column {name!r}")


def _check_text(columns: pa.Schema, name: str, use: str) -> None:
    if name not in columns.names:
        raise BadInputError(
            f"the sink's {use} is column {name!r}, and its input has only "
            f"{', '.join(columns.names) or 'no columns'}; correct job.yaml or the operator"
        )
    _bytes(pa.chunked_array([], columns.field(name).type), f"{use} is column {name!r}")


def _bytes(column: pa.ChunkedArray, use: str) -> pa.BinaryArray:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        try:
            column = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise BadInputError(
                f"the sink's {use} of type {kind}, which has no text; cast it to a string (in SQL "
                "`to_json(COLUMN)`) or to binary, or write the format json"
            ) from None
    return one(column.cast(pa.binary()))
