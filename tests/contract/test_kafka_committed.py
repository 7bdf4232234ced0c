"""What a new owner learns from the ledgers, and that it need not wait for the old one."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from perseid.errors import FencedError, PerseidError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import Plan
from perseid.topics import codec, names
from perseid.topics.clients import BATCH_BYTES_MAX, TRANSACTION_TIMEOUT_MS
from perseid.topics.records import LedgerRecord
from perseid.topics.transactions import PartitionBatch, Transaction
from perseid.worker.sink.committed import committed_epochs
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession
from support.kafka_handle import Kafka

LAYOUT = Layout(1, (Task(5, "op", 0, 1, True, 0), Task(6, "op", 1, 1, True, 1)))


def plan(job: str, generation: int = 2) -> Plan:
    return Plan.fused(job, "u", generation, "w1-a", "r", "a", 1, base_epoch=10, base_offset=3)


def commit(kafka: Kafka, job: str, partition: int, epoch: int, generation: int = 1) -> None:
    who = SinkIdentity(job, "u", 1, "op", partition, ledger=partition, after_epoch=10)
    sink = SinkSession(who, kafka.transactions, kafka.ledger(), kafka.topics)
    sink.commit(epoch, 100 + epoch, generation, [SinkBatch(kafka.topic(), [b"k"], [b"v"])])
    sink.close()


def left_open(kafka: Kafka, job: str, partition: int, epoch: int) -> Transaction:
    """What an owner leaves that dies between its ledger record and its commit."""
    name = names.transactional_id(job, 1, "op", partition)
    found = kafka.transactions.acquire(name, BATCH_BYTES_MAX, 20)
    found.begin()
    record = LedgerRecord("u", 1, "op", partition, 1, epoch, 100 + epoch, ())
    found.send(PartitionBatch(names.ledger(job), partition, [None], [codec.encode(record)]))
    found.flush(20)
    return found


def test_each_partition_is_at_its_last_commit_else_at_the_base(kafka: Kafka) -> None:
    job = kafka.job()
    commit(kafka, job, 0, 11)
    commit(kafka, job, 0, 12)
    found = committed_epochs(plan(job), LAYOUT, kafka.transactions, kafka.ledger())
    assert found == {5: 12, 6: 10}


def test_an_open_transaction_of_the_old_owner_is_ended_and_never_counts(kafka: Kafka) -> None:
    job = kafka.job()
    commit(kafka, job, 1, 11)
    old = left_open(kafka, job, 1, 12)
    started_s = time.monotonic()
    found = committed_epochs(plan(job), LAYOUT, kafka.transactions, kafka.ledger())
    assert found == {5: 10, 6: 11}
    assert time.monotonic() - started_s < TRANSACTION_TIMEOUT_MS / 1000  # the broker's own end
    with pytest.raises(PerseidError):
        old.commit(20)
    last = kafka.ledger().last(names.ledger(job), 1, timeout_s=20)
    assert last is not None and last.epoch == 11


def test_a_newer_generation_fences(kafka: Kafka) -> None:
    job = kafka.job()
    commit(kafka, job, 0, 11, generation=3)
    with pytest.raises(FencedError, match="generation 3"):
        committed_epochs(plan(job), LAYOUT, kafka.transactions, kafka.ledger())
    again = replace(plan(job), generation=4)
    assert committed_epochs(again, LAYOUT, kafka.transactions, kafka.ledger())[5] == 11
