"""Finds the records on which an operator raises, to remove or to name them. Pure.

    the whole epoch raises -> the shortest prefix that raises, by halving -> its last row is poison
    -> the whole without that row, and so on

The search uses prefixes: every row is judged after all rows before it, as in the epoch itself, so
an operator whose rows depend on each other loses no row to the search. Poison depends only on the
epoch's input and the state before it: every run of the epoch finds the same rows. The epoch's
result is one call on all other rows, in order.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError, PermanentError
from perseid.errors.texts import QUOTED_MAX, cut, kind_of, text_of
from perseid.jobs.model.spec import JobSpec
from perseid.records.redaction import blotted, plain, redacted
from perseid.worker.dead_letters.places import Places
from perseid.worker.dead_letters.refused import Refused, to_table
from perseid.worker.formats import encode

POISON_MAX = 100  # in one epoch of one partition: with more, the operator itself is wrong

BISECT = "`errors: {operator: bisect}` sends such records to the dead-letter topic"

PLACE = ("partition", "offset")  # of a source's record, in the order of `Refused`

Inputs = dict[str, pa.Table]


class Raised(PermanentError):
    """The text of a user's exception, between texts of perseid; it may quote rows."""

    def __init__(self, before: str, quote: str, after: str) -> None:
        self.before, self.quote, self.after = before, quote, after
        super().__init__(f"{before}{quote}{after}")

    def quoting(self, text: str) -> Raised:
        """The same error with another text in place of the exception's."""
        return Raised(self.before, cut(text, QUOTED_MAX), self.after)


@dataclass(frozen=True, slots=True)
class Poison:
    """One row on which the operator raised; `row` is a table of that row alone.

    `number`: its index in its input.
    """

    input: str
    row: pa.Table
    error: PermanentError
    number: int = 0


def guarded(
    attempt: Callable[[Inputs], None],
    inputs: Inputs,
    sieve: Sieve | None,
    places: Places | None = None,
) -> pa.Table | None:
    """Runs `attempt`: the dead letters; without a sieve None, and an error that names the row.

    `places`: where the rows of the only input, a source, are in its topic.
    """
    if sieve is not None:
        return replace(sieve, places=places).run(attempt, inputs)
    stop_at(attempt, inputs, places)
    return None


def sift(attempt: Callable[[Inputs], None], inputs: Inputs) -> list[Poison]:
    """The rows on which `attempt` raises; it has succeeded with all others on return.

    `attempt` starts from the same state each time, and raises PermanentError for a bad row.

    Raises:
        PermanentError: it raises without rows too, or on more than POISON_MAX of them.
    """
    try:
        attempt(inputs)
    except PermanentError as error:
        return _sifted(attempt, _Cut(inputs), error)
    return []


def stop_at(
    attempt: Callable[[Inputs], None], inputs: Inputs, places: Places | None = None
) -> None:
    """Runs `attempt`; its error then also names the row, without the row's values."""
    try:
        attempt(inputs)
    except PermanentError as error:
        rows = _Cut(inputs)
        rowless = _raised(attempt, rows.upto(0))
        if rowless is not None:  # it is about no row; with rows it may have quoted one
            raise rowless from rowless.__cause__
        place, found = _first(attempt, rows, 0, error)
        alone = _raised(attempt, rows.only(place))
        poison = rows.take_out(place, found)
        text = _without_values(poison, alone)
        kind = PermanentError if isinstance(error, Raised) else type(error)
        where = "" if places is None else f", {places.of(poison.number)}"
        raise kind(
            f"{text}\nThe record is row {place + 1} of {rows.rows} (of input "
            f"{poison.input}{where}): {cut(redacted(poison.row), QUOTED_MAX)}. {BISECT}"
        ) from None  # the original error quotes the record


def _sifted(attempt: Callable[[Inputs], None], cut: _Cut, error: PermanentError) -> list[Poison]:
    attempt(cut.upto(0))  # raises if the error is not about a row
    found: list[Poison] = []
    good, failed = 0, error
    while True:
        if good == cut.rows or len(found) == POISON_MAX:
            raise _hopeless(failed, found, cut.rows) from None
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
    """Index and error of the first row that raises; the first `good` rows are fine."""
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


def _hopeless(error: PermanentError, found: list[Poison], rows: int) -> PermanentError:
    why = (
        "it raises with or without the same row, so it is not deterministic"
        if len(found) < POISON_MAX
        else f"that is more than {POISON_MAX} of {rows} rows, so it is not about single records"
    )
    return PermanentError(
        f"{_without_rows(error)}\nThe batch was bisected: {len(found)} rows were found, and {why}"
    )


