"""Which job wrote a record of a sink topic, and in which epoch: the ledgers have the windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.engine.comparison import WAITING_MAX
from perseid.errors import RefusedError, ReplayDataLost, UsageError
from perseid.replay.sink_records import NotThere, committed
from perseid.topics import names
from perseid.worker.sink.audit import ledger_records

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec
    from perseid.replay.differences import Rows
    from perseid.replay.sink_records import Reader
    from perseid.topics.admin import Partition, TopicReader
    from perseid.topics.records import SinkWindow
    from perseid.worker.sink.audit import RangeReader

EXPECTED = "TOPIC:PARTITION:OFFSET, such as wordcount-counts:0:1200"


@dataclass(frozen=True, slots=True)
class Written:
    """A record of a sink topic, as it is there."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Writer:
    """An applied job that writes the topic: its ledgers are asked."""

    job: str
    job_uuid: str


@dataclass(frozen=True, slots=True)
class Origin:
    """An epoch of an operator partition in whose window a record is. `near`: other windows."""

    job: str
    epoch: int
    operator: str
    partition: int
    window: SinkWindow
    near: tuple[SinkWindow, ...] = ()


def place(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset; UsageError for another text."""
    topic, *numbers = text.split(":")
    if len(numbers) == 2 and topic and all(n.isascii() and n.isdigit() for n in numbers):
        return topic, int(numbers[0]), int(numbers[1])
    raise UsageError(f"{text[:80]!r}: expected {EXPECTED}, or a job with --key and --epoch")


def record(reader: Reader, topics: TopicReader, topic: str, partition: int, offset: int) -> Written:
    """Reads one committed record; RefusedError if there is none at the offset."""
    where = f"{topic}[{partition}]"
    if topic not in reader.identities([topic]):
        raise RefusedError(
            f"there is no topic {topic}; `perseid topics list` shows those there are"
        )
    count = topics.describe([topic])[topic].partitions
    if partition >= count:
        raise RefusedError(f"{where}: the topic has partitions 0 to {count - 1}")
    at = topic, partition
    start, end = topics.starts([at])[at], topics.ends([at])[at]
    if offset < start:
        raise RefusedError(f"{where} begins at offset {start}: the record at {offset} is expired")
    if offset >= end:
        raise RefusedError(f"{where} ends at offset {end}: there is no record at {offset} yet")
    for found in reader.read(topic, partition, offset, offset + 1):
        for one in found:
            return Written(topic, partition, one.offset(), one.key(), one.value())
    raise RefusedError(
        f"{where} has no record at offset {offset}: it is a transaction's marker, was compacted, "
        f"or its transaction was aborted; `perseid topics tail {topic}` "
        "shows its last records"
    )


def refuse_letters(topic: str, specs: Mapping[str, JobSpec]) -> None:
    """RefusedError for a topic of dead letters, whose records name their place themselves."""
    jobs = [name for name, spec in specs.items() if spec.errors.deadletter_topic == topic]
    if jobs:
        raise RefusedError(
            f"{topic} has the dead letters of {', '.join(sorted(jobs))}: each names its record; "
            f"`perseid dlq show {sorted(jobs)[0]}` shows them"
        )


def origins(
    found: Written, writers: Iterable[Writer], reader: RangeReader, topics: TopicReader
) -> list[Origin]:
    """The epochs in whose windows the record is, by what the ledgers still hold.

    RefusedError if there is none.
    """
    inside: list[Origin] = []
    near: list[SinkWindow] = []
    for writer in writers:
        for one in _windows(writer, reader, topics):
            window = one.window
            if (window.topic, window.partition) == (found.topic, found.partition):
                near.append(window)
                if window.spans(found.offset):
                    inside.append(one)
    if not inside:
        raise RefusedError(
            f"{found} is in no epoch that a ledger still holds: another program wrote it, or a job "
            "that was removed, or its epoch is before what is kept (ledgers are trimmed with "
            "checkpoints)"
        )
    return [
        Origin(o.job, o.epoch, o.operator, o.partition, o.window,
               tuple(w for w in near if w != o.window and _overlap(w, o.window)))
        for o in inside
    ]  # fmt: skip


def own(
    found: Written, among: Sequence[Origin], reader: Reader, made: Mapping[int, Rows] | None = None
) -> tuple[list[Origin], list[Origin]]:
    """Those that wrote the record, by checksum, and those of which it is unknown.

    `made`: what their epochs make now, by index.
    """
    sure, open_ = [], []
    for index, origin in enumerate(among):
        rows = committed(reader, origin.window, origin.near, (made or {}).get(index))
        if isinstance(rows, NotThere):
            open_.append(origin)
        elif rows.offsets is not None and found.offset in rows.offsets:
            sure.append(origin)
    return sure, open_


def _windows(writer: Writer, reader: RangeReader, topics: TopicReader) -> Iterator[Origin]:
    ledger = names.ledger(writer.job)
    places: list[Partition] = [
        (ledger, number) for number in range(topics.describe([ledger])[ledger].partitions)
    ]
    starts, ends = topics.starts(places), topics.ends(places)
    for at in places:
        start, end = starts[at], ends[at]
        while start < end:
            upto = min(start + WAITING_MAX, end)
            try:
                records = ledger_records(reader, at, start, upto)
            except ReplayDataLost as trimmed:  # meanwhile
                start = trimmed.earliest
                continue
            start = upto
            for one in records:
                if one.job_uuid == writer.job_uuid:
                    for window in one.outputs:
                        yield Origin(writer.job, one.epoch, one.operator, one.partition, window)


def _overlap(one: SinkWindow, other: SinkWindow) -> bool:
    return one.first <= other.last and other.first <= one.last
