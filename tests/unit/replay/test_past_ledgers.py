"""What an audit has made, compared with ledgers that sinks have written on a model of Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from perseid.engine.comparison import WAITING_MAX, Unequal
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.errors import RefusedError
from perseid.jobs.model.layout import build
from perseid.replay.ledgers import PastLedgers
from perseid.testing.kafka import (
    FakeColumnReader,
    FakeLogReader,
    FakeTopics,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import Token
from perseid.topics.transactions import SinkBatch
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.coordinator import job_spec

LAYOUT = build(job_spec(parallelism=2), 1)
TASKS = LAYOUT.ledger_tasks
LEDGER = names.ledger("job")
EPOCHS = WAITING_MAX + 30  # more than one read of a ledger


@dataclass
class Past:
    """A job whose partitions have committed epochs; the token of epoch e is at offset 10 + e."""

    kafka: ModelKafka = field(default_factory=ModelKafka)
    values: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)  # by epoch and gid

    def __post_init__(self) -> None:
        self.topics = FakeTopics(self.kafka)
        self.topics.create(LEDGER, len(TASKS), {})
        self.topics.create("out", 3, {})
        self.sinks = {task.gid: self.sink(index) for index, task in enumerate(TASKS)}

    def sink(self, index: int) -> SinkSession:
        task = TASKS[index]
        who = SinkIdentity("job", "u", 1, task.operator, task.partition, task.ledger or 0, 0)
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        return SinkSession(
            who, FakeTransactions(self.kafka), ledger, self.topics, clock=self.kafka.clock
        )

    def commit(self, epochs: range, chance: Random) -> None:
        for epoch in epochs:
            for gid, sink in self.sinks.items():
                values = [b"%d" % chance.randrange(99) for _ in range(chance.randrange(3))]
                self.values[epoch, gid] = values
                sink.commit(epoch, 10 + epoch, 1, batches(values))

    def ledgers(self, first: int) -> PastLedgers:
        reader = FakeColumnReader(self.kafka)
        return PastLedgers("job", "u", LAYOUT, 10 + first, reader, self.topics)

    def again(
        self, past: PastLedgers, epoch: int, changed: dict[int, list[bytes]] | None = None
    ) -> list[Unequal]:
        """An audit runs the epoch; `changed`: what it makes otherwise, by gid."""
        order = EpochOrder(Token(1, "u", epoch, 0, "r", 1, (), 1_000), 10 + epoch, None, muted=True)
        reports = {
            gid: PartitionReport(
                made=sink.compare(epoch, batches((changed or {}).get(gid, self.values[epoch, gid])))
            )
            for gid, sink in self.sinks.items()
        }
        return past.ran(order, TaskReport(epoch, partitions=reports))


def batches(values: list[bytes]) -> list[SinkBatch]:
    return [SinkBatch("out", [b"k%d" % i for i in range(len(values))], values)]


def test_all_that_was_committed_is_read_and_equal() -> None:
    past = Past()
    past.commit(range(1, EPOCHS), Random(1))
    ledgers = past.ledgers(first=3)
    for epoch in range(3, EPOCHS):
        assert past.again(ledgers, epoch) == []
    records = sum(len(past.values[e, gid]) for e in range(3, EPOCHS) for gid in past.sinks)
    assert ledgers.comparison.records == {"out": records}


def test_a_long_ledger_is_read_from_near_the_first_epoch_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past, last, looked = Past(), 8 * WAITING_MAX, list[int]()
    past.commit(range(1, last + 1), Random(3))
    read = FakeColumnReader.read

    def counted(self: FakeColumnReader, topic: str, number: int, start: int, end: int) -> object:
        looked.append(end - start)
        return read(self, topic, number, start, end)

    monkeypatch.setattr(FakeColumnReader, "read", counted)
    for first in (2, WAITING_MAX, last // 2, last - 1):
        looked.clear()
        ledgers = past.ledgers(first)
        assert past.again(ledgers, first) == []
        assert sum(looked) < 3 * WAITING_MAX * len(TASKS)
        before = [w for gid in past.sinks for w in past.values[first - 1, gid]]
        assert sum(w.count for w in ledgers._windows.get(first - 1, ())) == len(before)


def test_every_difference_is_found_and_the_others_are_equal() -> None:
    past, chance = Past(), Random(2)
    past.commit(range(1, 40), chance)
    ledgers = past.ledgers(first=1)
    for epoch in range(1, 40):
        changed = {
            gid: [b"other", *past.values[epoch, gid]] for gid in past.sinks if chance.random() < 0.2
        }
        found = past.again(ledgers, epoch, changed)
        places = {(one.operator, one.partition) for one in found}
        tasks = {task.gid: (task.operator, task.partition) for task in TASKS}
        assert places == {tasks[gid] for gid in changed}
        assert {one.epoch for one in found} <= {epoch}


def test_windows_of_the_epoch_and_its_neighbours_are_known() -> None:
    past = Past()
    past.commit(range(1, 30), Random(3))
    ledgers = past.ledgers(first=1)
    for epoch in range(1, 29):
        past.again(ledgers, epoch)
        records = sum(window.count for window in ledgers.near(epoch))
        wanted = sum(len(past.values.get((e, gid), ())) for e in (epoch - 1, epoch, epoch + 1)
                     for gid in past.sinks)  # fmt: skip
        assert records == wanted


def test_an_epoch_that_is_not_committed_is_refused() -> None:
    past = Past()
    past.commit(range(1, 5), Random(4))
    ledgers = past.ledgers(first=1)
    for epoch in range(1, 5):
        past.again(ledgers, epoch)
    past.values |= {(5, gid): [] for gid in past.sinks}
    with pytest.raises(RefusedError, match=r"does not have epoch 5 .* ends at offset"):
        past.again(ledgers, 5)


def test_a_trimmed_ledger_is_refused() -> None:
    past = Past()
    past.commit(range(1, 20), Random(5))
    ends = past.topics.ends([(LEDGER, p) for p in range(len(TASKS))])
    past.topics.delete_records({place: end - 4 for place, end in ends.items()})
    with pytest.raises(RefusedError, match="a later epoch follows"):
        past.again(past.ledgers(first=3), 3)
