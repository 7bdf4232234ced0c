"""An explanation: the value from which its forms are made, and these forms. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from perseid.clocks import time_text
from perseid.replay.reports.values import printable, tag

FORMAT = 1  # of the JSON form; raised with every change that a reader would notice
RANGES_MAX, EPOCHS_MAX, CHARS_MAX = 10, 10, 200  # of one line of text

Shown = dict[str, Any]  # one row, by column, in values that JSON has
_HOW = {
    "proven": "proven by running the epoch again on them alone",
    "searched": "found by running the epoch again on parts of its rows",
    "whole": "not narrowed: its code makes them of rows of several keys, or the search took too "
    "long, so these are all that it read",
}


@dataclass(frozen=True, slots=True)
class Record:
    """The record that is explained. `count`: how many equal ones the epoch made."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Through:
    """An operator partition on the way from the inputs. `keys`: how many; None for all."""

    operator: str
    partition: int
    keys: int | None
    rows: Mapping[str, int]
    how: str


@dataclass(frozen=True, slots=True)
class Input:
    """Input records of one source partition; `ranges`: of offsets, both included."""

    source: str
    topic: str
    partition: int
    records: int
    ranges: tuple[tuple[int, int], ...]
    rows: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """Rows with the key that the operator partition read in an earlier epoch."""

    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class Explained:
    """See the module's docstring. `through`: from the record back to the sources.

    `before`, `after`: rows of the key by state, or all of a state without a key; None of an
    operator without state. `earlier`: None if it was not asked for.
    """

    job: str
    job_uuid: str
    revision: str
    epoch: int
    time_ms: int
    operator: str
    partition: int
    record: Record | None
    key: tuple[Shown, ...]
    through: tuple[Through, ...]
    inputs: tuple[Input, ...]
    before: dict[str, tuple[Shown, ...]] | None
    after: dict[str, tuple[Shown, ...]] | None
    base: str
    epochs: int
    seconds: float
    earlier: tuple[Earlier, ...] | None = None
    notes: tuple[str, ...] = ()
    redacted: bool = False
    format: int = FORMAT


def rows_of(table: pa.Table) -> tuple[Shown, ...]:
    """The rows of a table in values that JSON has."""
    return tuple({name: _plain(value) for name, value in row.items()} for row in table.to_pylist())


def ranges_of(offsets: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Sorted offsets as ranges, both ends included.

    >>> ranges_of(np.array([3, 4, 5, 9]))
    ((3, 5), (9, 9))
    """
    if not len(offsets):
        return ()
    cuts = np.flatnonzero(np.diff(offsets) != 1)
    firsts = offsets[np.r_[0, cuts + 1]].tolist()
    lasts = offsets[np.r_[cuts, len(offsets) - 1]].tolist()
    return tuple(zip(firsts, lasts, strict=True))


def text_of(data: bytes | None) -> str | None:
    """Bytes as text, or as `base64:...` if they are none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def without_values(found: Explained, secret: bytes) -> Explained:
    """`found` with tags in the place of values (`reports.values`). `secret`: as there."""

    def hidden(value: Any) -> Any:
        data = value.encode() if isinstance(value, str) else orjson.dumps(value)
        mark = tag(None if value is None else data, secret)
        return mark if mark is None else mark.decode()

    def rows(some: Sequence[Shown]) -> tuple[Shown, ...]:
        return tuple({name: hidden(value) for name, value in row.items()} for row in some)

    def states(some: Mapping[str, Sequence[Shown]] | None) -> dict[str, tuple[Shown, ...]] | None:
        return None if some is None else {name: rows(of) for name, of in some.items()}

    record = found.record
    if record is not None:
        record = replace(record, key=hidden(record.key), value=hidden(record.value))
    return replace(
        found, record=record, key=rows(found.key), before=states(found.before),
        after=states(found.after), redacted=True,
        inputs=tuple(replace(one, rows=rows(one.rows)) for one in found.inputs),
    )  # fmt: skip


def document(found: Explained) -> dict[str, Any]:
    """The fields as they are."""
    return asdict(found)


def lines(found: Explained) -> Iterator[str]:
    """For a terminal."""
    record = found.record
    if record is not None:
        yield f"{record.topic}[{record.partition}] offset {record.offset}"
        yield f"  key {_line(record.key)}, value {_line(record.value)}"
        if record.count > 1:
            yield f"  {record.count} records of this epoch are equal; all of them are explained"
    yield (
        f"made by job {found.job}, revision {found.revision}, epoch {found.epoch} "
        f"({time_text(found.time_ms)}), operator {found.operator}, partition {found.partition}"
    )
    if found.key:
        yield f"key: {'; '.join(_line(row) for row in found.key)}"
    for name in found.after or {}:
        for when, states in (("before", found.before), ("after", found.after)):
            rows = (states or {}).get(name, ())
            yield f"state {name} {when}: {'; '.join(map(_line, rows)) or 'no row'}"
    for step in found.through:
        read = ", ".join(f"{count} of {name}" for name, count in step.rows.items())
        keys = "" if step.keys is None else f" with {step.keys} keys"
        yield f"operator {step.operator}, partition {step.partition} read rows{keys}: {read}"
        yield f"  {_HOW[step.how]}"
    yield f"input records: {sum(one.records for one in found.inputs)}"
    for one in found.inputs:
        yield f"  {one.topic}[{one.partition}]: {one.records}, offsets {_ranges(one.ranges)}"
        yield from (f"    {_line(row)}" for row in one.rows)
    if found.earlier is not None:
        yield _earlier(found)
    yield from found.notes
    yield f"{found.epochs} epochs from {found.base} in {found.seconds:.1f} s"
    if found.redacted:
        yield "values are redacted; --show-values shows them"


def _earlier(found: Explained) -> str:
    some = found.earlier or ()
    total = sum(one.rows for one in some)
    named = ", ".join(f"{one.epoch} ({one.rows})" for one in some[-EPOCHS_MAX:])
    more = f"the last {EPOCHS_MAX} are " if len(some) > EPOCHS_MAX else ""
    where = f": {more}epoch {named}" if named else ""
    return f"earlier rows of the key from {found.base} on: {total} in {len(some)} epochs{where}"


def _ranges(some: Sequence[tuple[int, int]]) -> str:
    named = [str(a) if a == b else f"{a}-{b}" for a, b in some[:RANGES_MAX]]
    more = f" and {len(some) - RANGES_MAX} more ranges" if len(some) > RANGES_MAX else ""
    return ", ".join(named) + more


def _line(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return printable(text, CHARS_MAX)


def _plain(value: Any) -> Any:
    """In JSON's types."""
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    plain = value is None or isinstance(value, bool | int | float | str)
    return value if plain else str(value)
