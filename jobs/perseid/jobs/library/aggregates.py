"""The aggregates of windows: `{n: count, total: "sum(amount)", lo: "min(x)", hi: "max(x)"}`.

Each is a column of the window's panes: rows are folded as they arrive, panes when a window is
emitted. Nulls are ignored: a sum without numbers is zero, a minimum without them null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.parameters import Parameters
from perseid.state.primitives.columns import numbers, type_is
from perseid.state.primitives.undo import Slots, Values

_CALL = re.compile(r"^(sum|min|max)\(\s*([A-Za-z_]\w*)\s*\)$")
_EXPECTED = '`count`, or `sum`, `min` or `max` of a column as "sum(amount)"'


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The result column `name`; a count reads no column."""

    name: str
    how: str
    column: str | None


def parsed(given: Parameters, where: str) -> tuple[Aggregate, ...]:
    """The aggregates that `with:` requests."""
    found = []
    for name, text in given.mapping(where).items():
        call = _CALL.match(text.strip()) if isinstance(text, str) else None
        if text == "count":
            found.append(Aggregate(name, "count", None))
        elif call is not None:
            found.append(Aggregate(name, call[1], call[2]))
        else:
            raise given.wrong(where, _EXPECTED, text)
    return tuple(found)


def check_types(
    given: Parameters, aggregates: Sequence[Aggregate], types: dict[str, pa.DataType]
) -> None:
    """Checks that sums have numbers, and extremes numbers or points in time."""
    for one in aggregates:
        kind = types[one.column] if one.column is not None else pa.int64()
        number = type_is.is_int64(kind) or type_is.is_float64(kind)
        if not number and (one.how == "sum" or not type_is.is_timestamp(kind)):
            of = "int64 or float64" if one.how == "sum" else "int64, float64 or timestamp"
            raise given.wrong("types", f"{one.column} of type {of} for {one.how}", str(kind))


def over(how: str, values: pa.Array, starts: Slots, stops: Slots) -> pa.Array:
    """Folds the values of each non-empty range `starts[i]:stops[i]`; the type stays.

    Fastest with `starts` rising: NumPy also folds what is between a range and the next one.
    """
    kind, plain = values.type, numbers(values)
    if how in {"count", "sum"}:
        return pa.array(_sums(plain, starts, stops), kind)
    given = values.is_valid().to_numpy(zero_copy_only=False)
    limits = np.finfo if np.issubdtype(plain.dtype, np.floating) else np.iinfo
    if how == "min":
        plain = np.where(given, plain, limits(plain.dtype).max)
        found = _folded(np.minimum, plain, starts, stops)
    else:
        plain = np.where(given, plain, limits(plain.dtype).min)
        found = _folded(np.maximum, plain, starts, stops)
    missing = ~_folded(np.logical_or, given, starts, stops)
    if type_is.is_temporal(kind):
        return pa.array(found, pa.int64(), mask=missing).view(kind)
    return pa.array(found, kind, mask=missing)


def _sums(plain: Values, starts: Slots, stops: Slots) -> Values:
    found = _folded(np.add, plain, starts, stops)
    if len(found) and np.issubdtype(plain.dtype, np.integer):
        most = max(abs(int(plain.max())), abs(int(plain.min())))
        if most * int((stops - starts).max()) > np.iinfo(np.int64).max:
            exact = _folded(np.add, plain.astype(object), starts, stops)
            if (exact != found).any():
                raise BadInputError(
                    "a sum of a window does not fit into int64; sum a "
                    "smaller unit, or write `types: {COLUMN: float64}`"
                )
    return found


def _folded(how: np.ufunc, values: Values, starts: Slots, stops: Slots) -> Values:
    if not len(starts):
        return values[:0]
    bounds = np.column_stack([starts, stops]).ravel()
    padded = np.concatenate([values, values[:1]])  # a range may end after the last value
    found: Values = how.reduceat(padded, bounds)[::2]
    return found
