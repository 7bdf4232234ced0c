"""A replica's audit on a model of Kafka: what a primary commits, read and compared."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from perseid.engine.comparison import WAITING_MAX, Unequal
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.errors import Diverged, PermanentError, ReplayDataLost, RetryableError
from perseid.jobs.model.layout import build
from perseid.records import JobEntry, Plan
from perseid.testing.kafka import (
    FakeColumnReader,
    FakeLogReader,
    FakeTopics,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import names
from perseid.topics.columns import Records
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import SinkWindow, Token
from perseid.topics.transactions import SinkBatch
from perseid.worker.sink import audit
from perseid.worker.sink.audit import LedgerAudit
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.coordinator import job_spec

LAYOUT = build(job_spec(parallelism=2), 1)
PLAN = Plan.fused("job", "u", 5, "w1-a", "r", "archive", 1, 0, 0).with_replica("whole", "w2-a", 6)
LEDGER, TOKENS = names.ledger("job"), names.tokens("job")
TASKS = [task for task in LAYOUT.ledger_tasks if task.ledger is not None]


class Reader(FakeColumnReader):
    """Notes what was read; `failing`: raised by the next reads."""

    def __init__(self, kafka: ModelKafka) -> None:
        super().__init__(kafka)
        self.ranges: list[tuple[int, int, int]] = []
        self.failing: Exception | None = None
        self.closed = threading.Event()

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        self.ranges.append((partition, start, end))
        if self.failing is not None:
            raise self.failing
        return super().read(topic, partition, start, end)

    def close(self) -> None:
        self.closed.set()


@dataclass
class Pair:
    """A primary's sinks, and a replica's, with its audit once it has begun."""

    kafka: ModelKafka = field(default_factory=ModelKafka)

    def __post_init__(self) -> None:
        self.topics = FakeTopics(self.kafka)
        self.topics.create(LEDGER, len(TASKS), {})
        self.topics.create(TOKENS, 1, {})
        self.topics.create("out", 2, {})
        self.primary, self.replica = self.sinks(), self.sinks()
        self.reader = Reader(self.kafka)
        self.tokens(5)  # before the replica's life

    def tokens(self, count: int) -> None:
        for _ in range(count):
            self.kafka.append((TOKENS, 0), None, b"a token")

    def sinks(self) -> list[SinkSession]:
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        whos = [
            SinkIdentity("job", "u", 1, t.operator, t.partition, t.ledger or 0, 0) for t in TASKS
        ]
        return [
            SinkSession(who, FakeTransactions(self.kafka), ledger, self.topics,
                        clock=self.kafka.clock) for who in whos
        ]  # fmt: skip

    def begun(self) -> LedgerAudit:
        return LedgerAudit(PLAN.of_one(PLAN.replicas[0]), LAYOUT, self.reader, self.topics)

    def commit(self, epoch: int, *values: bytes, generation: int = 5) -> None:
        for sink in self.primary:
            sink.commit(epoch, epoch, generation, batches(values))

    def make(self, epoch: int, *values: bytes) -> tuple[EpochOrder, TaskReport]:
        token = Token(1, "u", epoch, epoch - 1, "r", 1, (), 1_000)
        order = EpochOrder(token, epoch, None, generation=6, muted=True)
        made = {
            task.gid: PartitionReport(made=sink.compare(epoch, batches(values)))
            for task, sink in zip(TASKS, self.replica, strict=True)
        }
        return order, TaskReport(epoch, partitions=made)


def batches(values: tuple[bytes, ...]) -> list[SinkBatch]:
    return [SinkBatch("out", [b"k%d" % i for i in range(len(values))], list(values))]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_what_is_equal_passes_whichever_side_is_first(pair: Pair) -> None:
    pair.commit(1, b"x")
    pair.commit(2, b"x")
    audit = pair.begun()
    for epoch in range(1, 9):  # it runs two that were committed before it began
        audit.ran(*pair.make(epoch, b"a%d" % epoch, b"b"))
        if epoch > 2:
            pair.commit(epoch, b"a%d" % epoch, b"b", generation=5 if epoch < 6 else 7)
        assert audit.look()
        assert audit.judged() == []
    assert audit._comparison.waiting == ()


def test_other_outputs_end_it_with_their_place(pair: Pair) -> None:
    audit = pair.begun()
    audit.ran(*pair.make(1, b"a"))
    audit.ran(*pair.make(2, b"a"))
    pair.commit(1, b"a")
    assert audit.look()
    pair.commit(2, b"A")
    with pytest.raises(Diverged, match=r"operator \w+, partition 0, epoch 2, out\[\d\]"):
        audit.look()
    late = pair.begun()
    pair.commit(3, b"c")
    late.ran(*pair.make(2, b"a"))
    assert late.look()
    with pytest.raises(Diverged, match="epoch 3"):
        late.ran(*pair.make(3, b"C"))


def test_it_reads_only_what_something_waits_for(pair: Pair) -> None:
    audit = pair.begun()
    for epoch in range(1, 5):
        pair.commit(epoch, b"a")
    assert audit.look()
    assert pair.reader.ranges == []
    audit.ran(*pair.make(1, b"a"))
    assert audit.look()
    assert {partition for partition, _, _ in pair.reader.ranges} == {t.ledger for t in TASKS}
    read = list(pair.reader.ranges)
    audit.ran(*pair.make(2, b"a"))  # its records are there
    assert audit.look()
    assert pair.reader.ranges == read


def test_a_replica_that_is_late_reads_the_ledger_in_parts_and_misses_none(pair: Pair) -> None:
    audit = pair.begun()
    count = WAITING_MAX + 40
    pair.tokens(count)
    for epoch in range(1, count):
        pair.commit(epoch, b"a%d" % epoch)
    for epoch in range(1, count):
        audit.ran(*pair.make(epoch, b"a%d" % epoch))
        assert audit.look()
    assert audit.judged() == []
    assert audit._comparison.waiting == ()
    assert all(end - start <= WAITING_MAX for _, start, end in pair.reader.ranges)


def test_a_ledger_that_cannot_be_read_is_read_later(pair: Pair) -> None:
    audit = pair.begun()
    audit.ran(*pair.make(1, b"a"))
    pair.commit(1, b"b")
    pair.reader.failing = RetryableError("the broker is away")
    assert not audit.look()
    assert audit.judged() == []
    pair.reader.failing = None
    with pytest.raises(Diverged):
        audit.look()


def test_users_see_once_that_something_was_not_compared(pair: Pair) -> None:
    audit = pair.begun()
    pair.reader.failing = RetryableError("the broker is away")
    pair.commit(1, b"a")
    for epoch in range(1, WAITING_MAX + 20):
        audit.ran(*pair.make(epoch, b"a"))
    assert not audit.look()
    (warning,) = audit.judged()
    count = len(TASKS) * (19 - 4)  # the first four have tokens from before its life
    assert warning.startswith(f"{count} outputs of this replica were not compared")
    assert warning.endswith("the broker is away")
    audit.ran(*pair.make(WAITING_MAX + 20, b"a"))
    assert audit.judged() == []


def test_trimmed_records_are_counted_and_the_next_ones_compared(pair: Pair) -> None:
    audit = pair.begun()
    for epoch in range(1, 10):
        audit.ran(*pair.make(epoch, b"a"))
        pair.commit(epoch, b"a")
    real, lost = pair.reader.read, {task.ledger or 0 for task in TASKS}

    def read(topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        if partition in lost:
            lost.discard(partition)
            raise ReplayDataLost(topic, partition, start, 14)  # records of epochs 1 to 7
        return real(topic, partition, start, end)

    pair.reader.read = read  # type: ignore[method-assign]
    assert audit.look()
    assert audit.look()
    (warning,) = audit.judged()
    assert warning.startswith(f"{len(TASKS) * 3} outputs")  # tokens 5 to 7; earlier ones are older
    assert audit._comparison.waiting == ()


@pytest.mark.parametrize("error", [PermanentError("a damaged record"), ValueError("a defect")])
def test_whatever_ends_its_thread_ends_the_fragment(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(audit, "LOOK_S", 0.0)
    found = pair.begun()
    found.ran(*pair.make(1, b"a"))
    pair.commit(1, b"a")
    pair.reader.failing = error
    found.start()
    assert pair.reader.closed.wait(10.0)
    with pytest.raises(type(error), match=str(error)):
        found.judged()


def test_the_last_look_compares_what_no_look_has(pair: Pair) -> None:
    count = WAITING_MAX - 10
    found = pair.begun()
    pair.tokens(count)
    for epoch in range(1, count):
        found.ran(*pair.make(epoch, b"a"))
        pair.commit(epoch, b"b" if epoch == count - 2 else b"a")
    with pytest.raises(Diverged, match=f"epoch {count - 2}"):
        found.last()


def test_what_the_ledger_lacks_is_not_waited_for(pair: Pair) -> None:
    found = pair.begun()
    for epoch in range(1, 9):
        found.ran(*pair.make(epoch, b"a"))
        if epoch < 6:
            pair.commit(epoch, b"a")
    assert found.last() == []
    assert len(found._comparison.waiting) == len(TASKS)


def test_the_last_look_ends_the_thread(pair: Pair) -> None:
    found = pair.begun()
    found.start()
    found.ran(*pair.make(1, b"a"))
    pair.commit(1, b"a")
    assert found.last() == []
    assert pair.reader.closed.wait(10.0)


def test_the_last_look_raises_what_an_earlier_one_has_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LOOK_S", 0.0)
    found = pair.begun()
    found.ran(*pair.make(1, b"a"))
    pair.commit(1, b"b")
    found.start()
    assert pair.reader.closed.wait(10.0)
    with pytest.raises(Diverged):
        found.last()


def test_users_see_that_the_last_outputs_were_not_compared(pair: Pair) -> None:
    found = pair.begun()
    found.ran(*pair.make(1, b"a"))
    pair.commit(1, b"b")
    pair.reader.failing = RetryableError("the broker is away")
    (warning,) = found.last()
    assert warning.startswith("the last outputs of this replica were not compared")
    assert warning.endswith("the broker is away")


def test_its_thread_ends_with_it(pair: Pair) -> None:
    found = pair.begun()
    found.start()
    found.close()
    assert pair.reader.closed.wait(10.0)
    assert found.judged() == []


def test_it_begins_after_what_is_committed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends first, then the token log: a token from there on commits beyond those ends."""
    asked: list[Mapping[Any, int]] = []
    ends = pair.topics.ends

    def noted(places: Any, **more: Any) -> Any:
        asked.append(ends(places, **more))
        return asked[-1]

    pair.commit(1, b"a")
    monkeypatch.setattr(pair.topics, "ends", noted)
    pair.begun()
    assert [next(iter(found))[0] for found in asked] == [LEDGER, TOKENS]


