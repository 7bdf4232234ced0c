"""A model of a broker: what matters to the protocols, in memory and in one thread.

It models offsets of markers and aborted records, a last stable offset that an open transaction
holds back, producers that a later one with the same transactional id fences, and late requests of
the old transaction protocol. Hooks act as other processes at a bad moment;
`perseid.testing.kafka_disk` models the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perseid.clocks import Clock, ManualClock
from perseid.errors import (
    LogTruncated,
    PermanentError,
    ReplayDataLost,
    RetryableError,
    TransientAnswer,
)
from perseid.topics.admin import Partition, TopicInfo
from perseid.topics.transactions import Headers
from perseid.worker.sink.sink_outputs import record_batch_bytes

Fault = Literal["lost", "unanswered"]  # an error before the effect, or after it
Ending = Literal["committed", "aborted"]
_OVERHEAD_BYTES = 100  # of a record batch around one record; more than it ever is without headers


@dataclass(slots=True, eq=False)
class ModelTransaction:
    """One transaction, shared by all its records, so that its end decides them all.

    `was_aborted`: the broker has lost the marker of the abort, and the producer's next one decides.
    """

    state: Literal["open"] | Ending = "open"
    touched: set[Partition] = field(default_factory=set)
    transactional_id: str = ""
    was_aborted: bool = False


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The record at one offset. A marker has no value, and the transaction that it decided."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    time_ms: int
    transaction: ModelTransaction | None = None
    marker: bool = False


@dataclass(slots=True)
class ModelLog:
    """One topic partition, from `start`, below which records were trimmed."""

    start: int = 0
    records: list[ModelRecord] = field(default_factory=list)  # without gaps
    undecided: dict[ModelTransaction, int] = field(default_factory=dict)  # to its first offset

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.start

    @property
    def stable_end(self) -> int:
        return min(self.undecided.values(), default=self.end)

    def between(self, start: int, end: int) -> list[ModelRecord]:
        """Returns the records at [start, end)."""
        first = self.records[0].offset if self.records else 0
        return self.records[max(start - first, 0) : max(end - first, 0)]

    def trim(self, start: int) -> None:
        """Removes the records below `start`."""
        self.start = max(self.start, start)
        self.replace([r for r in self.records if r.offset >= self.start])

    def replace(self, records: list[ModelRecord]) -> None:
        """Replaces the records."""
        self.records, self.undecided = records, {}
        for record in records:
            if record.transaction is not None and record.transaction.state == "open":
                self.undecided.setdefault(record.transaction, record.offset)


@dataclass(slots=True)
class ModelTopic:
    """A topic and its partitions."""

    info: TopicInfo
    logs: list[ModelLog]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Producer:
    """`ended`: how this epoch's last transaction ended. `hanging`: logs whose marker was lost."""

    epoch: int = 0
    transaction: ModelTransaction | None = None
    ended: Ending | None = None
    hanging: dict[Partition, ModelTransaction] = field(default_factory=dict)


