"""Rows without a key: refused before they reach a keyed operator, each with its place. Pure.

A row belongs to the operator partition of its key, and state has no place for a null key. Rows that
an operator reads directly from a source are checked when the record is read, so the dead letter has
the record's own bytes, topic, partition and offset. Rows of another operator are checked when they
are distributed to partitions, before they are combined. Other consumers still get the same row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.model.layout import is_keyed
from perseid.jobs.model.spec import JobSpec
from perseid.records.redaction import redacted
from perseid.worker.dead_letters.poison import Poison, Sieve
from perseid.worker.dead_letters.refused import to_table

KIND = "NullKey"  # error kind of these dead letters


@dataclass(frozen=True, slots=True)
class KeyedBy:
    """A keyed operator that reads a source: its key columns, and whether it tolerates null keys."""

    operator: str
    columns: tuple[str, ...]
    tolerates: bool


def readers(spec: JobSpec, source: str) -> tuple[KeyedBy, ...]:
    """The keyed operators that read `source` directly."""
    return tuple(
        KeyedBy(name, operator.key, spec.errors.tolerance == "all" or operator.errors == "bisect")
        for name, operator in spec.operators.items()
        if is_keyed(operator) and source in operator.inputs.values()
    )


def rows_of(table: pa.Table, key: Collection[str]) -> npt.NDArray[np.int64]:
    """The rows with a null in a column of `key`; free of cost when the columns have none."""
    found = np.zeros(0, np.int64)
    for name in key:
        if name in table.column_names and table[name].null_count:
            found = np.union1d(found, np.flatnonzero(table[name].is_null().to_numpy()))
    return found


def reason(table: pa.Table, row: int, readers: Collection[KeyedBy]) -> str:
    """Why these readers refuse the row."""
    columns = dict.fromkeys(
        name for reader in readers for name in reader.columns
        if name in table.column_names and not table[name][row].is_valid
    )  # fmt: skip
    names = ", ".join(reader.operator for reader in readers)
    return f"key column {', '.join(columns)} of operator {names} is null"


def refused(
    table: pa.Table, readers: Sequence[KeyedBy], left_out: Collection[int] = ()
) -> dict[int, list[KeyedBy]]:
    """The rows that some of `readers` refuse, with these readers; `left_out` are not checked."""
    found: dict[int, list[KeyedBy]] = {}
    for reader in readers:
        for row in np.setdiff1d(rows_of(table, reader.columns), list(left_out)).tolist():
            found.setdefault(row, []).append(reader)
    return found


def stopping(readers: Collection[KeyedBy], *, of_source: bool = True) -> str:
    """What to do when one of `readers` stops the job; `of_source`: whether `tolerance` helps."""
    strict = [reader.operator for reader in readers if not reader.tolerates]
    tolerance = "`errors: {tolerance: all}` of the job, or " if of_source else ""
    return (
        "The job stops before this record, its state is kept. Either give such rows a key in an "
        "operator before, as `SELECT coalesce(COLUMN, 'none') AS COLUMN, ... FROM input`, or leave "
        f"them out there, or send such records to the dead-letter topic: {tolerance}`errors: "
        f"{{operator: bisect}}` of {', '.join(strict)}; then `perseid jobs apply` the changed job"
    )


def of_operator(
    table: pa.Table, row: int, reader: KeyedBy, stream: str, epoch: int, *, of_source: bool
) -> BadInputError:
    """The error for an emitted row without a key, which stops the job."""
    return BadInputError(
        f"operator {reader.operator}, epoch {epoch}: {reason(table, row, [reader])} in row "
        f"{row + 1} of {table.num_rows} that {stream} emitted: {redacted(table.slice(row, 1))}. "
        f"{stopping([reader], of_source=of_source)}"
    )


def letters(
    table: pa.Table, rows: npt.NDArray[np.int64], reader: KeyedBy, input_: str, origin: int
) -> pa.Table:
    """Rows of an operator as dead letters of their reader; they have no place in a source."""
    sieve = Sieve(reader.operator, origin, reader.columns)
    return to_table([
        replace(sieve.letter(Poison(input_, table.slice(row, 1), BadInputError(why))), kind=KIND)
        for row in rows.tolist() for why in [reason(table, row, [reader])]
    ])  # fmt: skip