@dataclass
class Approving:
    """Approves what differs in partition 0. `asked`: what it was asked about, and what is near."""

    asked: list[tuple[int, int, set[int]]] = field(default_factory=list)
    kept_from: int = 0
    failing: Exception | None = None

    def refused(self, one: Unequal, near: Sequence[SinkWindow]) -> str:
        if self.failing is not None:
            raise self.failing
        self.asked.append((one.epoch, one.partition, {window.count for window in near}))
        return "" if one.partition == 0 else "another value of n"

    def forget(self, before_epoch: int) -> None:
        self.kept_from = before_epoch


def gated(pair: Pair, approval: Approving) -> LedgerAudit:
    entry = JobEntry("job", "u", "r2", "archive-2", "running", 2, 0, gate=3)
    plan = PLAN.gated_by(entry, "w3-a", 7)
    assert plan.gated is not None
    return LedgerAudit(plan.of_one(plan.gated), LAYOUT, pair.reader, pair.topics, approval)


def differing(pair: Pair, epoch: int, partition: int = 0) -> tuple[EpochOrder, TaskReport]:
    """What that partition has made is another value than all have committed."""
    order, same = pair.make(epoch, b"a", b"b")
    _, other = pair.make(epoch, b"a", b"B")
    mine = {t.gid for t in TASKS if t.partition == partition}
    made = {
        gid: (other if gid in mine else same).partitions[gid] for gid in same.partitions
    }
    return order, TaskReport(epoch, partitions=made)


