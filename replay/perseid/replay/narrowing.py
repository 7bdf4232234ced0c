"""Which rows of a table make some wanted rows, by running what makes them again. Pure.

Nothing can be seen of a user's code but what goes in and comes out. So a choice of rows is a guess
until it is proven:

1. They make all that is wanted, and the rows that are left out make nothing of it.
2. None of them is idle: of ROUNDS random halves, each makes as many wanted rows as it has. A row
   that makes none passes this only together with one that makes several, each time with a chance of
   one in two at most.

Where no guess is proven, the rows are searched in halves. That finds them wherever each row makes
its own output, whatever the others are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.kernels.library import one
from perseid.worker.formats.encode import json_values

ROUNDS = 20  # one wrong proof in a million

Bools = npt.NDArray[np.bool_]
Texts = Mapping[bytes, int]  # how often each text is there
Makes = Callable[[Bools], Texts]  # what is wanted, of that which these rows make

How = Literal["proven", "searched", "whole"]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """`rows`: those that were found, by `how`; "whole": all, as they could not be narrowed."""

    rows: Bools
    how: How


def narrowed(
    count: int, wanted: Texts, makes: Makes, guesses: Iterable[Bools], more: Callable[[], bool]
) -> Narrowed:
    """Of `count` rows, which together make `wanted`, those that make something of it.

    `more`: whether the search may continue; it runs twice as often as it finds rows, or more.
    """
    for guess in guesses:
        if len(guess) == count and makes(guess) == wanted and (guess.all() or not makes(~guess)):
            if _each_makes_one(guess, makes):
                return Narrowed(guess, "proven")
    found = _searched(count, makes, more)
    if found is not None and makes(found) == wanted:
        return Narrowed(found, "searched")
    return Narrowed(np.ones(count, bool), "whole")


def _each_makes_one(rows: Bools, makes: Makes) -> bool:
    chance = np.random.default_rng(int(rows.sum()))
    halves = (rows & (chance.random(len(rows)) < 0.5) for _ in range(ROUNDS))
    return all(sum(makes(half).values()) == half.sum() for half in [rows, *halves])


def _searched(count: int, makes: Makes, more: Callable[[], bool]) -> Bools | None:
    """The rows each of which makes something alone; None if the search was ended."""
    found = np.zeros(count, bool)
    todo = [(0, count)] if count else []
    while todo:
        if not more():
            return None
        start, end = todo.pop()
        part = np.zeros(count, bool)
        part[start:end] = True
        if not makes(part):
            continue
        if end - start == 1:
            found[start] = True
        else:
            middle = (start + end) // 2
            todo += [(start, middle), (middle, end)]
    return found


def texts(table: pa.Table) -> Counter[bytes]:
    """The rows as JSON texts, each with its number."""
    if not table.num_rows:
        return Counter()
    return counted(json_values(_with_texts(table)))


def counted(values: pa.Array) -> Counter[bytes]:
    """The values, each with its number; a null counts as an empty one."""
    found = pc.value_counts(pc.fill_null(values, b""))
    return Counter(dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)))


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """In any order. Texts of many rows take a second, so the same order is tried first."""
    return bool(one.equals(other)) or texts(one) == texts(other)


def contains(made: Texts, wanted: Texts) -> bool:
    return all(made.get(text, 0) >= count for text, count in wanted.items())


def members(table: pa.Table, keys: pa.Table) -> Bools:
    """Which rows have one of `keys`, by all its columns; a null is none.

    A key column may have another type in both; it is cast to that of `table`.
    """
    codes, wanted = np.zeros(len(table), np.int64), np.zeros(len(keys), np.int64)
    valid = np.ones(len(table), bool)
    for name in keys.column_names:
        known = pc.drop_null(one(keys[name]).unique())
        column = table[name]
        if column.type != known.type:
            known = known.cast(column.type)
        index = pc.index_in(column, value_set=known)
        valid &= index.is_valid().to_numpy(zero_copy_only=False)
        mine = pc.index_in(one(keys[name]).cast(column.type), value_set=known)
        codes = codes * (len(known) + 1) + _numbers(index)
        wanted = wanted * (len(known) + 1) + _numbers(mine)
    return valid & np.isin(codes, wanted)


def with_keys(table: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of `keys`; a table without rows may lack their columns."""
    return table.filter(pa.array(members(table, keys))) if table.num_rows else table


def distinct(table: pa.Table) -> pa.Table:
    """The different rows that have no null, in no order."""
    found = table.group_by(table.column_names, use_threads=False).aggregate([])
    return found.select(table.column_names).drop_null()


def has_columns(table: pa.Table, names: Iterable[str]) -> bool:
    return set(names) <= set(table.column_names)


def _numbers(index: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(index, -1).to_numpy().astype(np.int64)
    return found


def _with_texts(table: pa.Table) -> pa.Table:
    """Bytes have no form in JSON: they become hexadecimal digits."""
    for at, field in enumerate(table.schema):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            digits = [None if v is None else v.hex() for v in table.column(at).to_pylist()]
            table = table.set_column(at, field.name, pa.array(digits, pa.string()))
    return table
