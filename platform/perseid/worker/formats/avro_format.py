"""Avro values (schemaless, one schema per source) to Arrow, and rows to Avro, with fastavro.

Logical types are removed from the schemas before fastavro sees them: fastavro would make a Python
object of each value, which Arrow needs back as a number, and some values have no such object.
Timestamps are converted as whole columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.jobs.model import avro_types
from perseid.jobs.model.avro_types import TIMESTAMP
from perseid.kernels.library import one
from perseid.records.redaction import misfit, redacted
from perseid.topics.schema_registry import Schema
from perseid.worker.formats import event_time, halving, years
from perseid.worker.formats.wire_format import refuse_all

_MICROSECONDS = 10**6  # per second


def arrow_schema(avro: dict[str, Any]) -> pa.Schema:
    """The Arrow schema of an Avro record; BadInputError with all fields that cannot be read."""
    text = avro_types.refusal(avro)
    if text is not None:
        raise BadInputError(f"the Avro schema {text}; change the schema file")
    return pa.schema(list(avro_types.arrow_types(avro).items()))


def decode_avro(
    values: pa.BinaryArray,
    avro: dict[str, Any],
    schema: pa.Schema,
    reader: dict[str, Any] | None = None,
) -> tuple[pa.Table, dict[int, str]]:
    """The rows that fit, and for each other row the reason.

    `avro` is the writer's schema; `schema` has the columns of `reader`, by default the same schema.
    Avro's schema resolution decides between two of them.
    """
    parsed = fastavro.parse_schema(_plain(avro))
    resolved = None if reader is None else fastavro.parse_schema(_plain(reader))
    rows: list[Any] = []
    kept: list[int] = []
    refused: dict[int, str] = {}
    for index, value in enumerate(values.to_pylist()):
        if value is None:
            refused[index] = "the value is null (a tombstone): expected an Avro record"
            continue
        stream = io.BytesIO(value)
        try:
            row = fastavro.schemaless_reader(stream, parsed, resolved)
        except MemoryError:  # of the host, not of the record
            raise
        except Exception as error:  # whatever it is, this record's bytes made fastavro raise it
            refused[index] = f"not an Avro record of the schema: {type(error).__name__} {error}"
            continue
        if stream.read(1):
            refused[index] = "bytes are left over after the Avro record"
            continue
        rows.append(row)
        kept.append(index)
    table, misfits = _table(rows, schema)
    refused |= {kept[row]: reason for row, reason in misfits.items()}
    fitting = [kept[row] for row in years.places(len(rows), list(misfits))]
    table, strangers = _with_times(table, _units(avro, reader or avro))
    return table, refused | {fitting[row]: reason for row, reason in strangers.items()}


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """The rows as columns, timestamps as int64; and why other rows do not fit."""
    raw = pa.schema([(f.name, pa.int64() if f.type == TIMESTAMP else f.type) for f in schema])

    def table(start: int, end: int) -> pa.Table | None:
        try:
            return pa.Table.from_pylist(rows[start:end], schema=raw)
        except MemoryError:  # of the host, not of the row
            raise
        except Exception:  # Arrow has many errors for values that do not fit a column
            return None

    def alone(index: int) -> pa.Table | str:
        found = table(index, index + 1)
        return misfit(rows[index], schema) if found is None else found

    return halving.rows(len(rows), table, alone, raw)


def _with_times(table: pa.Table, units: Mapping[str, int]) -> tuple[pa.Table, dict[int, str]]:
    """`table` with the columns `units` as timestamps, without rows whose time is out of range."""
    refused: dict[int, str] = {}
    for name, unit in units.items():
        for row in years.outside(table[name], _MICROSECONDS // unit):
            refused.setdefault(row, years.reason(name))
    table = event_time.without(table, list(refused))
    for name, unit in units.items():
        column = one(table[name])
        times = pa.array(column.fill_null(0).to_numpy() * unit, mask=_nulls(column)).cast(TIMESTAMP)
        table = table.set_column(table.column_names.index(name), name, times)
    return table, refused


def _units(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> dict[str, int]:
    """The reader's timestamp fields, each with the microseconds of the writer's unit."""
    written = {field["name"]: field for field in writer.get("fields", ())}
    found = {}
    for field in reader["fields"]:
        unit = avro_types.microseconds(field["type"])
        if unit is None:
            continue
        names = [field["name"], *field.get("aliases", ())]
        origin = next((written[name] for name in names if name in written), field)
        found[field["name"]] = avro_types.microseconds(origin["type"]) or unit
    return found


def check_columns(columns: pa.Schema, avro: dict[str, Any]) -> None:
    """BadInputError when rows of `columns` cannot be written with the schema.

    Checks what is known without a row: missing fields, and columns whose type differs from a
    primitive field.
    """
    for field in avro["fields"]:
        name = field["name"]
        if name not in columns.names:
            if "default" not in field and not _takes_null(field["type"]):
                raise BadInputError(
                    f"the sink's Avro schema has the field {name!r}, and its input has only "
                    f"{', '.join(columns.names)}; add the column, or give the field a default"
                )
            continue
        kind = columns.field(name).type
        sample = _sample(kind)
        base, _ = avro_types.plain(field["type"])
        if sample is not None and isinstance(base, str) and base in avro_types.PRIMITIVES:
            try:
                encode_avro(pa.table({name: pa.array([sample], kind)}), {**avro, "fields": [field]})
            except BadInputError:
                raise BadInputError(
                    f"output column {name!r} has type {kind}, and the sink's Avro schema "
                    f"{json.dumps(field['type'])} for it; cast the column, or change the schema "
                    "file"
                ) from None


def _takes_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _sample(kind: pa.DataType) -> Any:
    """A value of a column of `kind`, as rows have it; None if one value is not conclusive."""
    types = pa.types
    for fits, value in (
        (types.is_string, "1"), (types.is_binary, b"1"), (types.is_boolean, True),
        (types.is_integer, 1), (types.is_floating, 1.5), (types.is_decimal, Decimal(1)),
        (types.is_timestamp, datetime(2026, 1, 1, tzinfo=UTC)), (types.is_date, date(2026, 1, 1)),
    ):  # fmt: skip
        if fits(kind):
            return value
    return None


def encode_avro(table: pa.Table, avro: dict[str, Any]) -> list[bytes]:
    """One schemaless Avro value per row; BadInputError when a row does not fit the schema."""
    _check_ints(table, avro)
    numbers, plain = _without_times(table, avro)
    parsed = fastavro.parse_schema(plain)
    try:
        rows = numbers.to_pylist()
    except Exception:  # some value has no Python form, such as a time in the year 10000
        rows = None
    found = []
    for number in range(table.num_rows):
        stream = io.BytesIO()
        try:
            row = rows[number] if rows else numbers.slice(number, 1).to_pylist()[0]
            fastavro.schemaless_writer(stream, parsed, row)
        except MemoryError:  # of the host, not of the row
            raise
        except Exception as error:  # whatever it is, this row was being written
            raise _misfit(table, number, type(error).__name__) from None
        found.append(stream.getvalue())
    return found


def _check_ints(table: pa.Table, avro: dict[str, Any]) -> None:
    """Raises for a number of more than 32 bits in an Avro int: fastavro would write it."""
    for field in avro["fields"]:
        name = field["name"]
        if avro_types.plain(field["type"])[0] != "int" or name not in table.column_names:
            continue
        column, bounds = table[name], np.iinfo(np.int32)
        if not pa.types.is_integer(column.type) or column.type.bit_width < 32:
            continue
        wide = pc.greater(column, pa.scalar(bounds.max, column.type))
        if pa.types.is_signed_integer(column.type):
            wide = pc.or_(wide, pc.less(column, pa.scalar(bounds.min, column.type)))
        row = pc.index(wide, True).as_py()
        if row >= 0:
            raise _misfit(table, row, f"column {name} is out of the range of int")


def _misfit(table: pa.Table, row: int, why: str) -> BadInputError:
    return BadInputError(
        f"an output row does not fit the sink's Avro schema ({why}): "
        f"{redacted(table.slice(row, 1))}; change the schema file or the operator's output columns"
    )


def _without_times(table: pa.Table, avro: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    """Timestamp columns for timestamp fields as Avro's numbers, in table and schema."""
    fields = []
    for field in avro["fields"]:
        name, unit = field["name"], avro_types.microseconds(field["type"])
        place = table.schema.get_field_index(name)
        if unit is None or place < 0 or not pa.types.is_timestamp(table.schema.field(name).type):
            fields.append(field)
            continue
        table = table.set_column(place, name, _numbers(one(table[name]), name, unit))
        fields.append({**field, "type": _plain(field["type"])})
    return table, {**avro, "fields": fields}