def test_epochs_of_which_all_differences_are_approved_count_as_equal(pair: Pair) -> None:
    approval = Approving()
    audit = gated(pair, approval)
    audit.ran(*pair.make(1, b"a", b"b"))
    audit.ran(*differing(pair, 2))
    pair.commit(1, b"a", b"b")
    pair.commit(2, b"a", b"b")
    assert audit.look()
    assert audit.equal == 2
    assert {epoch for epoch, _, _ in approval.asked} == {2}
    assert approval.asked[0][2] == {2}, "records of windows of that epoch and its neighbours"


def test_an_epoch_is_judged_once_all_ledgers_have_it(pair: Pair) -> None:
    approval = Approving()
    audit = gated(pair, approval)
    audit.ran(*differing(pair, 1))
    pair.primary[0].commit(1, 1, 5, batches((b"a", b"b")))
    assert audit.look()
    assert (approval.asked, audit.equal) == ([], 0)
    for sink in pair.primary[1:]:
        sink.commit(1, 1, 5, batches((b"a", b"b")))
    assert audit.look()
    assert (len(approval.asked), audit.equal) == (1, 1)


def test_a_difference_that_is_not_approved_ends_the_gate_with_its_place(pair: Pair) -> None:
    audit = gated(pair, Approving())
    pair.commit(1, b"a", b"b")
    audit.ran(*differing(pair, 1, partition=1))  # the ledger is ahead: no epoch waits for a look
    with pytest.raises(
        Diverged,
        match=r"operator \w+, partition 1, epoch 1, out\[\d\]: another value of n, which is not "
        r"approved\. The job stays as it is",
    ):
        audit.look()
    assert audit.equal == 0


def test_what_cannot_be_read_now_is_judged_later(pair: Pair) -> None:
    approval = Approving(failing=RetryableError("away"))
    audit = gated(pair, approval)
    audit.ran(*differing(pair, 1))
    pair.commit(1, b"a", b"b")
    assert not audit.look()
    assert (audit.judged(), audit.equal) == ([], 0)
    approval.failing = None
    assert audit.look()
    assert audit.equal == 1


def test_outputs_are_kept_until_they_are_compared(pair: Pair) -> None:
    approval = Approving()
    audit = gated(pair, approval)
    for epoch in (1, 2, 3):
        audit.ran(*differing(pair, epoch))
    assert audit.look()
    assert approval.kept_from == 1
    pair.commit(1, b"a", b"b")
    pair.commit(2, b"a", b"b")
    assert audit.look()
    assert (approval.kept_from, audit.equal) == (3, 2)
