"""What a message may tell of a record: what it is like, never what it says. Pure.

Messages go into logs, the status and the progress topic, which more people read than a job's data.
Dead letters keep their reasons as they are: they have the record beside them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa


def redacted(row: pa.Table) -> str:
    """What one row is like, without what it says: types, lengths, and values that are none."""
    shown = (f"{name}: {like(row[name][0])}" for name in row.column_names)
    return "{" + ", ".join(shown) + "}"


def blotted(text: str, row: pa.Table) -> str:
    """`text`, which somebody's exception said of `row`, with column names for the row's values.

    Whole words only. What the operator has cut out of a value or made of it cannot be known.
    """
    names = {
        form: f"<{name}>" for name in row.column_names for form in _forms(row[name][0].as_py())
    }
    if not names:
        return text
    words = "|".join(re.escape(form) for form in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{words})(?!\w)", lambda found: names[found[0]], text)


def misfit(row: Mapping[str, Any], schema: pa.Schema) -> str:
    """Why a decoded record is refused: its types, where Arrow would say its values."""
    kinds = [f"{n}: {'null' if v is None else type(v).__name__}" for n, v in row.items()]
    wanted = [f"{field.name}: {field.type}" for field in schema]
    return (
        f"does not fit the columns {', '.join(schema.names)}: found {', '.join(kinds)}, expected "
        f"{', '.join(wanted)}"
    )


def like(value: Any) -> str:
    """An Arrow scalar, without what it says."""
    plain = value.as_py()
    if plain is None:
        return "null"
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    if isinstance(plain, str | bytes):
        unit = "characters" if isinstance(plain, str) else "bytes"
        return f"{value.type} of {len(plain)} {unit}"
    return str(value.type)


def _forms(value: Any) -> Iterator[str]:
    """How a text may quote `value`; nothing for what `redacted` shows too, and for truth values."""
    match value:
        case None | bool() | "" | b"":
            return
        case float() if not math.isfinite(value):
            return
        case dict():
            for inner in value.values():
                yield from _forms(inner)
        case list() | tuple():
            for inner in value:
                yield from _forms(inner)
        case str():
            yield from (value, repr(value)[1:-1])
        case bytes():
            yield from (repr(value)[2:-1], value.decode("utf-8", "backslashreplace"))
        case _:
            yield from (str(value), repr(value))
