"""Kafka in memory behind this project's ports: the fakes over `perseid.testing.kafka_model`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perseid.errors import PermanentError, RetryableError
from perseid.testing.kafka_model import Fault, ModelKafka, ModelLog, ModelRecord, ModelTopic
from perseid.topics.admin import MESSAGE_BYTES_MAX, Partition, TopicInfo
from perseid.topics.log import Entry
from perseid.topics.names import check_topic
from perseid.worker.sink_ports import PartitionBatch, Written

__all__ = [
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


class FakeTopics:
    """TopicReader and TopicChanger on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        return {t: self._kafka.topics[t].info for t in topics if t in self._kafka.topics}

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return {name: info.topic_id for name, info in self.describe(topics).items()}

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        logs = {p: self._kafka.log(*p) for p in partitions}
        return {p: log.stable_end if committed else log.end for p, log in logs.items()}

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {p: self._kafka.log(*p).start for p in partitions}

    def offsets_at(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        found = {}
        for place in partitions:
            log = self._kafka.log(*place)
            late = (r.offset for r in log.records if r.time_ms >= time_ms)
            found[place] = min(late, default=log.stable_end)
        return found

    def list(self) -> list[str]:
        return sorted(self._kafka.topics)

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        if partitions < 1:
            raise PermanentError(f"topic {topic} with {partitions} partitions: at least 1")
        if check_topic(topic) in self._kafka.topics:
            return False
        settings = dict(config or {})
        info = TopicInfo(
            topic,
            uuid.uuid4().hex,
            partitions,
            settings.get("cleanup.policy", "delete"),
            int(settings.get("max.message.bytes", MESSAGE_BYTES_MAX)),
        )
        self._kafka.topics[topic] = ModelTopic(info, [ModelLog() for _ in range(partitions)])
        return True

    def grow(self, topic: str, partitions: int) -> None:
        found = self._kafka.topics[topic]
        found.logs += [ModelLog() for _ in range(partitions - len(found.logs))]
        old = found.info
        found.info = TopicInfo(
            topic, old.topic_id, len(found.logs), old.cleanup_policy, old.message_bytes_max
        )

    def delete(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._kafka.topics.pop(topic, None)

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        for (topic, partition), offset in before.items():
            log = self._kafka.log(topic, partition)
            if offset > log.end:
                raise PermanentError(f"trimming {topic}[{partition}]: no offset {offset}")
            log.start = max(log.start, offset)
            log.records = [r for r in log.records if r.offset >= log.start]


class FakeLogReader:
    """LogReader on the model; waiting is the clock's `sleep`."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def read_from(
        self, topic: str, partition: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        end = self._kafka.log(topic, partition).stable_end
        found = _entries(self._kafka.readable(topic, partition, offset, max(end, offset)))
        if not found:
            self._kafka.clock.sleep(timeout_s)
        return found[:max_records]

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> list[Entry]:
        if start >= end:
            return []
        if self._kafka.log(topic, partition).stable_end < end:
            self._kafka.clock.sleep(timeout_s)
            raise RetryableError(f"{topic}[{partition}]: offset {end} was not readable")
        return _entries(self._kafka.readable(topic, partition, start, end))

    def close(self) -> None:
        """Nothing is open."""


class FakeLogWriter:
    """LogWriter on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def append(self, topic: str, partition: int, value: bytes) -> int:
        offset: int = self._kafka.does(
            "append", lambda: self._kafka.append((topic, partition), None, value)
        )
        return offset

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class FakeMessage:
    """A consumed record with the methods of the real client's that readers use."""

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
        if self._kafka.log(topic, partition).stable_end < end:
            raise RetryableError(f"{topic}[{partition}]: nothing at a range to {end}")
        found = self._kafka.readable(topic, partition, start, end)
        if found:
            yield [FakeMessage(r) for r in found]

    def close(self) -> None:
        """Nothing is open."""


class FakeTransactions:
    """Transactions on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Connecting takes no time here."""

    def acquire(self, transactional_id: str, batch_bytes: int, timeout_s: float) -> FakeTransaction:
        epoch = self._kafka.does("acquire", lambda: self._kafka.fence(transactional_id))
        return FakeTransaction(self._kafka, transactional_id, epoch)


class FakeTransaction:
    """One producer epoch on the model."""

    def __init__(self, kafka: ModelKafka, transactional_id: str, epoch: int) -> None:
        self._kafka, self._id, self._epoch = kafka, transactional_id, epoch
        self._written: dict[Partition, Written] = {}

    def begin(self) -> None:
        self._kafka.does("begin", lambda: self._kafka.begin(self._id, self._epoch))

    def send(self, batch: PartitionBatch) -> None:
        self._kafka.does("send", lambda: self._append(batch))

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        self._kafka.does("flush", lambda: self._kafka.transaction(self._id, self._epoch))
        written, self._written = self._written, {}
        return written

    def commit(self, timeout_s: float) -> bool:
        def effect() -> None:
            self._kafka.transaction(self._id, self._epoch)
            self._kafka.end(self._id, self._epoch, "committed")

        self._kafka.does("commit", effect)
        return True

    def close(self) -> None:
        """A dead producer's transaction stays open, as when its process was killed."""

    def _append(self, batch: PartitionBatch) -> None:
        transaction = self._kafka.transaction(self._id, self._epoch)
        place = (batch.topic, batch.partition)
        offsets = [
            self._kafka.append(
                place, key, value, batch.headers[row] if batch.headers else (), transaction
            )
            for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
        ]
        self._written[place] = Written(offsets[0], offsets[-1])


def _entries(records: Iterable[ModelRecord]) -> list[Entry]:
    return [Entry(r.offset, r.value or b"") for r in records]
