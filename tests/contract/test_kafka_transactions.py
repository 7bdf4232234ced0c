"""The transaction port: what commits, what is fenced, what readers see meanwhile."""

from __future__ import annotations

import pytest

from perseid.errors import RetryableError
from perseid.testing.kafka_handle import Kafka
from perseid.topics import codec
from perseid.topics.records import LedgerRecord
from perseid.worker.sink_ports import PartitionBatch, Transaction, Written

BATCH = 1_000_000


def opened(kafka: Kafka, name: str, topic: str, values: list[bytes]) -> Transaction:
    """A transaction with delivered, undecided records."""
    transaction = kafka.transactions.acquire(name, BATCH, 20)
    transaction.begin()
    transaction.send(PartitionBatch(topic, 0, [None] * len(values), values))
    transaction.flush(20)
    return transaction


def test_a_commit_makes_all_visible_at_once(kafka: Kafka) -> None:
    one, two = kafka.topic(), kafka.topic(2)
    transaction = opened(kafka, f"a-{one}", one, [b"1", b"2", b"3"])
    transaction.send(PartitionBatch(two, 1, [b"k"], [b"v"]))
    assert transaction.flush(20) == {(two, 1): Written(0, 0)}
    assert kafka.topics.ends([(one, 0), (two, 1)]) == {(one, 0): 0, (two, 1): 0}
    assert kafka.topics.ends([(one, 0)], committed=False) == {(one, 0): 3}
    transaction.commit(20)
    transaction.close()
    assert kafka.values(one) == [b"1", b"2", b"3"]
    assert kafka.values(two, 1) == [b"v"]


def test_flush_tells_first_and_last_offset(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.writer.append(topic, 0, b"before")
    transaction = kafka.transactions.acquire(f"o-{topic}", BATCH, 20)
    transaction.begin()
    many = [b"%d" % i for i in range(25_000)]
    transaction.send(PartitionBatch(topic, 0, many, many))
    transaction.send(PartitionBatch(topic, 1, [None], [b"x"]))
    assert transaction.flush(20) == {(topic, 0): Written(1, 25_000), (topic, 1): Written(0, 0)}
    transaction.commit(20)
    assert kafka.values(topic) == [b"before", *many]


def test_acquire_fences_and_aborts_the_one_before(kafka: Kafka) -> None:
    topic = kafka.topic()
    old = opened(kafka, f"f-{topic}", topic, [b"old"])
    new = kafka.transactions.acquire(f"f-{topic}", BATCH, 20)
    with pytest.raises(RetryableError):
        old.commit(20)
    old.close()
    new.begin()
    new.send(PartitionBatch(topic, 0, [None], [b"new"]))
    new.flush(20)
    new.commit(20)
    new.close()
    assert kafka.values(topic) == [b"new"]


def test_a_fenced_one_cannot_even_send(kafka: Kafka) -> None:
    topic = kafka.topic()
    old = kafka.transactions.acquire(f"s-{topic}", BATCH, 20)
    kafka.transactions.acquire(f"s-{topic}", BATCH, 20).close()
    with pytest.raises(RetryableError):
        old.begin()
        old.send(PartitionBatch(topic, 0, [None], [b"late"]))
        old.flush(20)
    old.close()
    assert kafka.values(topic) == []


def test_another_id_is_not_fenced(kafka: Kafka) -> None:
    topic = kafka.topic()
    mine = opened(kafka, f"i-{topic}", topic, [b"mine"])
    kafka.transactions.acquire(f"j-{topic}", BATCH, 20).close()
    mine.commit(20)
    assert kafka.values(topic) == [b"mine"]


def test_preparing_fences_nobody(kafka: Kafka) -> None:
    topic = kafka.topic()
    mine = opened(kafka, f"p-{topic}", topic, [b"mine"])
    kafka.transactions.prepare(f"p-{topic}", BATCH)
    mine.commit(20)
    assert kafka.values(topic) == [b"mine"]


def _record(epoch: int, uuid: str = "u") -> LedgerRecord:
    return LedgerRecord(uuid, 1, "op", 0, 1, epoch, epoch)


def _note(kafka: Kafka, topic: str, record: LedgerRecord, *, commit: bool = True) -> None:
    transaction = opened(kafka, f"l-{topic}", topic, [codec.encode(record)])
    if commit:
        transaction.commit(20)
        transaction.close()


def test_the_last_ledger_record_behind_many_aborted_ones(kafka: Kafka) -> None:
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
