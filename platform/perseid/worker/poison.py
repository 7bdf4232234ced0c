"""Finds the records on which an operator raises, to take them out or to say which one. Pure.

    the whole epoch raises -> the shortest prefix that raises, by halving -> its last row is poison
    -> without that row the whole again, and so on

A prefix, not any half: every row is judged behind the rows that came before it, as in the epoch
itself, so an operator whose rows depend on each other loses none by being cut. What is poison
depends on the state before the epoch and on its input alone: whoever runs the epoch finds the same.
What the epoch becomes is one call on all other rows, in their order.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import PermanentError
from perseid.worker import encode
from perseid.worker.refused import Refused, to_table

POISON_MAX = 100  # in one epoch of one partition: with more it is the operator that is wrong

Inputs = dict[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Poison:
    """One row on which the operator raised; `row` is a table of that row alone."""

    input: str
    row: pa.Table
    error: PermanentError


def sift(attempt: Callable[[Inputs], None], inputs: Inputs) -> list[Poison]:
    """The rows that `attempt` raises on; it has ended well with all others when this returns.

    `attempt` begins with the same state each time, and raises PermanentError for a bad row.

    Raises:
        PermanentError: it raises without rows too, or on more than POISON_MAX of them.
    """
    try:
        attempt(inputs)
    except PermanentError as error:
        return _sifted(attempt, _Cut(inputs), error)
    return []


def stop_at(attempt: Callable[[Inputs], None], inputs: Inputs) -> None:
    """Runs `attempt`; its error then also says which row it is about, without what is in it."""
    try:
        attempt(inputs)
    except PermanentError as error:
        cut = _Cut(inputs)
        if _raised(attempt, cut.upto(0)) is not None:
            raise error from error.__cause__
        place, found = _first(attempt, cut, 0, error)
        poison = cut.take_out(place, found)
        raise type(error)(
            f"{found}\nThe record is row {place + 1} of {cut.rows} (of input {poison.input}): "
            f"{redacted(poison.row)}. `errors: {{operator: bisect}}` sends such records to the "
            "dead-letter topic"
        ) from found.__cause__


def _sifted(attempt: Callable[[Inputs], None], cut: _Cut, error: PermanentError) -> list[Poison]:
    attempt(cut.upto(0))  # raises when it is not about a row
    found: list[Poison] = []
    good, failed = 0, error
    while True:
        if good == cut.rows or len(found) == POISON_MAX:
            raise _hopeless(failed, len(found), cut.rows)
        place, reason = _first(attempt, cut, good, failed)
        found.append(cut.take_out(place, reason))
        good = place + 1
        again = _raised(attempt, cut.upto(cut.rows))
        if again is None:
            return found
        failed = again


def _first(
    attempt: Callable[[Inputs], None], cut: _Cut, good: int, error: PermanentError
) -> tuple[int, PermanentError]:
    """The place of the first row with which it raises, and what; the first `good` rows are fine."""
    bad = cut.rows
    while bad - good > 1:
        middle = (good + bad) // 2
        failed = _raised(attempt, cut.upto(middle))
        if failed is None:
            good = middle
        else:
            bad, error = middle, failed
    return bad - 1, error


def _raised(attempt: Callable[[Inputs], None], inputs: Inputs) -> PermanentError | None:
    try:
        attempt(inputs)
    except PermanentError as error:
        return error
    return None


def _hopeless(error: PermanentError, found: int, rows: int) -> PermanentError:
    why = (
        "it raises with or without the same row, so it is not deterministic"
        if found < POISON_MAX
        else f"that is more than {POISON_MAX} of {rows} rows, so it is not about single records"
    )
    return PermanentError(f"{error}\nThe batch was bisected: {found} rows were found, and {why}")


class _Cut:
    """The rows of all inputs in one order, with some taken out."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.rows = sum(table.num_rows for table in inputs.values())
        self._kept = np.ones(self.rows, bool)

    def upto(self, end: int) -> Inputs:
        """The rows in front of place `end` that are left; every input has its columns."""
        found, start = {}, 0
        for name, table in self._inputs.items():
            count = min(max(end - start, 0), table.num_rows)
            kept = self._kept[start : start + count]
            found[name] = table.slice(0, count).filter(pa.array(kept))
            start += table.num_rows
        return found

    def take_out(self, place: int, error: PermanentError) -> Poison:
        self._kept[place] = False
        for name, table in self._inputs.items():
            if place < table.num_rows:
                return Poison(name, table.slice(place, 1), error)
            place -= table.num_rows
        raise AssertionError("a place behind the last row")


@dataclass(frozen=True, slots=True)
class Sieve:
    """How the dead letters of one operator partition look; `key` are the operator's columns."""

    operator: str
    partition: int
    key: tuple[str, ...]

    def run(self, attempt: Callable[[Inputs], None], inputs: Inputs) -> pa.Table:
        """What `sift` finds, as dead letters; see `perseid.worker.refused`."""
        return to_table([self._letter(poison) for poison in sift(attempt, inputs)])

    def _letter(self, poison: Poison) -> Refused:
        """The row as JSON, with the key that the operator's own records would have."""
        key = self.key[0] if len(self.key) == 1 else None
        cause = poison.error.__cause__ or poison.error
        return Refused(
            topic="", partition=self.partition, offset=-1,
            key=encode.keys(poison.row, key)[0], value=encode.json_values(poison.row)[0],
            kind=type(cause).__name__, reason=str(cause), operator=self.operator,
            input=poison.input, trace="".join(traceback.format_tb(cause.__traceback__)),
        )  # fmt: skip


def redacted(row: pa.Table) -> str:
    """What one row is like, without what it says: types, lengths, and values that are none."""
    shown = (f"{name}: {_like(row[name][0])}" for name in row.column_names)
    return "{" + ", ".join(shown) + "}"


def _like(value: Any) -> str:
    plain = value.as_py()
    if plain is None:
        return "null"
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    if isinstance(plain, str | bytes):
        unit = "characters" if isinstance(plain, str) else "bytes"
        return f"{value.type} of {len(plain)} {unit}"
    return str(value.type)
