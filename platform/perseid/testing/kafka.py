"""Kafka in memory for this project's ports: readers and writers on the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from perseid.errors import LogTruncated, RetryableError, UndecidedTransaction
from perseid.testing.kafka_model import Fault, ModelKafka, ModelRecord
from perseid.testing.kafka_topics import FakeTopics
from perseid.topics.admin import Partition
from perseid.topics.columns import Records
from perseid.topics.log import Entry
from perseid.topics.transactions import PartitionBatch, Written

__all__ = [
    "FakeBufferWriter",
    "FakeColumnReader",
    "FakeLogReader",
    "FakeLogWriter",
    "FakeMessage",
    "FakeRangeReader",
    "FakeTopics",
    "FakeTransaction",
    "FakeTransactions",
    "Fault",
    "ModelKafka",
]


class FakeLogReader:
    """LogReader on the model; waiting is the clock's `sleep`.

    A continued read detects, as a consumer does by the leader epochs, that the log was truncated
    below its position in the meantime.
    """

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka
        self._stands: dict[Partition, tuple[int, int]] = {}  # next offset, power failures seen

    def read_from(
        self, topic: str, partition: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        log, place = self._kafka.log(topic, partition), (topic, partition)
        stands, seen = self._stands.pop(place, (offset, len(self._kafka.lost_tails)))
        cuts = [end for where, end in self._kafka.lost_tails[seen:] if where == place]
        if stands == offset and min(cuts, default=offset) < offset:
            raise LogTruncated(topic, partition, offset, log.end)
        end = max(log.stable_end, offset)
        found = _entries(self._kafka.readable(topic, partition, offset, end))[:max_records]
        next_offset = found[-1].offset + 1 if found else offset
        self._stands[place] = next_offset, len(self._kafka.lost_tails)
        if not found and timeout_s:
            self._kafka.clock.sleep(timeout_s)
        return found

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> list[Entry]:
        if start >= end:
            return []
        found = self._kafka.readable(topic, partition, start, end)
        if self._kafka.log(topic, partition).stable_end < end:
            self._kafka.clock.sleep(timeout_s)
            raise UndecidedTransaction(f"{topic}[{partition}]: offset {end} was not readable")
        return _entries(found)

    def close(self) -> None:
        """Nothing is open."""


class SequenceCheck:
    """A broker's state of an idempotent producer: it refuses a record that leaves a gap.

    A gap arises when a power failure loses the producer's last records and keeps earlier ones.
    """

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka
        self._known: dict[Partition, tuple[int, int, int]] = {}  # failures seen, first, last offset

    def check(self, place: Partition) -> None:
        """Raises RetryableError without effect; afterwards the producer is unusable."""
        seen, first, last = self._known.get(place, (0, 0, 0))
        for where, end in self._kafka.lost_tails[seen:]:
            if where == place and first < end <= last:
                raise RetryableError(f"{place[0]}[{place[1]}]: the log has lost records before it")
            if where == place and end <= first:
                self._known.pop(place, None)

    def note(self, place: Partition, offset: int) -> None:
        first = self._known.get(place, (0, offset, 0))[1]
        self._known[place] = (len(self._kafka.lost_tails), first, offset)


class FakeLogWriter:
    """LogWriter on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka
        self._sequence = SequenceCheck(kafka)

    def append(self, topic: str, partition: int, value: bytes) -> int:
        place = (topic, partition)
        sequence, self._sequence = self._sequence, SequenceCheck(self._kafka)  # new after errors

        def effect() -> int:
            sequence.check(place)
            return self._kafka.append(place, None, value)

        offset: int = self._kafka.does("append", effect)
        sequence.note(place, offset)
        self._sequence = sequence
        return offset

    def close(self) -> None:
        """Nothing is open."""


