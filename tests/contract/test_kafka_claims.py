"""Claimed ledgers: a task of an earlier owner commits nothing any more, wherever it was paused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from perseid.coordinator.ledger_claims import claim
from perseid.errors import FencedError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import Plan
from perseid.topics import names
from perseid.topics.admin import Partition
from perseid.topics.records import LedgerRecord
from perseid.topics.transactions import PartitionBatch, SinkBatch, Transaction, Written
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.kafka_handle import Kafka

LAYOUT = Layout(1, (
    Task(5, "op", 0, 1, True, 0), Task(6, "op", 1, 1, True, 1), Task(7, "log", 0, 1, True, None),
))  # fmt: skip
OLD, CLAIMED = 1, 2


def plan(job: str) -> Plan:
    return Plan.fused(job, "u", OLD, None, "r", "a", 1, base_epoch=10, base_offset=3)


class Held:
    """Transactions of a task that pauses once, in front of a step, until `meanwhile` ends."""

    def __init__(self, kafka: Kafka, step: str, meanwhile: Callable[[], None]) -> None:
        self._kafka, self._step, self._meanwhile = kafka, step, meanwhile

    def reach(self, step: str) -> None:
        if step == self._step:
            self._step = ""
            self._meanwhile()

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Makes no difference."""

    def longest_s(self) -> float:
        return self._kafka.transactions.longest_s()

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> Transaction:  # fmt: skip
        self.reach("acquire")
        found = self._kafka.transactions.acquire(transactional_id, batch_bytes, timeout_s)
        return HeldTransaction(self, found)


class HeldTransaction:
    def __init__(self, held: Held, real: Transaction) -> None:
        self._held, self._real, self._flushes = held, real, 0

    def begin(self) -> None:
        self._held.reach("begin")
        self._real.begin()

    def send(self, batch: PartitionBatch) -> None:
        self._real.send(batch)

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        self._flushes += 1  # first the outputs, then the ledger record
        self._held.reach(f"flush {self._flushes}")
        return self._real.flush(timeout_s)

    def idle_s(self) -> float | None:
        return self._real.idle_s()

    def commit(self, timeout_s: float) -> bool:
        self._held.reach("commit")
        return self._real.commit(timeout_s)

    def close(self) -> None:
        self._real.close()


def session(kafka: Kafka, job: str, held: Held | None = None) -> SinkSession:
    who = SinkIdentity(job, "u", 1, "op", 0, ledger=0, after_epoch=10)
    return SinkSession(who, held or kafka.transactions, kafka.ledger(), kafka.topics)


def last(kafka: Kafka, job: str, partition: int = 0) -> LedgerRecord | None:
    return kafka.ledger().last(names.ledger(job), partition, timeout_s=20)


@pytest.mark.parametrize("step", ["acquire", "begin", "flush 1", "flush 2", "commit"])
def test_a_task_that_was_paused_is_fenced(kafka: Kafka, step: str) -> None:
    job, topic = kafka.job(), kafka.topic()
    session(kafka, job).commit(11, 100, OLD, [SinkBatch(topic, [b"k"], [b"first"])])

    def claimed() -> None:
        claim(plan(job), LAYOUT, CLAIMED, kafka.transactions, kafka.ledger())

    late = session(kafka, job, Held(kafka, step, claimed))
    with pytest.raises(FencedError, match="generation 2, this writer 1"):
        late.commit(12, 101, OLD, [SinkBatch(topic, [b"k"], [b"late"])])
    assert kafka.values(topic) == [b"first"]
    found = last(kafka, job)
    assert found is not None
    assert (found.epoch, found.token_offset, found.generation) == (11, 100, CLAIMED)
    session(kafka, job).commit(12, 105, CLAIMED, [SinkBatch(topic, [b"k"], [b"second"])])
    assert kafka.values(topic) == [b"first", b"second"]


def test_what_was_committed_before_stays_and_is_reported(kafka: Kafka) -> None:
    job, topic = kafka.job(), kafka.topic()
    late = session(kafka, job)
    late.commit(11, 100, OLD, [SinkBatch(topic, [b"k"], [b"in time"])])
    claim(plan(job), LAYOUT, CLAIMED, kafka.transactions, kafka.ledger())
    found = last(kafka, job)
    assert found is not None
    assert (found.epoch, found.generation, found.outputs) == (11, CLAIMED, ())
    assert session(kafka, job).commit(11, 100, CLAIMED, []).skipped
    with pytest.raises(FencedError):
        late.commit(12, 101, OLD, [])


def test_an_empty_ledger_gives_the_plans_base(kafka: Kafka) -> None:
    job = kafka.job()
    claim(plan(job), LAYOUT, CLAIMED, kafka.transactions, kafka.ledger())
    assert last(kafka, job, 1) == LedgerRecord("u", 1, "op", 1, CLAIMED, 10, 3)
    with pytest.raises(FencedError):
        session(kafka, job).commit(11, 100, OLD, [])
    assert not session(kafka, job).commit(11, 100, CLAIMED, []).skipped


def test_a_ledger_of_another_job_under_the_name_gives_the_plans_base(kafka: Kafka) -> None:
    job = kafka.job()
    who = SinkIdentity(job, "before", 1, "op", 0, ledger=0)
    SinkSession(who, kafka.transactions, kafka.ledger(), kafka.topics).commit(7, 90, OLD, [])
    claim(plan(job), LAYOUT, CLAIMED, kafka.transactions, kafka.ledger())
    assert last(kafka, job) == LedgerRecord("u", 1, "op", 0, CLAIMED, 10, 3)


def test_a_claim_under_a_claim_leaves_the_ledger_as_it_is(kafka: Kafka) -> None:
    """A leader that was paused may claim late: a new owner's generation is never lowered."""
    job, topic = kafka.job(), kafka.topic()
    session(kafka, job).commit(11, 100, 3, [SinkBatch(topic, [b"k"], [b"v"])])
    before = last(kafka, job)
    assert before is not None
    for generation in (CLAIMED, 3):
        claim(plan(job), LAYOUT, generation, kafka.transactions, kafka.ledger())
        assert last(kafka, job) == before
    claim(plan(job), LAYOUT, 4, kafka.transactions, kafka.ledger())
    assert last(kafka, job) == replace(before, generation=4, outputs=())
