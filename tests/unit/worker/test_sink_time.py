"""An epoch's output that Kafka takes too slowly for a transaction: longer ones, or a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from perseid.errors import PermanentError, RetryableError, TransientAnswer
from perseid.testing.kafka import (
    FakeLogReader,
    FakeTopics,
    FakeTransaction,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import clients
from perseid.topics.admin import Partition, TopicAdmin
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.ledger import LedgerReader
from perseid.topics.transactions import PartitionBatch, SinkBatch, Written
from perseid.worker.sink.sink_time import FIRST_S
from perseid.worker.sink.transaction import COMMIT_S, SinkIdentity, SinkSession

WHO = SinkIdentity("job", "u", 1, "op", 0, ledger=0, after_epoch=0)


class SlowTransactions:
    """Of a broker that needs `record_s` for each record; `away`: and takes none of them."""

    def __init__(self, kafka: ModelKafka, record_s: float, *, away: bool = False) -> None:
        self._real = FakeTransactions(kafka)
        self.kafka, self.record_s, self.away = kafka, record_s, away
        self.lasting: list[float | None] = []
        self.denied = False

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Connecting takes no time."""

    def longest_s(self) -> float:
        if self.denied:
            raise TransientAnswer("settings of broker 1: the broker denies this to us")
        return 300.0

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> SlowTransaction:  # fmt: skip
        self.lasting.append(lasting_s)
        return SlowTransaction(self, self._real.acquire(transactional_id, batch_bytes, timeout_s))


class SlowTransaction:
    def __init__(self, slow: SlowTransactions, real: FakeTransaction) -> None:
        self._slow, self._real, self._records = slow, real, 0

    def begin(self) -> None:
        self._real.begin()

    def send(self, batch: PartitionBatch) -> None:
        self._records += len(batch.values)
        self._real.send(batch)

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        needed_s, self._records = self._records * self._slow.record_s, 0
        self._slow.kafka.clock.sleep(min(needed_s, timeout_s))
        if needed_s > timeout_s:
            raise RetryableError("records were not delivered")
        return self._real.flush(timeout_s)

    def idle_s(self) -> float | None:
        return None if self._slow.away else 0.1

    def commit(self, timeout_s: float) -> bool:
        return self._real.commit(timeout_s)

    def close(self) -> None:
        self._real.close()


def made(
    record_s: float, *, away: bool = False
) -> tuple[ModelKafka, SlowTransactions, SinkSession]:
    kafka = ModelKafka()
    topics = FakeTopics(kafka)
    topics.create("perseid.job.ledger", 1)
    topics.create("out", 1)
    slow = SlowTransactions(kafka, record_s, away=away)
    ledger = LedgerReader(FakeLogReader(kafka), topics)
    return kafka, slow, SinkSession(WHO, slow, ledger, topics, clock=kafka.clock)


def outputs(count: int) -> list[SinkBatch]:
    return [SinkBatch("out", [b"k"] * count, [b"%d" % i for i in range(count)])]


def committed(kafka: ModelKafka) -> list[bytes | None]:
    return [r.value for r in kafka.readable("out", 0, 0, 10**9)]


def test_an_epoch_that_takes_longer_is_given_longer_and_the_next_small_one_less() -> None:
    kafka, slow, sink = made(1.0)
    done = sink.commit(1, 1, 1, outputs(100))
    assert slow.lasting == [None, 120.0]
    assert done.attempts == 2
    assert committed(kafka) == [b"%d" % i for i in range(100)]
    sink.commit(2, 2, 1, outputs(100))
    assert slow.lasting == [None, 120.0]  # the same producer continues
    sink.commit(3, 3, 1, outputs(1))
    sink.commit(4, 4, 1, outputs(1))
    assert sink._lasting_s == FIRST_S


def test_what_no_transaction_has_time_for_ends_in_a_sentence() -> None:
    kafka, slow, sink = made(1.0)
    with pytest.raises(PermanentError, match=r"0, epoch 1 of job: .* 400 records") as caught:
        sink.commit(1, 1, 1, outputs(400))
    for part in ("300 s", "epoch.maxRecords", "transaction.max.timeout.ms", "for out"):
        assert part in str(caught.value)
    assert slow.lasting == [None, 120.0, 300.0]
    at_s = kafka.clock.monotonic_s()
    with pytest.raises(PermanentError):
        sink.commit(1, 1, 1, outputs(400))  # Spark's next try of the task
    assert kafka.clock.monotonic_s() == at_s
    assert committed(kafka) == []
    sink.commit(1, 5, 2, outputs(3))  # issued again, smaller
    assert committed(kafka) == [b"0", b"1", b"2"]


def test_a_worker_that_may_not_ask_for_a_brokers_settings_goes_by_the_default() -> None:
    """`perseid jobs acls` gives no right to them."""
    kafka, slow, sink = made(1.0)
    slow.denied = True
    sink.commit(1, 1, 1, outputs(400))
    assert slow.lasting == [None, 120.0, 480.0]
    assert len(committed(kafka)) == 400
    with pytest.raises(PermanentError, match="900 s, the longest"):
        sink.commit(2, 2, 1, outputs(1000))


def test_the_longest_transaction_is_that_of_the_strictest_broker_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "transaction.max.timeout.ms"
    reported: dict[int, dict[str, str]] = {1: {name: "900000"}, 2: {}, 3: {name: "60000"}}
    monkeypatch.setattr(TopicAdmin, "brokers", lambda _: reported)
    with closing(KafkaTransactions("nowhere:1")) as transactions:
        assert transactions.longest_s() == 60.0
        reported.clear()
        with pytest.raises(TransientAnswer, match=f"no broker gives its {name}"):
            transactions.longest_s()


def test_a_broker_that_is_away_is_no_broker_that_is_too_slow() -> None:
    kafka, slow, sink = made(1.0, away=True)
    for _ in range(5):
        with pytest.raises(RetryableError, match="could not be committed"):
            sink.commit(1, 1, 1, outputs(100))
    assert set(slow.lasting) == {None}
    assert kafka.clock.monotonic_s() > 5 * COMMIT_S
    slow.away, slow.record_s = False, 0.0
    sink.commit(1, 1, 1, outputs(100))
    assert len(committed(kafka)) == 100


def test_a_broker_that_allows_too_short_transactions_is_an_error_with_the_value_to_set() -> None:
    error = clients.as_error(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT), "init")
    assert isinstance(error, PermanentError)
    assert "raise its transaction.max.timeout.ms, at least to 30000" in str(error)
