"""The ledger after transactions that were committed, aborted and left open."""

from __future__ import annotations

import pytest

from perseid.errors import RetryableError
from perseid.topics import codec
from perseid.topics.records import LedgerRecord
from perseid.topics.transactions import PartitionBatch, Transaction
from support.kafka_handle import Kafka

BATCH = 1_000_000


def opened(kafka: Kafka, name: str, topic: str, values: list[bytes]) -> Transaction:
    """A transaction with delivered, undecided records."""
    transaction = kafka.transactions.acquire(name, BATCH, 20)
    transaction.begin()
    transaction.send(PartitionBatch(topic, 0, [None] * len(values), values))
    transaction.flush(20)
    return transaction


def _record(epoch: int, uuid: str = "u") -> LedgerRecord:
    return LedgerRecord(uuid, 1, "op", 0, 1, epoch, epoch)


def _note(kafka: Kafka, topic: str, record: LedgerRecord, *, commit: bool = True) -> None:
    transaction = opened(kafka, f"l-{topic}", topic, [codec.encode(record)])
    if commit:
        transaction.commit(20)
        transaction.close()


def test_the_last_ledger_record_after_many_aborted_ones(kafka: Kafka) -> None:
    topic = kafka.topic()
    assert kafka.ledger().last(topic, 0, timeout_s=20) is None
    _note(kafka, topic, _record(1))
    old = kafka.ledger()
    assert old.last(topic, 0, timeout_s=20) == _record(1)
    for _ in range(12):
        _note(kafka, topic, _record(2), commit=False)
    kafka.transactions.acquire(f"l-{topic}", BATCH, 20).close()
    assert kafka.topics.ends([(topic, 0)])[topic, 0] > 20
    assert kafka.ledger().last(topic, 0, timeout_s=20) == _record(1)
    assert old.last(topic, 0, timeout_s=20) == _record(1)
    _note(kafka, topic, _record(2))
    assert kafka.ledger().last(topic, 0, timeout_s=20) == _record(2)
    assert old.last(topic, 0, timeout_s=20) == _record(2)


def test_the_ledger_is_not_read_past_an_open_transaction(kafka: Kafka) -> None:
    topic = kafka.topic()
    _note(kafka, topic, _record(1))
    _note(kafka, topic, _record(2), commit=False)
    with pytest.raises(RetryableError, match="not readable"):
        kafka.ledger().last(topic, 0, timeout_s=0.5)
    kafka.transactions.acquire(f"l-{topic}", BATCH, 20).close()
    assert kafka.ledger().last(topic, 0, timeout_s=20) == _record(1)


def test_ledger_of_all_partitions_ignores_another_job_of_the_name(kafka: Kafka) -> None:
    job = kafka.job(3)
    topic = f"perseid.{job}.ledger"
    _note(kafka, topic, _record(7, "u"))
    found = kafka.ledger().last_of(job, "u", range(3), timeout_s=20)
    assert found == {0: _record(7), 1: None, 2: None}
    assert kafka.ledger().last_of(job, "v", [0], timeout_s=20) == {0: None}
