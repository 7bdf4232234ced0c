"""Folds many amounts per key into one, and then into the key's value: sum, minimum, maximum. Pure.

Amounts of a key are taken in row order, so that float sums agree in every run. A sum counts null as
zero, and includes NaN. Minimum and maximum ignore null and NaN, as Arrow's kernels do: a key
without other amounts is null, or keeps the NaN that `upsert` or a sum wrote. Integers never wrap
around: a result that does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.columns import numbers
from perseid.state.primitives.undo import Cells, Slots, Values

# (amounts, row -> key or None if each has its own, keys, old cells of the keys in the last
# argument) -> new values and which are null, by key
Fold = Callable[[pa.Array, Slots | None, int, Cells, Slots | slice], tuple[Values, Values | None]]


def add(
    amounts: pa.Array, rows: Slots | None, count: int, old: Cells, known: Slots | slice
) -> tuple[Values, None]:
    """Old values plus amounts."""
    totals = summed(amounts, rows, count)
    if len(old.values):
        before = old.values
        if old.nulls is not None:
            before = np.where(old.nulls, before.dtype.type(0), before)
        totals[known] = plus(before, totals[known], amounts.type)
    return totals, None


def smallest(
    amounts: pa.Array, rows: Slots | None, count: int, old: Cells, known: Slots | slice
) -> tuple[Values, Values]:
    """The smaller of old value and amounts."""
    return _extreme(np.fmin, amounts, rows, count, old, known)


def largest(
    amounts: pa.Array, rows: Slots | None, count: int, old: Cells, known: Slots | slice
) -> tuple[Values, Values]:
    """The larger of old value and amounts."""
    return _extreme(np.fmax, amounts, rows, count, old, known)


FOLDS: dict[str, Fold] = {"add": add, "min": smallest, "max": largest}


def summed(amounts: pa.Array, rows: Slots | None, count: int) -> Values:
    """The sum of each key's amounts."""
    plain = numbers(amounts)
    if rows is None:
        return plain.copy()
    sums = np.zeros(count, plain.dtype)
    np.add.at(sums, rows, plain)
    if np.issubdtype(plain.dtype, np.integer) and _may_overflow(plain):
        _refuse_wrong_sums(sums, plain, rows, amounts.type)
    return sums


def plus(old: Values, amounts: Values, kind: pa.DataType) -> Values:
    """Old values plus one amount each."""
    new = old + amounts
    if np.issubdtype(new.dtype, np.integer):
        if np.issubdtype(new.dtype, np.signedinteger):
            wrapped = ((old ^ new) & (amounts ^ new)) < 0
        else:
            wrapped = new < old
        if wrapped.any():
            raise BadInputError(f"a sum does not fit into {kind}; declare a wider column")
    return cast(Values, new)


def _extreme(
    choose: np.ufunc,
    amounts: pa.Array,
    rows: Slots | None,
    count: int,
    old: Cells,
    known: Slots | slice,
) -> tuple[Values, Values]:
    plain = numbers(amounts)
    given = ~_missing(Cells(plain, _nulls(amounts), None))
    if rows is None:
        best, seen = plain.copy(), given
    else:
        best, seen = np.zeros(count, plain.dtype), np.zeros(count, bool)
        there = np.flatnonzero(given)
        # the first amount: of repeated indices the last one written stays
        best[rows[there[::-1]]] = plain[there[::-1]]
        seen[rows[there]] = True
        choose.at(best, rows[there], plain[there])
    held, kept = np.zeros(count, bool), best.copy()
    held[known] = ~_missing(old)
    kept[known] = old.values
    # Compared, not chosen by NumPy: of 0.0 and -0.0 the old one must stay, on every processor.
    better = best < kept if choose is np.fmin else best > kept
    values = np.where(seen & (better | ~held), best, kept)
    nulls = ~seen
    nulls[known] &= False if old.nulls is None else old.nulls
    values[nulls] = 0
    return values, nulls


def _nulls(values: pa.Array) -> Values | None:
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None


def _missing(cells: Cells) -> Values:
    """Which of `cells` are null or NaN."""
    missing = np.zeros(len(cells.values), bool) if cells.nulls is None else cells.nulls.copy()
    if np.issubdtype(cells.values.dtype, np.floating):
        missing |= np.isnan(cells.values)
    return cast(Values, missing)


def _may_overflow(amounts: Values) -> bool:
    """Whether some sum of `amounts` might not fit; almost never true."""
    if not len(amounts):
        return False
    most = max(int(amounts.max()), -int(amounts.min()))
    return most * len(amounts) > int(np.iinfo(amounts.dtype).max)


def _refuse_wrong_sums(sums: Values, amounts: Values, rows: Slots, kind: pa.DataType) -> None:
    exact: dict[int, int] = {}
    for row, amount in zip(rows.tolist(), amounts.tolist(), strict=True):
        exact[row] = exact.get(row, 0) + amount
    if any(total != int(sums[row]) for row, total in exact.items()):
        raise BadInputError(f"a sum does not fit into {kind}; declare a wider column")
