"""Which Avro fields a source can read, and their Arrow types. Pure.

A field is a primitive type, a timestamp, a UUID (as text), or one of these in a union with null.
The other logical types of Avro's specification are refused instead of being read as their base
type: a decimal's bytes, or a date's days, would look like other values. Names that the
specification does not have are ignored, as it requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from perseid.jobs.model.problems import listed

PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
MICROSECONDS = {"timestamp-millis": 1000, "timestamp-micros": 1}  # of one unit, by logical type
TIMESTAMP = pa.timestamp("us", "UTC")
_REFUSED = frozenset({
    "decimal", "big-decimal", "date", "time-millis", "time-micros", "duration", "timestamp-nanos",
    "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
})  # fmt: skip
EXPECTED = (
    f"{', '.join(PRIMITIVES)}, uuid (as a string), {', '.join(MICROSECONDS)}, or one of them in a "
    "union with null"
)


def arrow_types(schema: Mapping[str, Any]) -> dict[str, pa.DataType | None]:
    """The column type of each field of a record schema, None for one that cannot be read."""
    return {field["name"]: _arrow_type(field["type"]) for field in schema["fields"]}


def refusal(schema: Mapping[str, Any]) -> str | None:
    """The error text for all fields that cannot be read; None when there are none."""
    types = arrow_types(schema)
    wrong = [
        f"{field['name']} ({_described(field['type'])})"
        for field in schema["fields"] if types[field["name"]] is None
    ]  # fmt: skip
    if not wrong:
        return None
    return f"has fields that a source cannot read: {', '.join(wrong)}; expected {EXPECTED}"


def remedy(file: str, *, registry: bool) -> str:
    """What to do about `refusal` in the schema `file` of a source."""
    if registry:
        return f"leave them out of {file}: what the records have besides its fields is skipped"
    return "write `format: bytes` and decode the records in a Python operator"


def microseconds(kind: Any) -> int | None:
    """The microseconds of one unit of a timestamp field, None for a field of another type."""
    base, logical = plain(kind)
    return MICROSECONDS.get(logical or "") if base == "long" else None


def plain(kind: Any) -> tuple[Any, str | None]:
    """The type without its union with null, and the name of its logical type."""
    if isinstance(kind, list):
        others = [k for k in kind if k != "null"]
        return plain(others[0]) if len(others) == 1 else (kind, None)
    if isinstance(kind, Mapping) and kind.get("type") not in {"record", "enum", "fixed"}:
        base, inner = plain(kind.get("type"))
        logical = kind.get("logicalType", inner)
        return base, logical if isinstance(logical, str) else None
    return kind, None


def _arrow_type(kind: Any) -> pa.DataType | None:
    base, logical = plain(kind)
    if microseconds(kind) is not None:
        return TIMESTAMP
    if logical in _REFUSED or not isinstance(base, str):
        return None
    return PRIMITIVES.get(base)


def _described(kind: Any) -> str:
    base, logical = plain(kind)
    if logical in _REFUSED:
        return str(logical)
    if isinstance(base, list):
        return f"a union of {listed(_described(k) for k in base)}" if base else "an empty union"
    if isinstance(base, Mapping):
        kind = f"{base.get('type')}"
        return f"{base['logicalType']} of {kind}" if "logicalType" in base else kind
    return str(base)
