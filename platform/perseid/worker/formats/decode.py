"""Kafka record values to Arrow: text, bytes, json and avro.

Each format first decodes the whole batch at once. If that fails it decodes its halves, down to
single records, to find which are refused and why. JSON has a faster way before that, which leaves
out single records. Refused records leave the epoch as dead letters or stop the job (architecture.md
section 4); they are never dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj

from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.kernels import json_decode
from perseid.records.redaction import EXACT_MAX, misfit
from perseid.topics.schema_registry import Schema
from perseid.worker.formats import event_time, halving, years
from perseid.worker.formats.wire_format import (
    Decode,
    DecoderOf,
    Framed,
    KnownSchemas,
    Refusals,
    Values,
    refuse_all,
)


@dataclass(frozen=True)
class Format:
    """Turns values into columns of `schema`. `decode` returns the rows kept and the refusals."""

    schema: pa.Schema
    decode: Callable[[Values], tuple[pa.Table, Refusals]]


def make(
    name: str,
    columns: dict[str, str] | None,
    avro_schema: dict[str, Any] | None,
    schemas: KnownSchemas | None = None,
) -> Format:
    """The format of a source. `columns` are json's, `avro_schema` is the parsed .avsc file.

    With `schemas` the values have the Confluent wire format, and `avro_schema` is the reader's.
    """
    if name == "text":
        return Format(_value_schema(pa.string()), _decode_text)
    if name == "bytes":
        return Format(_value_schema(pa.binary()), _decode_bytes)
    if name == "json":
        schema = pa.schema([(c, ARROW_TYPES[t]) for c, t in (columns or {}).items()])
        plain = partial(_decode_json, schema=schema)
        return _framed(schemas, schema, _only("JSON", schema, lambda _: plain), plain)
    from perseid.worker.formats.avro_format import arrow_schema, decode_avro, written_with

    assert avro_schema is not None, "a source of format avro has a schema file"
    schema = arrow_schema(avro_schema)
    plain = partial(decode_avro, avro=avro_schema, schema=schema)
    writers = partial(written_with, reader=avro_schema, schema=schema)
    return _framed(schemas, schema, _only("AVRO", schema, writers), plain)


def _framed(
    schemas: KnownSchemas | None, schema: pa.Schema, decoder_of: DecoderOf, plain: Decode
) -> Format:
    return Format(schema, Framed(schemas, decoder_of, schema).decode if schemas else plain)


def _only(kind: str, schema: pa.Schema, decoder: Callable[[Schema], Decode]) -> DecoderOf:
    """Decoders for schemas of `kind`; records with others are refused."""

    def found(writer: Schema, number: int) -> Decode:
        if writer.kind == kind:
            return decoder(writer)
        return refuse_all(f"schema id {number} is {writer.kind}, expected {kind}", schema)

    return found


def _value_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("value", kind)])


def _decode_bytes(values: Values) -> tuple[pa.Table, Refusals]:
    return pa.table({"value": values}), {}


def _decode_text(values: Values) -> tuple[pa.Table, Refusals]:
    try:
        return pa.table({"value": values.cast(pa.string())}), {}
    except pa.ArrowInvalid:
        numbered = enumerate(values.to_pylist())
        refused = {i: reason for i, v in numbered if (reason := _not_utf8(v))}
        keep = np.ones(len(values), bool)
        keep[list(refused)] = False
        return pa.table({"value": values.filter(pa.array(keep)).cast(pa.string())}), refused


def _not_utf8(value: bytes | None) -> str:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not valid UTF-8: {error.reason} at byte {error.start}"
    return ""


def _decode_json(values: Values, schema: pa.Schema) -> tuple[pa.Table, Refusals]:
    table, left = json_decode.decode(values, schema)
    if not len(left):
        return table, {}
    others, bad = _decode_any_json(values.take(pa.array(left)), schema)
    refused = {int(left[index]): reason for index, reason in bad.items()}
    if not others.num_rows:
        return table, refused
    places = np.concatenate([np.delete(np.arange(len(values)), left), np.delete(left, list(bad))])
    both = pa.concat_tables([table, others]).combine_chunks()
    return both.take(pa.array(np.argsort(places, kind="stable"))), refused


def _decode_any_json(values: Values, schema: pa.Schema) -> tuple[pa.Table, Refusals]:
    """What JSON means here, for every record; many times as slow as `json_decode`."""
    plain = values.to_pylist()
    table, refused = halving.rows(
        len(plain),
        lambda start, end: _json_lines(plain[start:end], schema),
        lambda index: _json_row(plain[index], schema),
        schema,
    )
    strangers = years.refused(table)
    if strangers:
        fitting = years.places(len(plain), list(refused))
        refused |= {fitting[row]: reason for row, reason in strangers.items()}
        table = event_time.without(table, list(strangers))
    return table, refused


def _json_lines(values: list[bytes | None], schema: pa.Schema) -> pa.Table | None:
    """All values at once, or None when one of them must be decoded alone.

    Every value must be one object on one line: then as many rows as values means one row each.
    """
    try:
        joined = b"\n".join(values)  # type: ignore[arg-type]
    except TypeError:  # one value is None
        return None
    between = len(values) - 1
    if joined[:1] != b"{" or joined[-1:] != b"}" or joined.count(b"\n") != between:
        return None
    if joined.count(b"}\n{") != between or not _is_utf8(joined):
        return None
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
    try:
        table = pj.read_json(pa.BufferReader(joined), reading, options)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(values) else None


def _is_utf8(data: bytes) -> bool:
    """Arrow's JSON reader does not check this: it would return unreadable strings."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json_row(value: bytes | None, schema: pa.Schema) -> pa.Table | str:
    """The row of one record, or why it has none."""
    if value is None:
        return "the value is null (a tombstone): expected a JSON object"
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        # The two parsers differ in corner cases (deep nesting), and the contents of a batch differ
        # from run to run: a record that Arrow accepts in a batch must be accepted here too.
        alone = _json_lines([value], schema)
        return f"not valid JSON: {error}" if alone is None else alone
    if not isinstance(found, dict):
        return f"expected a JSON object, found {type(found).__name__}"
    row = {field.name: _whole(found.get(field.name), field.type) for field in schema}
    try:  # the conversion of a batch, so that a record's result never depends on its neighbours
        one = _json_lines([orjson.dumps(row)], schema)
    except MemoryError:  # of the host, not of the record
        raise
    except Exception:  # Arrow and orjson have many errors for values that do not fit a column
        one = None
    return misfit(row, schema) if one is None else one


def _whole(value: Any, kind: pa.DataType) -> Any:
    """`value`; a whole number such as 5.0 or 1e3 becomes an integer in an integer column."""
    exact = isinstance(value, float) and value.is_integer() and abs(value) <= EXACT_MAX
    return int(value) if exact and pa.types.is_integer(kind) else value
