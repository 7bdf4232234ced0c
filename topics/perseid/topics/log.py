"""The control logs of a job: tokens and progress, over two small ports.

A port transfers bytes and offsets; the progress log adds the codec, token logs are read through
`perseid.topics.chain`. The adapters here use Kafka, the fakes are in `perseid.testing.kafka`, and
both pass the same contract tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from perseid.errors import PermanentError, RetryableError, UndecidedTransaction
from perseid.records.access import Bootstrap
from perseid.topics import clients, codec, names
from perseid.topics.clients import Isolation
from perseid.topics.cursor import Cursor
from perseid.topics.records import ProgressRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

T = TypeVar("T")

RECORDS_MAX = 1000  # of one read
_STEP_S = 0.05
_FLUSH_STEP_S = 0.2


class Entry(NamedTuple):
    """One record of a log. `stamp_ms`: since 1970; in a token log by the broker's clock."""

    offset: int
    value: bytes
    stamp_ms: int


class LogReader(Protocol):
    """Reads committed records. Must not skip a record that is gone, but raise ReplayDataLost."""

    def read_from(
        self, topic: str, partition: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        """Records from `offset` on, as soon as there is one; none when the time is up."""
        ...

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> list[Entry]:
        """All records of [start, end).

        Waits until all transactions below `end` are decided, that is until the last stable offset
        reaches `end`; raises RetryableError if that takes too long.
        """
        ...

    def close(self) -> None: ...


class LogWriter(Protocol):
    """Appends control records."""

    def append(self, topic: str, partition: int, value: bytes) -> int:
        """The record's offset, once it is durable. RetryableError: it may be in the log or not."""
        ...

    def close(self) -> None: ...


def as_soon_as_there(
    fetch: Callable[[int, float], list[T]], max_records: int, timeout_s: float
) -> list[T]:
    """Records as soon as there is one; none when the time is up.

    `fetch`: at most so many records, and for so many seconds.
    """
    deadline_s = time.monotonic() + timeout_s
    found: list[T] = []
    while not found:
        found = fetch(1, max(0.0, deadline_s - time.monotonic()))
        if not found and time.monotonic() >= deadline_s:
            return []
    return found + fetch(max_records - 1, 0.0) if max_records > 1 else found


class KafkaLogReader:
    """LogReader on Kafka; keeps a positioned consumer for each partition that it reads.

    Threads may read different partitions at once.
    `fetch_wait_ms`: for which the broker holds a request for records that are not there yet. Longer
    is cheaper, and shows the end of a log later.
    """

    def __init__(
        self, bootstrap: Bootstrap, isolation: Isolation = "read_committed", *,
        fetch_wait_ms: int = 100,
    ) -> None:  # fmt: skip
        self._bootstrap, self._isolation = bootstrap, isolation
        self._fetch_wait_ms = fetch_wait_ms
        self._cursors: dict[tuple[str, int], Cursor] = {}

    def read_from(
        self, topic: str, partition: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        cursor = self._at(topic, partition, offset)
        found = as_soon_as_there(cursor.fetch, max_records, timeout_s)
        self._cursors[topic, partition] = cursor
        return _entries(found)

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> list[Entry]:
        if start >= end:
            return []
        cursor = self._at(topic, partition, start)
        deadline_s = time.monotonic() + timeout_s
        found: list[Message] = []
        while cursor.position < end:
            found += cursor.fetch(min(end - cursor.position, RECORDS_MAX), _STEP_S)
            if cursor.position < end and time.monotonic() > deadline_s:
                cursor.close()
                raise _not_readable(cursor, end, timeout_s)
        self._cursors[topic, partition] = cursor
        return [e for e in _entries(found) if e.offset < end]

    def close(self) -> None:
        while self._cursors:
            self._cursors.popitem()[1].close()

    def _at(self, topic: str, partition: int, offset: int) -> Cursor:
        """The partition's cursor at `offset`; the caller puts it back if no error occurred."""
        cursor = self._cursors.pop((topic, partition), None)
        if cursor is not None and cursor.position == offset:
            return cursor
        if cursor is not None:
            cursor.close()
        return Cursor(
            self._bootstrap, topic, partition, offset, self._isolation,
            fetch_wait_ms=self._fetch_wait_ms,
        )  # fmt: skip


class KafkaLogWriter:
    """LogWriter on Kafka: one idempotent producer, replaced after an append of unknown outcome."""

    def __init__(self, bootstrap: Bootstrap, *, timeout_s: float = 25.0) -> None:
        self._bootstrap, self._timeout_s = bootstrap, timeout_s
        self._producer: Producer | None = None

    def append(self, topic: str, partition: int, value: bytes) -> int:
        from confluent_kafka import KafkaException

        if self._producer is None:
            self._producer = clients.writer(self._bootstrap)
        report: list[tuple[KafkaError | None, Message]] = []
        try:
            self._producer.produce(
                topic, value, partition=partition, on_delivery=lambda e, m: report.append((e, m))
            )
            self._flush(self._producer, report)
        except KafkaException as raised:  # too large for any topic, or the log has lost its tail
            self._producer = None
            raise clients.as_error(raised.args[0], f"appending to {topic}[{partition}]") from raised
        except BufferError as full:  # records of an unreachable broker fill the queue
            self._producer = None
            raise RetryableError(f"appending to {topic}[{partition}]: {full}") from full
        except BaseException:
            self._producer = None
            raise
        error, message = report[0]
        if error is not None:
            self._producer = None
            raise clients.as_error(error, f"appending to {topic}[{partition}]")
        return cast(int, message.offset())

    def close(self) -> None:
        self._producer = None

    def _flush(self, producer: Producer, report: list[tuple[KafkaError | None, Message]]) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        while not report:
            producer.flush(_FLUSH_STEP_S)
            if not report and time.monotonic() > deadline_s:
                raise RetryableError(f"append was not acknowledged in {self._timeout_s} s")


class ProgressLog:
    """The workers' reports about one job."""

    def __init__(
        self, job: str, reader: LogReader | None = None, writer: LogWriter | None = None
    ) -> None:
        self._topic, self._reader, self._writer = names.progress(job), reader, writer

    def append(self, record: ProgressRecord) -> int:
        if self._writer is None:
            raise PermanentError(f"{self._topic} was opened for reading only")
        return self._writer.append(self._topic, 0, codec.encode(record))

    def read_from(
        self, offset: int, *, timeout_s: float, max_records: int = RECORDS_MAX
    ) -> list[tuple[int, ProgressRecord]]:
        if self._reader is None:
            raise PermanentError(f"{self._topic} was opened for writing only")
        found = self._reader.read_from(
            self._topic, 0, offset, max_records=max_records, timeout_s=timeout_s
        )
        return [(e.offset, codec.decode_progress(self._topic, e.offset, e.value)) for e in found]


def _not_readable(cursor: Cursor, end: int, timeout_s: float) -> RetryableError:
    """The cause is a transaction at the end of the readable records, else the broker."""
    text = (
        f"{cursor.topic}[{cursor.partition}]: offset {cursor.position} of a range to {end} was not "
        f"readable for {timeout_s} s"
    )
    if cursor.at_end:
        return UndecidedTransaction(
            f"{text}: a transaction was left open there, or the broker has lost its end; `perseid "
            "txn list` shows what holds readers back"
        )
    return RetryableError(f"{text}; is the broker up?")


def _entries(messages: list[Message]) -> list[Entry]:
    return [Entry(cast(int, m.offset()), m.value() or b"", m.timestamp()[1]) for m in messages]
