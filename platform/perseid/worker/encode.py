"""Output rows to Kafka keys and values, whole columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError


def keys(table: pa.Table, column: str | None) -> list[bytes | None]:
    """The record keys: text of the key column as UTF-8, binary as it is; None without a key."""
    if column is None:
        return [None] * table.num_rows
    found: list[bytes | None] = _bytes(_column(table, column, "key"))
    return found


def values(table: pa.Table, format_: str, avro: dict[str, Any] | None) -> list[bytes]:
    """The record values: json of all columns, or the only or `value` column of text and bytes."""
    if format_ == "json":
        return json_values(table)
    if format_ == "avro":
        from perseid.worker.avro_format import encode_avro

        assert avro is not None, "a sink of format avro has a schema file"
        return encode_avro(table, avro)
    name = table.column_names[0] if table.num_columns == 1 else "value"
    found: list[bytes] = _bytes(_column(table, name, f"value of format {format_}"))
    return found


def json_values(table: pa.Table) -> list[bytes]:
    """One JSON object a row, fields in the order of the columns, as `{"word": "x", "n": 12}`."""
    pieces: list[Any] = []
    text = "{"
    for index, name in enumerate(table.column_names):
        text += (", " if index else "") + orjson.dumps(name).decode() + ": "
        column = table.column(name)
        plain = pa.types.is_string(column.type) and not _needs_escape(column)
        quote = '"' if plain and not column.null_count else ""
        pieces += [text + quote, column if quote else _json_column(column, name, plain)]
        text = quote
    joined = pc.binary_join_element_wise(*pieces, text + "}", "")
    found: list[bytes] = _bytes(joined)
    return found


def _json_column(column: pa.ChunkedArray, name: str, plain: bool) -> Any:
    """The column as JSON text: at once where nothing needs an escape, else value by value.

    `plain`: strings that need none.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pc.fill_null(column.cast(pa.string()), "null")
    if plain:
        return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null")
    try:
        return pa.array([orjson.dumps(v).decode() for v in column.to_pylist()], type=pa.string())
    except TypeError as error:
        raise BadInputError(
            f"output column {name!r} of type {kind} has no JSON form ({error}); cast it to a "
            "string, number, boolean or timestamp, or use the sink format bytes"
        ) from error


def _needs_escape(column: pa.ChunkedArray) -> bool:
    """Whether a string holds a quote, a backslash or a control character: looks at all bytes."""
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        if data is None or not len(chunk):
            continue
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        octets = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        if ((octets < 0x20) | (octets == ord('"')) | (octets == ord("\\"))).any():
            return True
    return False


def _column(table: pa.Table, name: str, use: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise BadInputError(
            f"the sink's {use} is column {name!r}, and its input has only "
            f"{', '.join(table.column_names) or 'no columns'}; correct job.yaml or the operator"
        )
    return table.column(name)


def _bytes(column: Any) -> Any:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        column = column.cast(pa.string())
    return column.cast(pa.binary()).to_pylist()