class FakeBufferWriter:
    """BufferWriter on the model: records get to the broker with the flush."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka
        self._sequence = SequenceCheck(kafka)
        self._queue: list[tuple[Partition, bytes]] = []

    def send(self, place: Partition, value: bytes) -> None:
        self._queue.append((place, value))

    def flush(self, timeout_s: float) -> None:
        queue, self._queue = self._queue, []
        sequence, self._sequence = self._sequence, SequenceCheck(self._kafka)  # new after errors
        for place, value in queue:
            effect = self._appending(sequence, place, value)
            sequence.note(place, self._kafka.does("append", effect))
        self._sequence = sequence

    def close(self) -> None:
        self._queue.clear()

    def _appending(
        self, sequence: SequenceCheck, place: Partition, value: bytes
    ) -> Callable[[], int]:
        def effect() -> int:
            sequence.check(place)
            return self._kafka.append(place, None, value)

        return effect


@dataclass(frozen=True, slots=True)
class FakeMessage:
    """A consumed record with the real client's methods that readers use."""

    record: ModelRecord

    def offset(self) -> int:
        return self.record.offset

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return (1, self.record.time_ms)


class FakeRangeReader:
    """RangeReader on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[FakeMessage]]:
        if start >= end:
            return
        found = self._kafka.readable(topic, partition, start, end)
        if self._kafka.log(topic, partition).stable_end < end:
            raise RetryableError(f"{topic}[{partition}]: nothing at a range to {end}")
        if found:
            yield [FakeMessage(r) for r in found]

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return FakeTopics(self._kafka).identities(topics)

    def close(self) -> None:
        """Nothing is open."""


class FakeColumnReader:
    """ColumnReader on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._ranges = FakeRangeReader(kafka)

    def prepare(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Nothing to open."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        for found in self._ranges.read(topic, partition, start, end):
            rows = [(m.offset(), m.timestamp()[1], m.key(), m.value()) for m in found]
            yield Records.of(partition, rows)

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return self._ranges.identities(topics)

    def close(self) -> None:
        """Nothing is open."""


class FakeTransactions:
    """Transactions on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Connecting takes no time here."""

    def longest_s(self) -> float:
        return 900.0

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> FakeTransaction:  # fmt: skip
        epoch = self._kafka.does("acquire", lambda: self._kafka.fence(transactional_id))
        return FakeTransaction(self._kafka, transactional_id, epoch)


class FakeTransaction:
    """One producer epoch on the model."""

    def __init__(self, kafka: ModelKafka, transactional_id: str, epoch: int) -> None:
        self._kafka, self._id, self._epoch = kafka, transactional_id, epoch
        self._written: dict[Partition, Written] = {}
        self._sequence = SequenceCheck(kafka)
        self._begun = self._sent = False

    def begin(self) -> None:
        def effect() -> None:
            if self._begun:
                raise RetryableError(f"{self._id}: a transaction is begun already")
            self._kafka.begin(self._id, self._epoch)
            self._begun, self._sent = True, False

        self._kafka.does("begin", effect)

    def send(self, batch: PartitionBatch) -> None:
        self._kafka.does("send", lambda: self._append(batch))

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        def effect() -> None:
            if self._sent:  # the client queries the broker only then
                self._kafka.transaction(self._id, self._epoch)

        self._kafka.does("flush", effect)
        written, self._written = self._written, {}
        return written

    def commit(self, timeout_s: float) -> bool:
        def effect() -> None:
            if not self._begun:
                raise RetryableError(f"{self._id}: no transaction is begun")
            if self._sent:
                self._kafka.end_request(self._id, self._epoch, "committed")
            else:  # the client does not query the broker
                with suppress(RetryableError):
                    self._kafka.end(self._id, self._epoch, "committed")
            self._begun = False

        self._kafka.does("commit", effect)
        return True

    def idle_s(self) -> float | None:
        """None: the model accepts all records at once, or none."""
        return None

    def close(self) -> None:
        """A dead producer's transaction stays open, as when its process was killed."""

    def _append(self, batch: PartitionBatch) -> None:
        if not self._begun:
            raise RetryableError(f"{self._id}: no transaction is begun")
        transaction = self._kafka.transaction(self._id, self._epoch)
        place = (batch.topic, batch.partition)
        self._kafka.log(*place)
        self._sequence.check(place)
        transaction.touched.add(place)
        self._sent = True
        offsets = [self._kafka.append(place, *record, transaction) for record in batch.records()]
        self._sequence.note(place, offsets[0])
        self._sequence.note(place, offsets[-1])
        self._written[place] = Written(offsets[0], offsets[-1])


def _entries(records: Iterable[ModelRecord]) -> list[Entry]:
    return [Entry(r.offset, r.value or b"", r.time_ms) for r in records]
