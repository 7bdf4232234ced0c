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

EXACT_MAX = 2**53  # up to it a float has every whole number
# What a message of a library quotes: in quotes, to the end where they are not closed, and words
# with digits or signs of other alphabets. What names a type stays.
_CLASSES = "'(?:int|str|float|bytes|bool|dict|list|tuple|NoneType|decimal.Decimal|UUID)'"
_TYPES = r"(?:u?int|float|decimal|date|time|utf)(?:8|16|32|64|128|256)(?!\w)"
_VALUES = re.compile(
    rf"(?!{_CLASSES})"
    r"(?<!\w)[bru]?(?:'(?:[^'\\]|\\(?:.|$)|'(?=\w))*+(?:'|$)|\"(?:[^\"\\]|\\(?:.|$))*+(?:\"|$))"
    rf"|(?<![\w.@+-])(?!{_TYPES})[\w.@+-]*[\d@\u0080-\uffff][\w.@+-]*",
    re.DOTALL,
)
_VALUE = "<value>"
LEFT_OUT = "(what it says is left out: it is too long to be looked through for values)"
WORK_MAX = 50_000_000  # characters times values that `blotted` looks at: some seconds


def redacted(row: pa.Table) -> str:
    """What one row is like, without what it says: types, lengths, and values that are none."""
    shown = (f"{name}: {like(row[name][0])}" for name in row.column_names)
    return "{" + ", ".join(shown) + "}"


def blotted(text: str, row: pa.Table) -> str:
    """`text`, which somebody's exception said of `row`, with column names for the row's values.

    Whole words only. What the operator has cut out of a value or made of it cannot be known.
    """
    names = {form: f"<{name}>" for name in row.column_names for form in _forms(plain(row[name][0]))}
    if not names:
        return text
    if len(text) * len(names) > WORK_MAX:
        return LEFT_OUT
    words = "|".join(re.escape(form) for form in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{words})(?!\w)", lambda found: names[found[0]], text)


def masked(text: str) -> str:
    """`text`, which a library said of rows that are not at hand, without what may be their values.

    A value that it quotes as a bare word stays.
    """
    return _VALUES.sub(_VALUE, text)


def misfit(row: Mapping[str, Any], schema: pa.Schema) -> str:
    """Why a decoded record is refused: its types, where Arrow would say its values."""
    kinds = [f"{f.name}: {_kind(row.get(f.name), f.type)}" for f in schema]
    wanted = [f"{field.name}: {field.type}" for field in schema]
    return (
        f"does not fit the columns {', '.join(schema.names)}: found {', '.join(kinds)}, expected "
        f"{', '.join(wanted)}"
    )


def _kind(value: Any, expected: pa.DataType) -> str:
    """The Python type of `value`, and what is wrong with a number in a column of integers."""
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
    """An Arrow scalar, without what it says."""
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
    """As Python has it; as text what Python has no value for, as a time of the year 10000."""
    try:
        return value.as_py()
    except Exception:  # of many kinds, and a message about a record must come about all the same
        try:
            return value.cast(pa.string()).as_py()
        except Exception:
            return None


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