def _without_values(poison: Poison, alone: PermanentError | None) -> PermanentError:
    """The error without values of other rows. `alone`: the error of this row alone.

    The user's text is quoted only if this row alone causes it: after other rows it may quote those,
    and they are too many to search for.
    """
    if isinstance(alone, Raised) and _kind(alone) == _kind(poison.error):
        return alone.quoting(blotted(alone.quote, poison.row))
    return _without_rows(poison.error)


def _without_rows(error: PermanentError) -> PermanentError:
    if not isinstance(error, Raised):
        return error  # perseid's own texts have no values
    return error.quoting(f"{_kind(error)} (its text is left out: it may quote other rows)")


def _kind(error: PermanentError) -> str:
    return kind_of(error.__cause__ or error)


class _Cut:
    """The rows of all inputs in one order, with some taken out."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.rows = sum(table.num_rows for table in inputs.values())
        self._kept = np.ones(self.rows, bool)

    def upto(self, end: int) -> Inputs:
        """The remaining rows before index `end`; every input keeps its columns."""
        found, start = {}, 0
        for name, table in self._inputs.items():
            count = min(max(end - start, 0), table.num_rows)
            kept = self._kept[start : start + count]
            found[name] = table.slice(0, count).filter(pa.array(kept))
            start += table.num_rows
        return found

    def only(self, place: int) -> Inputs:
        """The row at `place` alone."""
        found = {}
        for name, table in self._inputs.items():
            inside = 0 <= place < table.num_rows
            found[name] = table.slice(place, 1) if inside else table.slice(0, 0)
            place -= table.num_rows
        return found

    def take_out(self, place: int, error: PermanentError) -> Poison:
        self._kept[place] = False
        for name, table in self._inputs.items():
            if place < table.num_rows:
                return Poison(name, table.slice(place, 1), error, place)
            place -= table.num_rows
        raise AssertionError("a place after the last row")


@dataclass(frozen=True, slots=True)
class Sieve:
    """Makes the dead letters of one operator partition, or of one split of a stateless operator.

    `key`: the operator's key columns. `topics`: input -> topic, for inputs whose rows are records
    of a source; their place is known if the operator reads the metadata `partition` and `offset`.
    `places`: of all rows, if the only input is a source that the same task reads.
    """

    operator: str
    partition: int
    key: tuple[str, ...]
    topics: Mapping[str, str] = field(default_factory=dict)
    places: Places | None = None

    def run(self, attempt: Callable[[Inputs], None], inputs: Inputs) -> pa.Table:
        """The rows found by `sift` as dead letters; see `perseid.worker.dead_letters.refused`."""
        return to_table([self.letter(poison) for poison in sift(attempt, inputs)])

    def letter(self, poison: Poison) -> Refused:
        """The row as JSON, with the key that the operator's own output would have.

        For an operator without a key, the record's own key.
        """
        row, key = poison.row, self.key
        topic, partition, offset = "", -1, -1
        own: bytes | None = None
        if self.places is not None:
            place = self.places.of(poison.number)
            topic, partition, offset, own = place.topic, place.partition, place.offset, place.key
        elif poison.input in self.topics and set(PLACE) <= set(row.column_names):
            topic = self.topics[poison.input]
            partition, offset = (row[name][0].as_py() for name in PLACE)
            key = key or tuple({"key"} & set(row.column_names))
        cause = poison.error.__cause__ or poison.error
        return Refused(
            topic, partition, offset,
            key=encode.keys(row, key[0] if len(key) == 1 else None)[0] if own is None else own,
            value=encode.json_values(_with_json_forms(row))[0],
            kind=kind_of(cause), reason=text_of(cause), operator=self.operator,
            operator_partition=self.partition, input=poison.input,
            trace="".join(traceback.format_tb(cause.__traceback__)),
        )  # fmt: skip


def sieve_of(job: JobSpec, name: str, partition: int, *, combined: bool) -> Sieve | None:
    """The sieve of the operator `name`; None if poison stops the job.

    `combined`: its rows are the results of a combiner.
    """
    spec = job.operators[name]
    if spec.errors != "bisect":
        return None
    sources = {i: job.sources[n] for i, n in spec.inputs.items() if n in job.sources}
    topics = {} if combined else {
        input_: source.topic for input_, source in sources.items()
        if not set(PLACE) & set(source.columns)
    }  # fmt: skip
    return Sieve(name, partition, spec.key, topics)


def _with_json_forms(row: pa.Table) -> pa.Table:
    """The row with text for values without a JSON form: bytes, decimals, durations."""
    columns = {}
    for name in row.column_names:
        try:
            encode.json_values(row.select([name]))
        except BadInputError:
            value = plain(row[name][0])
            text = value.decode("utf-8", "backslashreplace") if type(value) is bytes else str(value)
            columns[name] = pa.chunked_array([[text]])
        else:
            columns[name] = row[name]
    return pa.table(columns)
