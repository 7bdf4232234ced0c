"""Dead letters in `perseid dlq`: read from their headers, selected, checked. Pure.

A source's letter has the record's own bytes, so it can be sent back unchanged. An operator's letter
has the operator's input row, as JSON: that is the record only if the row came directly from a
source whose format is json, and then only the source's columns of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from perseid.cli.topic_records import as_text
from perseid.errors import UsageError
from perseid.jobs.model import units
from perseid.worker.sink import pointers
from perseid.worker.sink.sink_outputs import record_batch_bytes

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec, SourceSpec
    from perseid.topics.admin import TopicInfo

Place = tuple[int, int]  # partition and offset of a letter in the dead-letter topic

_ORIGIN = "__connect.errors."
_OFFSETS = re.compile(r"(\d+):(\d+)(?:-(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Origin:
    """The record that a letter is about."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter at (`partition`, `offset`) of `topic`, as a transform receives it.

    `value` is the original bytes, or for an `operator`'s letter a row of its `input` as JSON.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    @property
    def job(self) -> str:
        return self.headers.get(f"{_ORIGIN}connector.name", "")

    @property
    def kind(self) -> str:
        """The class of the exception."""
        return self.headers.get(f"{_ORIGIN}exception.class.name", "")

    @property
    def reason(self) -> str:
        return self.headers.get(f"{_ORIGIN}exception.message", "")

    @property
    def operator(self) -> str | None:
        return self.headers.get("perseid.operator")

    @property
    def origin(self) -> Origin | None:
        """None where the headers do not name the letter's record."""
        found = [self.headers.get(_ORIGIN + name, "") for name in ("topic", "partition", "offset")]
        if not found[0] or not (found[1].isdecimal() and found[2].isdecimal()):
            return None
        return Origin(found[0], int(found[1]), int(found[2]))

    @property
    def whole_bytes(self) -> int | None:
        """The full size of a truncated value; None when the letter has all of it."""
        declared = self.headers.get(pointers.VALUE_BYTES, "")
        return int(declared) if declared.isdecimal() else None

    def __str__(self) -> str:
        return f"dead letter {self.partition}:{self.offset} of {self.topic}"


