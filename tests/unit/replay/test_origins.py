"""Which epoch wrote a record, by ledgers that sinks have written on a model of Kafka."""

from __future__ import annotations

import pyarrow as pa
import pytest

from perseid.errors import RefusedError, UsageError
from perseid.jobs.model.layout import build
from perseid.replay import origins
from perseid.testing.kafka import (
    FakeColumnReader,
    FakeLogReader,
    FakeTopics,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import names
from perseid.topics.ledger import LedgerReader
from perseid.topics.transactions import PartitionBatch, SinkBatch
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.coordinator import job_spec

TASKS = build(job_spec(parallelism=2), 1).ledger_tasks
LEDGER = names.ledger("job")
WRITERS = [origins.Writer("job", "u")]


class Past:
    """Three epochs of a job, and a record of another program after each of them."""

    def __init__(self) -> None:
        self.kafka = ModelKafka()
        self.topics, self.reader = FakeTopics(self.kafka), FakeColumnReader(self.kafka)
        self.topics.create(LEDGER, len(TASKS), {})
        self.topics.create("out", 1, {})
        sinks = [self.sink(index) for index in range(len(TASKS))]
        other = FakeTransactions(self.kafka)
        for epoch in (1, 2, 3):
            for index, sink in enumerate(sinks):
                values = [b"%d %d %d" % (epoch, index, n) for n in range(2)]
                sink.commit(epoch, 10 + epoch, 1, [SinkBatch("out", [b"k"] * 2, values)])
            self.foreign(other, b"other %d" % epoch)

    def sink(self, index: int) -> SinkSession:
        task = TASKS[index]
        who = SinkIdentity("job", "u", 1, task.operator, task.partition, task.ledger or 0, 0)
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        return SinkSession(
            who, FakeTransactions(self.kafka), ledger, self.topics, clock=self.kafka.clock
        )

    def foreign(self, other: FakeTransactions, value: bytes) -> None:
        transaction = other.acquire("other", 1000, 1.0)
        column = pa.array([value], pa.binary())
        transaction.begin()
        transaction.send(PartitionBatch("out", 0, column, column))
        transaction.flush(1.0)
        transaction.commit(1.0)

    def records(self) -> list[tuple[int, bytes]]:
        """All records of the topic, with their offsets."""
        end = self.topics.ends([("out", 0)])["out", 0]
        return [
            (one.offset(), one.value() or b"")
            for records in self.reader.read("out", 0, 0, end) for one in records
        ]  # fmt: skip


def found(past: Past, offset: int) -> list[origins.Origin]:
    record = origins.record(past.reader, past.topics, "out", 0, offset)
    among = origins.origins(record, WRITERS, past.reader, past.topics)
    sure, open_ = origins.own(record, among, past.reader)
    assert not open_
    return sure


@pytest.mark.parametrize("text", ["out", "out:0", "out:x:1", ":0:1", "a:0:1:2", "o:0:-1", "o:0:²"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="TOPIC:PARTITION:OFFSET"):
        origins.place(text)


def test_a_place() -> None:
    assert origins.place("a.b-c:3:120") == ("a.b-c", 3, 120)


def test_each_record_is_of_the_epoch_that_wrote_it() -> None:
    past = Past()
    seen = 0
    for offset, value in past.records():
        if value.startswith(b"other"):
            with pytest.raises(RefusedError, match="another program wrote it"):
                found(past, offset)
            continue
        epoch, index, _ = map(int, value.split())
        (origin,) = found(past, offset)
        assert (origin.job, origin.epoch) == ("job", epoch)
        task = TASKS[index]
        assert (origin.operator, origin.partition) == (task.operator, task.partition)
        seen += 1
    assert seen == 3 * len(TASKS) * 2


def test_offsets_without_a_record_are_refused() -> None:
    past = Past()
    written = {offset for offset, _ in past.records()}
    end = past.topics.ends([("out", 0)])["out", 0]
    (marker, *_) = set(range(end)) - written
    for topic, partition, offset, why in (
        ("out", 0, marker, "no record at offset"),
        ("out", 0, end + 5, "ends at offset"),
        ("out", 1, 0, "partitions 0 to 0"),
        ("none", 0, 0, "no topic none"),
    ):
        with pytest.raises(RefusedError, match=why):
            origins.record(past.reader, past.topics, topic, partition, offset)


def test_a_trimmed_ledger_knows_no_epoch_any_more() -> None:
    past = Past()
    for number in range(len(TASKS)):
        log = past.kafka.topics[LEDGER].logs[number]
        log.trim(log.end)
    offset, _ = past.records()[0]
    with pytest.raises(RefusedError, match="trimmed with checkpoints"):
        found(past, offset)
