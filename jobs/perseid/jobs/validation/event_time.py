"""Checks that the column that a source's `eventTime` names has times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perseid.jobs.model.problems import nearest, shown
from perseid.jobs.model.spec import RECORD_TIME

TYPES = ("timestamp", "int64")


def check(
    path: tuple[str, ...], column: str, columns: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The mistakes of `column` for the source at `path` with `columns` and their types."""
    fitting = [name for name, kind in columns.items() if kind in TYPES]
    if column in fitting or (column == RECORD_TIME and column not in columns):
        return
    kind = f" of type {columns[column]}" if column in columns else ""
    write = nearest(column, fitting) or next(iter(fitting), RECORD_TIME)
    whose = "" if fitting else ", which is the time of the Kafka record"
    path = (*path, "eventTime", "column")
    yield path, (
        f"{'.'.join(path)}: found {shown(column)}{kind}, expected a column of type timestamp or "
        f"int64 (milliseconds since 1970); write `{write}`{whose}"
    )


def avro_columns(schema: Mapping[str, Any]) -> dict[str, str]:
    """The columns of an Avro record with their types as `avro_type` names them."""
    return {field["name"]: avro_type(field["type"]) for field in schema["fields"]}


def avro_type(kind: object) -> str:
    """The type of an Avro field: int64 and timestamp as in job.yaml, else its own name."""
    if isinstance(kind, list):
        return next((avro_type(k) for k in kind if k != "null"), "null")
    if isinstance(kind, dict):
        logical = str(kind.get("logicalType", ""))
        return "timestamp" if logical.startswith("timestamp-") else avro_type(kind.get("type"))
    return "int64" if kind == "long" else str(kind)