class ModelKafka:
    """The broker. `fail` and `before` plant faults; all other methods do what a broker does."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or ManualClock()
        self.topics: dict[str, ModelTopic] = {}
        self._topics_made = 0
        self.trims = 0  # that were asked for, so far
        self.changed: set[str] = set()  # topics changed since a reader last cleared this
        self.lost_tails: list[tuple[Partition, int]] = []  # where power failures cut, in order
        self._producers: dict[str, _Producer] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._hooks: dict[str, list[Callable[[], None]]] = {}

    def new_topic_id(self) -> str:
        """Returns a new id each time: a topic that is created again is another topic."""
        self._topics_made += 1
        return f"{self._topics_made:032x}"

    def fail(self, operation: str, *faults: Fault) -> None:
        """The next calls of `operation` (append, acquire, begin, send, flush, commit) fail so."""
        self._faults.setdefault(operation, []).extend(faults)

    def before(self, operation: str, hook: Callable[[], None]) -> None:
        """Runs `hook` once, right before the next `operation` takes effect."""
        self._hooks.setdefault(operation, []).append(hook)

    def forget_hooks(self) -> None:
        """Discards hooks whose operation did not happen."""
        self._hooks.clear()

    def does(self, operation: str, effect: Callable[[], Any]) -> Any:
        """Runs `effect` with the hooks and the fault that are planted for `operation`."""
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

    def log(self, topic: str, partition: int) -> ModelLog:
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.logs):
            raise TransientAnswer(f"{topic}[{partition}]: the topic or partition does not exist")
        return found.logs[partition]

    def append(
        self,
        place: Partition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        transaction: ModelTransaction | None = None,
    ) -> int:
        """Appends one record to the log; returns its offset."""
        log, limit = self.log(*place), self.topics[place[0]].info.message_bytes_max
        if len(value or b"") + len(key or b"") + _OVERHEAD_BYTES > limit or headers:
            if record_batch_bytes(key, value or b"", headers) > limit:
                raise PermanentError(f"{place[0]}: the broker refuses a record as too large")
        offset, now_ms = log.end, self.clock.wall_ms()
        log.records.append(ModelRecord(offset, key, value, headers, now_ms, transaction))
        if transaction is not None:
            transaction.touched.add(place)
            log.undecided.setdefault(transaction, offset)
        self.changed.add(place[0])
        return offset

    def readable(self, topic: str, partition: int, start: int, end: int) -> list[ModelRecord]:
        """Returns the committed records of [start, end) below the last stable offset."""
        log = self.log(topic, partition)
        if start < log.start:
            raise ReplayDataLost(topic, partition, start, log.start)
        if start > log.end:
            raise LogTruncated(topic, partition, start, log.end)
        return [
            r for r in log.between(start, min(end, log.stable_end))
            if not r.marker and (r.transaction is None or r.transaction.state == "committed")
        ]  # fmt: skip

    def fence(self, transactional_id: str) -> int:
        """Returns a new producer epoch for the id; aborts what was open under it."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        self.end(transactional_id, producer.epoch, "aborted")
        self._next_epoch(producer)
        return producer.epoch

    def epoch(self, transactional_id: str) -> int:
        """Returns the id's current producer epoch."""
        return self._producers[transactional_id].epoch

    def begin(self, transactional_id: str, epoch: int) -> None:
        """Begins in the client only: the broker learns of it with the first record.

        So no producer is refused here, and records after an open transaction join it.
        """
        producer = self._producers[transactional_id]
        if producer.epoch == epoch and producer.transaction is None:
            producer.transaction = ModelTransaction(transactional_id=transactional_id)

    def transaction(self, transactional_id: str, epoch: int) -> ModelTransaction:
        found = self._producer(transactional_id, epoch).transaction
        if found is None:
            raise RetryableError(f"{transactional_id}: no transaction is open")
        return found

    def end_request(self, transactional_id: str, epoch: int, state: Ending) -> None:
        """EndTxn of the old protocol: it names a producer epoch and no transaction.

        So a late request decides whatever this epoch has open by then. Without an open transaction
        it counts as a repetition, which must match the previous request.
        """
        producer = self._producer(transactional_id, epoch)
        if producer.transaction is not None and producer.transaction.touched:
            self.end(transactional_id, epoch, state)
        elif producer.ended != state:
            raise RetryableError(f"{transactional_id}: no transaction is open to be {state}")

    def end(self, transactional_id: str, epoch: int, state: Ending) -> None:
        """Decides the open transaction and writes its markers; does nothing without one."""
        producer = self._producer(transactional_id, epoch)
        transaction, producer.transaction = producer.transaction, None
        if transaction is None:
            return
        transaction.state = producer.ended = state
        for name, partition in sorted(transaction.touched):
            if name not in self.topics:
                continue  # it was deleted meanwhile
            log, hanging = self.log(name, partition), producer.hanging.pop((name, partition), None)
            if hanging is not None:  # the partition has one transaction, open since then
                hanging.state = state
                log.undecided.pop(hanging, None)
            log.undecided.pop(transaction, None)
            self.changed.add(name)
            now_ms = self.clock.wall_ms()
            log.records.append(ModelRecord(log.end, None, None, (), now_ms, transaction, True))

    def hang(self, place: Partition, transaction: ModelTransaction) -> None:
        """The marker of `transaction` at `place` was lost and will not be repeated.

        Readers wait there until the next transaction of the same id has ended: its marker decides
        both. (For the broker the id's transaction has long ended.)
        """
        self._producers[transaction.transactional_id].hanging[place] = transaction

    def expire(self, transactional_id: str) -> None:
        """Aborts a transaction that is open for too long, and fences its producer."""
        producer = self._producers[transactional_id]
        self.end(transactional_id, producer.epoch, "aborted")
        self._next_epoch(producer)

    @staticmethod
    def _next_epoch(producer: _Producer) -> None:
        producer.epoch, producer.ended = producer.epoch + 1, None

    def _producer(self, transactional_id: str, epoch: int) -> _Producer:
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise RetryableError(f"{transactional_id}: fenced by a newer producer")
        return producer
