"""Describes a record in a message without its values. Pure.

Messages go into logs, the status and the progress topic, which more people read than a job's data.
Dead letters keep their reasons unchanged: they contain the record itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

EXACT_MAX = 2**53  # up to it a float represents every whole number
# Values quoted by a library: text in quotes, to the end if they are not closed, and words with
# digits or characters of other alphabets. Names of types stay.
_CLASSES = "'(?:int|str|float|bytes|bool|dict|list|tuple|NoneType|decimal.Decimal|UUID)'"
_TYPES = r"(?:u?int|float|decimal|date|time|utf)(?:8|16|32|64|128|256)(?!\w)"
_VALUES = re.compile(
    rf"(?!{_CLASSES})"
    r"(?<!\w)[bru]?(?:'(?:[^'\\]|\\(?:.|$)|'(?=\w))*+(?:'|$)|\"(?:[^\"\\]|\\(?:.|$))*+(?:\"|$))"
    rf"|(?<![\w.@+-])(?!{_TYPES})[\w.@+-]*[\d@\u0080-\uffff][\w.@+-]*",
    re.DOTALL,
)
_VALUE = "<value>"
LEFT_OUT = "(its text is left out: it is too long to be searched for values)"
WORK_MAX = 50_000_000  # characters times values that `blotted` compares: some seconds


def redacted(row: pa.Table) -> str:
    """One row without its values: types, lengths, and nulls and non-finite numbers."""
    shown = (f"{name}: {like(row[name][0])}" for name in row.column_names)
    return "{" + ", ".join(shown) + "}"


def blotted(text: str, row: pa.Table) -> str:
    """`text`, a user exception's text about `row`, with column names for the row's values.

    Whole words only. Parts of a value, or values derived from it, cannot be recognised.
    """
    names = {form: f"<{name}>" for name in row.column_names for form in _forms(plain(row[name][0]))}
    if not names:
        return text
    if len(text) * len(names) > WORK_MAX:
        return LEFT_OUT
    words = "|".join(re.escape(form) for form in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{words})(?!\w)", lambda found: names[found[0]], text)


def masked(text: str) -> str:
    """`text`, a library's text about unknown rows, without what may be their values.

    A value quoted as a bare word stays.
    """
    return _VALUES.sub(_VALUE, text)


def misfit(row: Mapping[str, Any], schema: pa.Schema) -> str:
    """Why a decoded record is refused: its types, where Arrow's message has its values."""
    kinds = [f"{f.name}: {_kind(row.get(f.name), f.type)}" for f in schema]
    wanted = [f"{field.name}: {field.type}" for field in schema]
    return (
        f"does not fit the columns {', '.join(schema.names)}: found {', '.join(kinds)}, expected "
        f"{', '.join(wanted)}"
    )


def _kind(value: Any, expected: pa.DataType) -> str:
    """The Python type of `value`, and the fault of a number in a column of integers."""
    kind = "null" if value is None else type(value).__name__
    if not pa.types.is_integer(expected) or isinstance(value, bool):
        return kind
    if isinstance(value, int) and not _fits(value, expected):
        return f"{kind} out of the range of {expected}"
    if isinstance(value, float) and not value.is_integer():
        return f"{kind} that is no whole number"
    if isinstance(value, float) and abs(value) > EXACT_MAX:
        return f"{kind} above 2**53, which is not exact"
    return kind


def _fits(value: int, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def like(value: Any) -> str:
    """An Arrow scalar without its value."""
    if not value.is_valid:
        return "null"
    found = plain(value)
    if isinstance(found, float) and not math.isfinite(found):
        return str(found)
    if found is not None and (pa.types.is_string(value.type) or pa.types.is_binary(value.type)):
        unit = "characters" if isinstance(found, str) else "bytes"
        return f"{value.type} of {len(found)} {unit}"
    return str(value.type)


def plain(value: pa.Scalar) -> Any:
    """The Python value; a text if Python has no value for it, such as a time in the year 10000."""
    try:
        return value.as_py()
    except Exception:  # errors of many kinds; a message about a record must appear nevertheless
        try:
            return value.cast(pa.string()).as_py()
        except Exception:
            return None


def _forms(value: Any) -> Iterator[str]:
    """How a text may quote `value`; none for booleans and for what `redacted` shows."""
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
