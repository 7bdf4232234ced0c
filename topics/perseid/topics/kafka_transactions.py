"""The transaction port on Kafka.

Any outcome other than a clean success makes the producer unusable, because its late retries could
affect a later transaction. A new producer with the same id ends them. A commit is clean if it was
answered before the client can have sent any request twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from perseid.errors import RetryableError, TransientAnswer
from perseid.records.access import Bootstrap
from perseid.topics import clients
from perseid.topics.admin import Partition, TopicAdmin
from perseid.topics.librdkafka import TopicProducer
from perseid.topics.transactions import SPARES_MAX, PartitionBatch, Written

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from perseid.topics.batch_producer import BatchProducer

FIRST_WAIT_S = 0.1  # usually 5 ms
CONNECT_S = 5.0
# The client waits RETRY_BACKOFF_MS, less a fifth of it at random, before it repeats any request.
CLEAN_COMMIT_S = 0.75 * clients.RETRY_BACKOFF_MS / 1000
_CHUNK_RECORDS = 10_000  # far below the client's queue
# Of a flush: the client sends what it has, and busy-waits while it has more than one request for a
# partition can take. So it is flushed repeatedly, with sleeps until an answer arrives.
_FLUSH_S, _FLUSH_AGAIN_S, _FLUSH_REST_S = 0.02, 0.001, 0.005
_ABORT_S = 2.0
_LONGEST = "transaction.max.timeout.ms"  # a hosted Kafka may not report it
_ABORT_AT = 0.8  # of a transaction's time; the client aborts records a little later


class KafkaTransactions:
    """Transactions on Kafka; producers connect in the background, ahead of their epoch."""

    def __init__(
        self, bootstrap: Bootstrap, *, timeout_ms: int = clients.TRANSACTION_TIMEOUT_MS
    ) -> None:
        """`timeout_ms`: after this time the broker aborts what a dead writer left open."""
        self._bootstrap, self._timeout_ms = bootstrap, timeout_ms
        self._spares: dict[tuple[str, int, int], Future[BatchProducer]] = {}
        self._lock = Lock()  # of the spares: commits of several partitions run in threads
        self._pool = ThreadPoolExecutor(2, "perseid-sink-connect")

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        key = transactional_id, batch_bytes, self._timeout_ms
        with self._lock:
            spare = self._spare(*key)
            while len(self._spares) >= SPARES_MAX:
                self._spares.pop(next(iter(self._spares)))
            self._spares[key] = spare

    def _spare(
        self, transactional_id: str, batch_bytes: int, lasting_ms: int
    ) -> Future[BatchProducer]:
        """Takes the existing spare, if any, or starts a new one."""
        key = transactional_id, batch_bytes, lasting_ms
        return self._spares.pop(key, None) or self._pool.submit(
            clients.transactional, self._bootstrap, transactional_id, lasting_ms, batch_bytes
        )

    def longest_s(self) -> float:
        brokers = TopicAdmin(self._bootstrap).brokers().values()
        found = [int(longest) for settings in brokers if (longest := settings.get(_LONGEST))]
        if not found:
            raise TransientAnswer(f"no broker gives its {_LONGEST}")
        return min(found) / 1000

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> KafkaTransaction:  # fmt: skip
        """Acquires as the port describes.

        While the broker aborts what an older producer left open it refuses a new one, and the
        client then waits 500 ms. A second producer, created after a shorter wait, is accepted.
        """
        deadline_s = time.monotonic() + timeout_s
        lasting_ms = self._timeout_ms if lasting_s is None else int(lasting_s * 1000)
        key = transactional_id, batch_bytes, lasting_ms
        try:
            producer = self._initialised(key, FIRST_WAIT_S)
        except RetryableError:
            left_s = max(FIRST_WAIT_S, deadline_s - time.monotonic())
            producer = self._initialised(key, left_s)
        return KafkaTransaction(producer, transactional_id, lasting_ms / 1000)

    def _initialised(self, key: tuple[str, int, int], timeout_s: float) -> BatchProducer:
        from confluent_kafka import KafkaException

        transactional_id = key[0]
        with self._lock:
            spare = self._spare(*key)
        what = f"init_transactions of {transactional_id}"
        try:
            producer = spare.result(timeout_s + CONNECT_S)
            producer.init_transactions(timeout_s)
        except FutureTimeout as error:
            raise RetryableError(f"{what}: no connection in {timeout_s} s") from error
        except KafkaException as error:
            raise clients.as_error(error.args[0], what, hint=_NO_LOG) from error
        return producer

    def close(self) -> None:
        """Releases all spare producers."""
        self._spares.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)


_NO_LOG = (
    f"{clients.HINT} If it is, it may want more copies of its transaction log than there are "
    "brokers (transaction.state.log.replication.factor, transaction.state.log.min.isr): `perseid "
    "doctor` shows it"
)


class KafkaTransaction:
    """One producer and its open transaction."""

    def __init__(
        self, producer: BatchProducer, transactional_id: str,
        lasting_s: float = clients.TRANSACTION_TIMEOUT_MS / 1000,
    ) -> None:  # fmt: skip
        self._producer: BatchProducer | None = producer
        self._id, self._lasting_s = transactional_id, lasting_s
        self._begun_s = 0.0
        self._taken_s: float | None = None
        self._waiting = 0  # records that the broker had not taken at the last look
        self._open = False
        self._awaited: dict[Partition, int] = {}
        self._offsets: dict[Partition, list[int]] = {}
        self._failed: KafkaError | None = None
        self._topics: dict[str, TopicProducer] = {}

    def begin(self) -> None:
        self._call("begin_transaction")
        self._open = True
        self._begun_s, self._taken_s, self._waiting = time.monotonic(), None, 0

    def send(self, batch: PartitionBatch) -> None:
        from confluent_kafka import KafkaException

        place = (batch.topic, batch.partition)
        count = len(batch.values)
        self._awaited[place] = min(count, 2)
        self._offsets[place] = []
        try:
            self._send_noted(batch, 0)
            self._send_middle(batch)
            if count > 1:
                self._send_noted(batch, count - 1)
        except KafkaException as error:
            raise clients.as_error(error.args[0], f"producing to {place[0]}[{place[1]}]") from error
        except BufferError as error:  # a part is queued: continuing would break the order
            raise RetryableError(f"{place[0]}[{place[1]}]: not taken: {error}") from error

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        deadline_s, step_s = time.monotonic() + timeout_s, _FLUSH_S
        while (waiting := self._call("flush", step_s)) > 0:
            self._look(waiting)
            self._check_failed()
            if time.monotonic() > deadline_s:
                raise RetryableError(f"{self._id}: records were not delivered in {timeout_s} s")
            self._call("poll", _FLUSH_REST_S)
            step_s = _FLUSH_AGAIN_S
        self._check_failed()
        places = {}
        for place, awaited in self._awaited.items():
            seen = self._offsets[place]
            if len(seen) != awaited:
                raise RetryableError(f"{self._id}: a record for {place[0]}[{place[1]}] was lost")
            places[place] = Written(seen[0], seen[-1])
        self._awaited, self._offsets = {}, {}
        return places

    def idle_s(self) -> float | None:
        return None if self._taken_s is None else time.monotonic() - self._taken_s

    def _look(self, waiting: int) -> None:
        """Notes when the broker takes records; late records that the client aborts do not count."""
        now_s = time.monotonic()
        if waiting < self._waiting and now_s - self._begun_s < _ABORT_AT * self._lasting_s:
            self._taken_s = now_s
        self._waiting = waiting

    def commit(self, timeout_s: float) -> bool:
        started_s = time.monotonic()
        self._call("commit_transaction", timeout_s)
        self._open = False
        return time.monotonic() - started_s < CLEAN_COMMIT_S

    def close(self) -> None:
        producer, self._producer = self._producer, None
        while self._topics:  # before the producer is released
            self._topics.popitem()[1].close()
        if producer is not None and self._open:
            from confluent_kafka import KafkaException

            producer.purge()
            with suppress(KafkaException):  # best effort: the next acquire aborts too
                producer.abort_transaction(_ABORT_S)

    def _needed(self) -> BatchProducer:
        assert self._producer is not None  # `close` is the last call
        return self._producer

    def _call(self, name: str, *arguments: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return getattr(self._needed(), name)(*arguments)
        except KafkaException as error:
            raise clients.as_error(error.args[0], f"{name} of {self._id}") from error

    def _send_noted(self, batch: PartitionBatch, row: int) -> None:
        """Sends one record whose delivery report gives its offset."""
        headers = batch.headers[row] if batch.headers is not None else None
        self._await_room(1)
        self._needed().produce(
            batch.topic, batch.values[row].as_py(), batch.keys[row].as_py(), batch.partition,
            on_delivery=self._delivered, headers=list(headers) if headers else None,
        )  # fmt: skip

    def _send_middle(self, batch: PartitionBatch) -> None:
        """Sends all but the first and last record, without reports; with headers one by one."""
        end = len(batch.values) - 1
        for start in range(1, end, _CHUNK_RECORDS):
            stop = min(start + _CHUNK_RECORDS, end)
            self._await_room(stop - start)
            if batch.headers is None:
                self._send_rows(batch, start, stop)
                continue
            part = slice(start, stop)
            keys, values = batch.keys[part].to_pylist(), batch.values[part].to_pylist()
            for key, value, headers in zip(keys, values, batch.headers[part], strict=True):
                self._needed().produce(
                    batch.topic, value, key, batch.partition, headers=list(headers)
                )

    def _send_rows(self, batch: PartitionBatch, start: int, stop: int) -> None:
        from confluent_kafka import KafkaException

        if batch.topic not in self._topics:
            self._topics[batch.topic] = TopicProducer(self._needed(), batch.topic)
        topic = self._topics[batch.topic]
        error = topic.produce(batch.partition, batch.keys, batch.values, start, stop)
        if error is not None:
            raise KafkaException(error)

    def _await_room(self, records: int) -> None:
        """Waits while the client's queue has no room for `records` more."""
        producer = self._needed()
        deadline_s = time.monotonic() + self._lasting_s
        while (waiting := len(producer)) + records > clients.QUEUE_MESSAGES_MAX:
            self._look(waiting)
            self._call("poll", _FLUSH_REST_S)
            if len(producer) == waiting:  # perhaps no partition has enough for a request
                self._call("flush", _FLUSH_AGAIN_S)
            self._check_failed()
            if time.monotonic() > deadline_s:
                raise RetryableError(f"{self._id}: the broker takes no records")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = self._failed or error
            return
        place = (cast(str, message.topic()), cast(int, message.partition()))
        self._offsets[place].append(cast(int, message.offset()))

    def _check_failed(self) -> None:
        if self._failed is not None:
            raise clients.as_error(self._failed, f"delivery for {self._id}")
