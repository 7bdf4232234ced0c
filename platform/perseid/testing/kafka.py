"""Kafka in memory: logs, transactions, fencing and unknown outcomes, behind this project's ports.

The model holds what matters to the protocols: offsets that markers and aborted records take up, a
last stable offset that an open transaction holds back, producers that a later one with the same
transactional id fences, topics that are new under an old name. It runs in one thread; what another
process would do at a bad moment is done by a hook.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perseid.clocks import Clock, ManualClock
from perseid.errors import PermanentError, ReplayDataLost, RetryableError
from perseid.topics.admin import MESSAGE_BYTES_MAX, Partition, TopicInfo
from perseid.topics.log import Entry
from perseid.topics.names import check_topic
from perseid.worker.sink_ports import Headers, PartitionBatch, Written

Fault = Literal["lost", "unanswered"]  # an error before the effect, or after it
_STATES = Literal["open", "committed", "aborted"]


@dataclass(slots=True)
class ModelTransaction:
    """One transaction; shared by all its records, so that its end decides them all."""

    state: _STATES = "open"
    touched: set[Partition] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What stands at one offset. A marker has no value that anybody reads."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    time_ms: int
    transaction: ModelTransaction | None = None
    marker: bool = False


@dataclass(slots=True)
class _Log:
    start: int = 0
    records: list[ModelRecord] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.start

    @property
    def stable_end(self) -> int:
        undecided = (
            r.offset for r in self.records if r.transaction and r.transaction.state == "open"
        )
        return min(undecided, default=self.end)


@dataclass(slots=True)
class _Topic:
    info: TopicInfo
    logs: list[_Log]


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    transaction: ModelTransaction | None = None


class ModelKafka:
    """The broker. `fail` and `before` plant faults; everything else is what a broker does."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or ManualClock()
        self.topics: dict[str, _Topic] = {}
        self._producers: dict[str, _Producer] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._hooks: dict[str, list[Callable[[], None]]] = {}

    def fail(self, operation: str, *faults: Fault) -> None:
        """The next calls of `operation` (append, acquire, begin, send, flush, commit) fail so."""
        self._faults.setdefault(operation, []).extend(faults)

    def before(self, operation: str, hook: Callable[[], None]) -> None:
        """Runs `hook` once, right before the next `operation` takes effect."""
        self._hooks.setdefault(operation, []).append(hook)

    def does(self, operation: str, effect: Callable[[], Any]) -> Any:
        """`effect` with the hooks and the fault that are planted for `operation`."""
        for hook in self._hooks.pop(operation, []):
            hook()
        planted = self._faults.get(operation, [])
        fault = planted.pop(0) if planted else None
        if fault == "lost":
            raise RetryableError(f"{operation}: no answer (planted, without effect)")
        result = effect()
        if fault == "unanswered":
            raise RetryableError(f"{operation}: no answer (planted, with effect)")
        return result

    def log(self, topic: str, partition: int) -> _Log:
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.logs):
            raise PermanentError(f"{topic}[{partition}]: the topic or partition does not exist")
        return found.logs[partition]

    def append(
        self,
        place: Partition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        transaction: ModelTransaction | None = None,
    ) -> int:
        """One record at the end of the log; its offset."""
        log, limit = self.log(*place), self.topics[place[0]].info.message_bytes_max
        if len(value or b"") + len(key or b"") > limit:
            raise PermanentError(f"{place[0]}: the broker refuses a record as too large")
        now_ms = self.clock.wall_ms()
        log.records.append(ModelRecord(log.end, key, value, headers, now_ms, transaction))
        return log.records[-1].offset

    def readable(self, topic: str, partition: int, start: int, end: int) -> list[ModelRecord]:
        """Committed records of [start, end) below the last stable offset."""
        log = self.log(topic, partition)
        if start < log.start:
            raise ReplayDataLost(topic, partition, start, log.start)
        if start > log.end:
            raise PermanentError(f"{topic}[{partition}] has no offset {start}: it was made anew")
        end = min(end, log.stable_end)
        return [
            r for r in log.records
            if start <= r.offset < end and not r.marker
            and (r.transaction is None or r.transaction.state == "committed")
        ]  # fmt: skip

    def fence(self, transactional_id: str) -> int:
        """A new producer epoch for the id; what was open under it is aborted."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        self.end(transactional_id, producer.epoch, "aborted")
        producer.epoch += 1
        return producer.epoch

    def begin(self, transactional_id: str, epoch: int) -> None:
        self._producer(transactional_id, epoch).transaction = ModelTransaction()

    def transaction(self, transactional_id: str, epoch: int) -> ModelTransaction:
        found = self._producer(transactional_id, epoch).transaction
        if found is None:
            raise RetryableError(f"{transactional_id}: the transaction timed out")
        return found

    def end(
        self, transactional_id: str, epoch: int, state: Literal["committed", "aborted"]
    ) -> None:
        """Decides the open transaction and writes its markers; nothing to do without one."""
        producer = self._producer(transactional_id, epoch)
        transaction, producer.transaction = producer.transaction, None
        if transaction is None:
            return
        transaction.state = state
        for place in sorted(transaction.touched):
            log = self.log(*place)
            log.records.append(
                ModelRecord(log.end, None, None, (), self.clock.wall_ms(), None, marker=True)
            )

    def expire(self, transactional_id: str) -> None:
        """What the broker does when a transaction is open for too long."""
        producer = self._producers[transactional_id]
        self.end(transactional_id, producer.epoch, "aborted")

    def _producer(self, transactional_id: str, epoch: int) -> _Producer:
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise RetryableError(f"{transactional_id}: fenced by a newer producer")
        return producer


class FakeTopics:
    """TopicReader and TopicChanger on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        return {t: self._kafka.topics[t].info for t in topics if t in self._kafka.topics}

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
        self._kafka.topics[topic] = _Topic(info, [_Log() for _ in range(partitions)])
        return True

    def grow(self, topic: str, partitions: int) -> None:
        found = self._kafka.topics[topic]
        found.logs += [_Log() for _ in range(partitions - len(found.logs))]
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
    """One transaction on the model."""

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

    def commit(self, timeout_s: float) -> None:
        def effect() -> None:
            self._kafka.transaction(self._id, self._epoch)
            self._kafka.end(self._id, self._epoch, "committed")

        self._kafka.does("commit", effect)

    def close(self) -> None:
        """A dead producer's transaction stays open, as when its process was killed."""

    def _append(self, batch: PartitionBatch) -> None:
        transaction = self._kafka.transaction(self._id, self._epoch)
        place = (batch.topic, batch.partition)
        transaction.touched.add(place)
        offsets = [
            self._kafka.append(
                place, key, value, batch.headers[row] if batch.headers else (), transaction
            )
            for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
        ]
        self._written[place] = Written(offsets[0], offsets[-1])


def _entries(records: Iterable[ModelRecord]) -> list[Entry]:
    return [Entry(r.offset, r.value or b"") for r in records]