def letter_of(topic: str, partition: int, message: Any) -> Letter:
    """The letter in a consumed `message`; header bytes that are no text are escaped."""
    headers = {name: as_text(data) or "" for name, data in message.headers() or ()}
    return Letter(
        topic, partition, message.offset(), message.timestamp()[1], message.key(),
        message.value(), headers,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters: written in [`from_ms`, `to_ms`) and, if given, within one of `ranges`.

    A range is a partition with its first and last offset, both included.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    ranges: tuple[tuple[int, int, int], ...] = ()

    def takes(self, letter: Letter) -> bool:
        if self.from_ms is not None and letter.time_ms < self.from_ms:
            return False
        if self.to_ms is not None and letter.time_ms >= self.to_ms:
            return False
        return not self.ranges or any(
            letter.partition == partition and first <= letter.offset <= last
            for partition, first, last in self.ranges
        )


def choice(from_: str | None, to: str | None, offsets: str | None) -> Choice:
    """The options of `dlq redrive`; UsageError for impossible values."""
    if offsets is not None and (from_ is not None or to is not None):
        raise UsageError("--offsets and --from or --to: give either offsets or times")
    return Choice(
        _time_ms("--from", from_) if from_ is not None else None,
        _time_ms("--to", to) if to is not None else None,
        tuple(_range(part) for part in offsets.split(",")) if offsets is not None else (),
    )


def _time_ms(option: str, text: str) -> int:
    try:
        return units.time_ms(text)
    except ValueError:
        raise UsageError(
            f"{option} {text[:60]!r}: expected a time such as 2026-11-21T08:00:00 (UTC)"
        ) from None


def _range(text: str) -> tuple[int, int, int]:
    found = _OFFSETS.match(text.strip())
    if found is None:
        raise UsageError(
            f"--offsets {text[:60]!r}: expected PARTITION:OFFSET or PARTITION:FIRST-LAST, several "
            "with commas between them, as `perseid dlq show` prints them"
        )
    first = int(found[2])
    last = int(found[3]) if found[3] is not None else first
    if last < first:
        raise UsageError(f"--offsets {text[:60]!r}: the last offset is below the first")
    return int(found[1]), first, last


def read_back(letter: Letter, key: bytes | None, value: bytes | None) -> Letter:
    """A pointer's letter with the record that it points to, which is of no operator."""
    left_out = {pointers.VALUE_BYTES, pointers.KEY_BYTES, "perseid.operator"}
    headers = {name: text for name, text in letter.headers.items() if name not in left_out}
    return replace(letter, key=key, value=value, headers=headers)


@dataclass(frozen=True, slots=True)
class Target:
    """A letter's outgoing record, for the topic and partition of its origin."""

    letter: Letter
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    bare: bool = False

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Headers that lead from the corrected record to the bad one; none of a `bare` one."""
        letter = self.letter
        if self.bare:
            return []
        places = ("topic", letter.topic), ("partition", letter.partition), ("offset", letter.offset)
        return [(f"perseid.redriven.{name}", str(value).encode()) for name, value in places]


def target(letter: Letter, value: bytes) -> Target:
    """The record for `value`, of a letter that is not refused: to its original partition.

    An operator's letter has the key of the operator's rows, which may not be the record's own.
    """
    origin = letter.origin
    assert origin is not None, "a letter without an origin is refused"
    return Target(letter, origin.topic, origin.partition, letter.key, value)


def refusal(
    letter: Letter, spec: JobSpec, info: TopicInfo | None, *, transformed: bool
) -> str | None:
    """Why a letter cannot be sent back to its record's topic; None when it can.

    `info`: its origin's topic, None without one. `transformed`: a transform will make its value.
    """
    origin = letter.origin
    if origin is None:
        return _without_origin(letter)
    reason = _not_a_place(origin, spec, info) or _only_a_pointer(letter, origin)
    if reason is not None or transformed:
        return reason
    if letter.value is None:
        return "it has no value"
    return _not_the_record(letter, origin, spec) if letter.operator is not None else None


def _not_a_place(origin: Origin, spec: JobSpec, info: TopicInfo | None) -> str | None:
    """Why records must not be sent to the letter's origin."""
    if source_of(spec, origin.topic) is None:
        return (
            f"its record was {origin}, and no source of {spec.name} reads {origin.topic}: a "
            "writer of dead letters would choose the topic that is written with your rights"
        )
    if info is None:
        return f"its record was {origin}, and there is no topic {origin.topic} any more"
    if origin.partition >= info.partitions:
        return (
            f"its record was {origin}, and the topic has partitions 0 to {info.partitions - 1}: "
            "it was created again"
        )
    return None


def _only_a_pointer(letter: Letter, origin: Origin) -> str | None:
    """Why a pointer whose record was not read back cannot be sent."""
    if letter.whole_bytes is None:
        return None
    return (
        f"it is a pointer to a record of {letter.whole_bytes} bytes, and that is no longer at "
        f"{origin}: retention has removed it"
    )


def _without_origin(letter: Letter) -> str:
    if letter.operator is None:
        return "its headers name no topic, partition and offset"
    return (
        f"its headers name no record of a source: the row is one that operator {letter.operator} "
        "got from another operator, or without the metadata columns partition and offset"
    )


def _not_the_record(letter: Letter, origin: Origin, spec: JobSpec) -> str | None:
    """Why the row of an operator's letter is not what a producer would send."""
    source = source_of(spec, origin.topic)
    row = f"its value is the row that operator {letter.operator} saw, as JSON"
    assert source is not None, "for a topic that no job reads it is refused before"
    if source.format != "json" or source.registry is not None:
        framed = " of a schema registry" if source.registry is not None else ""
        return f"{row}, and {origin.topic} holds records of format {source.format}{framed}"
    return None


def source_of(spec: JobSpec, topic: str) -> SourceSpec | None:
    """The first source of the job that reads `topic`."""
    return next((s for s in spec.sources.values() if s.topic == topic), None)


def original(letter: Letter, spec: JobSpec) -> bytes:
    """The value to send without a transform, of a letter that is not refused.

    Of an operator's row only the source's columns: it may have metadata besides them.
    """
    assert letter.value is not None, "a letter without a value is refused"
    origin = letter.origin
    if letter.operator is None or origin is None:
        return letter.value
    source = source_of(spec, origin.topic)
    assert source is not None, "a row for a topic that no job reads is refused"
    row = orjson.loads(letter.value)
    return orjson.dumps({name: row[name] for name in source.columns if name in row})


def fitting(target: Target, info: TopicInfo) -> Target:
    """Without its headers if the topic accepts the record only so."""
    if record_batch_bytes(target.key, target.value, target.headers) <= info.message_bytes_max:
        return target
    return replace(target, bare=True)


def too_large(target: Target, info: TopicInfo) -> str | None:
    """Why the broker would not accept the record; None when it would."""
    size = record_batch_bytes(target.key, target.value, target.headers)
    if size <= info.message_bytes_max:
        return None
    return (
        f"it needs {size} bytes, and topic {target.topic} takes "
        f"{info.message_bytes_max}: raise the topic's max.message.bytes"
    )


def refused_text(job: str, refused: Sequence[tuple[Letter, str]]) -> str:
    """The message of a refused redrive, with the first letters and the alternatives."""
    shown = [f"  {letter.partition}:{letter.offset}: {why}" for letter, why in refused[:10]]
    more = [f"  and {len(refused) - 10} more"] if len(refused) > 10 else []
    return "\n".join([
        f"{len(refused)} dead letters of {job} cannot be redriven, so none is:", *shown, *more,
        "choose others with `--offsets`, `--from` or `--to`, or give a `--transform` that makes "
        "the record from the letter, or returns None to leave it out; "
        f"`perseid dlq show {job}` shows them",
    ])  # fmt: skip


def summary(letters: Iterable[Letter], done: Callable[[Place], bool]) -> dict[str, Any]:
    """One job's letters as in `dlq list`."""
    count = operators = redriven = 0
    last_ms: int | None = None
    kinds: dict[str, int] = {}
    for letter in letters:
        count += 1
        operators += letter.operator is not None
        redriven += done(letter.place)
        last_ms = max(last_ms or 0, letter.time_ms)
        kinds[letter.kind] = kinds.get(letter.kind, 0) + 1
    return {
        "letters": count,
        "of_operators": operators,
        "redriven": redriven,
        "last_ms": last_ms,
        "kinds": dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
    }