def _numbers(times: pa.Array, name: str, unit: int) -> pa.Array:
    """Timestamps as numbers of a field whose unit is `unit` microseconds, rounded down."""
    plain = times.cast(pa.int64()).fill_null(0).to_numpy()
    have, want = years.PER_SECOND[times.type.unit], _MICROSECONDS // unit
    if have >= want:
        return pa.array(plain // (have // want), mask=_nulls(times))
    most = np.iinfo(np.int64).max // (want // have)
    if len(plain) and (plain.max() > most or plain.min() < -most):
        raise BadInputError(
            f"output column {name!r} has a time that the sink's Avro schema has no number for: "
            "expected one of the years 1 to 9999; correct the operator"
        )
    return pa.array(plain * (want // have), mask=_nulls(times))


def _nulls(column: pa.Array) -> np.ndarray:
    found: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _plain(kind: Any) -> Any:
    """The schema without the names of its logical types."""
    if isinstance(kind, list):
        return [_plain(one_of) for one_of in kind]
    if not isinstance(kind, Mapping):
        return kind
    found = {name: value for name, value in kind.items() if name != "logicalType"}
    for name in {"type", "items", "values"} & found.keys():
        found[name] = _plain(found[name])
    if isinstance(found.get("fields"), list):
        found["fields"] = [{**f, "type": _plain(f["type"])} for f in found["fields"]]
    return found


def written_with(
    writer: Schema, *, reader: dict[str, Any], schema: pa.Schema
) -> Callable[[pa.BinaryArray], tuple[pa.Table, dict[int, str]]]:
    """Decodes records written with the registry's schema `writer` into columns of `reader`."""
    try:
        avro = json.loads(writer.text)
        fastavro.parse_schema(avro)
    except Exception as error:  # fastavro's schema errors share no base class but Exception
        return refuse_all(f"its schema cannot be used: {type(error).__name__} {error}", schema)
    return partial(decode_avro, avro=avro, schema=schema, reader=reader)
