"""A muted epoch by the worker's own steps: the same state and outputs, and nothing leaves it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from perseid.engine.comparison import Comparison
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.records import PAIR
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.owners import adopt
from perseid.testing.kafka import (
    FakeLogReader,
    FakeTopics,
    FakeTransaction,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import codec, names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import LedgerRecord, Token
from perseid.worker.checkpoint import parts
from perseid.worker.checkpoint.parts import PartOrder, StateCopy
from perseid.worker.epoch import flow, tasks
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.fragment_contexts import DEPLOYMENT, context_of

JOB = """\
name: pairs
parallelism: 2
sources:
  in: {topic: in, format: json, columns: {key: string, n: int64}}
operators:
  sums: {input: in, key: key, use: "m:Sums"}
  again: {input: sums, key: key, use: "m:Sums", parallelism: 1}
sinks:
  raw: {input: in, topic: raw, format: json, order: free}
  sums: {input: sums, topic: sums, format: json, key: key}
  again: {input: again, topic: again, format: json, key: key, headers: true}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

class Sums(Operator):
    output = pa.schema([("key", pa.string()), ("n", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        out.emit(self.total.add(batch["key"], n=batch["n"]))
"""
TOPICS = {"raw": 3, "sums": 4, "again": 2}
FROM = 100


class CountedTransactions(FakeTransactions):
    """Notes which ids were acquired."""

    def __init__(self, kafka: ModelKafka) -> None:
        super().__init__(kafka)
        self.acquired: list[str] = []

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> FakeTransaction:  # fmt: skip
        self.acquired.append(transactional_id)
        return super().acquire(transactional_id, batch_bytes, timeout_s, lasting_s)


@dataclass
class Cluster:
    """A model Kafka, and two copies of a fragment in this process that take turns."""

    folder: Path
    kafka: ModelKafka = field(default_factory=ModelKafka)
    parts: list[int] = field(default_factory=list)  # epochs of checkpoint parts that were ordered
    folds: list[int] = field(default_factory=list)  # epochs after which a log was folded

    def __post_init__(self) -> None:
        self.topics = FakeTopics(self.kafka)
        self.transactions = CountedTransactions(self.kafka)
        deployment = DEPLOYMENT.model_copy(update={"state": str(self.folder.parent / "state")})
        context = context_of(self.folder, deployment=deployment)
        self.contexts = {
            False: context,
            True: replace(context, generation=2, incarnation="w2-a", log=PAIR),
        }
        self.layout = context.layout
        for topic, count in TOPICS.items():
            self.topics.create(topic, count, {})
        self.topics.create(names.ledger("pairs"), len(self.layout.ledger_tasks), {})
        self.processes: dict[bool, Any] = {}
        for muted, one in self.contexts.items():
            root, number = one.deployment.state, one.layout.number
            adopt(LocalFiles(), root, "u", number, one.owner, one.replica)
            tasks._processes.clear()
            for task in one.layout.stateful_tasks:
                log = tasks.log_of(one, task)
                log.create()
                log.write_snapshot(0, 1, FROM, {})
            self.processes[muted] = tasks.process_of(one)

    def sink(self, task: Any) -> SinkSession:
        who = SinkIdentity("pairs", "u", 1, task.operator, task.partition, task.ledger, 0)
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        return SinkSession(who, self.transactions, ledger, self.topics, clock=self.kafka.clock)

    def run(
        self, epoch: int, splits: list[pa.Table], *, muted: bool, checkpoint: bool = False
    ) -> Mapping[int, PartitionReport]:
        context = self.contexts[muted]
        tasks._processes.clear()
        tasks._processes["u", context.fragment] = self.processes[muted]
        now = self.order(epoch, muted=muted, checkpoint=checkpoint)
        rows = [
            row for split, table in enumerate(splits)
            for row in flow.rows_of(context, now.token, "in", table, split)
        ]  # fmt: skip
        done = TaskReport(epoch)
        for level in range(1, context.layout.levels + 1):
            rows, report = tasks.run_rows(context, now, rows, level)
            done = done.merged(report)
        assert rows == []
        assert sorted(done.partitions) == [task.gid for task in context.layout.tasks]
        return done.partitions

    def order(self, epoch: int, *, muted: bool, checkpoint: bool = False) -> EpochOrder:
        at, splits = FROM + epoch, ((), ())
        token = Token(1, "u", epoch, at - 1, "r", 1, splits, 1_000 * epoch, checkpoint=checkpoint)
        generation = self.contexts[muted].generation
        return EpochOrder(token, at, None, generation=generation, muted=muted)

    def fold(self, part: PartOrder, copy: StateCopy | None) -> None:
        self.folds.append(part.epoch)
        if copy is not None:
            copy.write(LocalFiles(), part)
        else:
            parts.fold(part, LocalFiles())

    def ledger(self) -> list[LedgerRecord]:
        topic = names.ledger("pairs")
        return [
            codec.decode_ledger((topic, task.ledger or 0), r.offset, r.value or b"")
            for task in self.layout.ledger_tasks
            for r in self.kafka.readable(topic, task.ledger or 0, 0, 10**9)
        ]

    def written(self) -> int:
        places = [(topic, p) for topic, count in TOPICS.items() for p in range(count)]
        places += [(names.ledger("pairs"), t.ledger or 0) for t in self.layout.ledger_tasks]
        return sum(self.kafka.log(*place).end for place in places)

    def states(self, *, muted: bool) -> list[list[dict[str, Any]]]:
        partitions = self.processes[muted].partitions
        return [
            sorted(partitions.states[t.gid].live["total"].snapshot().to_pylist(), key=str)
            for t in self.layout.stateful_tasks
        ]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "m.py").write_text(CODE)
    (folder / "job.yaml").write_text(JOB)
    found = Cluster(folder)
    monkeypatch.setattr(tasks.TaskExecutor, "new_sink", found.sink)
    monkeypatch.setattr(
        tasks.TaskExecutor, "upload", lambda _self, part, _copy: found.parts.append(part.epoch)
    )
    monkeypatch.setattr(tasks.TaskExecutor, "fold", lambda _self, *of: found.fold(*of))
    return found


def splits(chance: Random) -> list[pa.Table]:
    return [
        pa.table({"key": [f"k{chance.randrange(9)}" for _ in range(7)],
                  "n": [chance.randrange(6) for _ in range(7)]})
        for _ in range(2)
    ]  # fmt: skip


def test_it_acquires_nothing_and_sends_nothing(cluster: Cluster) -> None:
    chance = Random(1)
    for epoch in (1, 2):
        reports = cluster.run(epoch, splits(chance), muted=True)
        assert {r.sent for r in reports.values()} == {0}
        with_sinks = {t.gid for t in cluster.layout.ledger_tasks}
        assert {gid for gid, r in reports.items() if r.made is not None} == with_sinks
        assert sum(len(r.made or ()) for r in reports.values()) > 3
    assert (cluster.transactions.acquired, cluster.written()) == ([], 0)
    cluster.run(1, splits(Random(1)), muted=False)
    assert cluster.transactions.acquired
    assert cluster.written() > 0


@pytest.mark.parametrize("muted", [False, True])
def test_only_a_primary_orders_checkpoint_parts(cluster: Cluster, muted: bool) -> None:
    cluster.run(1, splits(Random(1)), muted=muted, checkpoint=True)
    each = [1] * len(cluster.layout.stateful_tasks)
    assert (cluster.parts, cluster.folds) == (([], each) if muted else (each, []))


def test_the_log_of_a_replica_does_not_grow_without_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part's order gives it a snapshot, without which nothing can be collected."""
    monkeypatch.setattr(parts, "LOG_FILES", 5)
    logs = [tasks.log_of(cluster.contexts[True], task) for task in cluster.layout.stateful_tasks]
    for epoch in range(1, 31):
        for muted in (False, True):
            given = splits(Random(epoch))
            cluster.run(epoch, given, muted=muted, checkpoint=epoch % 3 == 0)
        for log in logs:
            log.collect(epoch - 3)
            assert len(log.epochs()) <= 5 + 3 + 3
    assert all(log.snapshots()[0] > 0 for log in logs)
    cluster.processes[True].partitions.states.clear()  # another process loads the log
    for task in cluster.layout.stateful_tasks:
        cluster.processes[True].partitions.state(task).bring_to(30)
    assert cluster.states(muted=True) == cluster.states(muted=False)


@pytest.mark.parametrize("first", [False, True])
def test_state_and_outputs_are_those_of_the_primary(cluster: Cluster, first: bool) -> None:
    """Whichever runs an epoch first; what a primary commits passes the comparison."""
    comparison = Comparison("u", cluster.layout, FROM)
    for epoch in range(1, 5):
        given = splits(Random(epoch)) if epoch != 3 else [table.slice(0, 0) for table in
                                                          splits(Random(3))]  # fmt: skip
        for muted in (first, not first):
            reports = cluster.run(epoch, given, muted=muted)
            if muted:
                order = cluster.order(epoch, muted=True)
                assert comparison.ran(order, TaskReport(epoch, partitions=reports)) == []
            else:
                assert all(report.made is None for report in reports.values())
        assert cluster.states(muted=True) == cluster.states(muted=False)
    records = cluster.ledger()
    assert len(records) == 4 * len(cluster.layout.ledger_tasks)
    assert sum(len(record.outputs) for record in records) > 12
    for record in records:
        assert comparison.committed(record) == []
    assert (comparison.waiting, comparison.unchecked) == ((), 0)


def test_a_replica_that_computes_something_else_is_found(cluster: Cluster) -> None:
    comparison = Comparison("u", cluster.layout, FROM)
    given = splits(Random(1))
    other = [given[0].set_column(1, "n", pa.array([7] * 7)), given[1]]
    cluster.run(1, given, muted=False)
    reports = cluster.run(1, other, muted=True)
    assert comparison.ran(cluster.order(1, muted=True), TaskReport(1, partitions=reports)) == []
    unequal = [one for record in cluster.ledger() for one in comparison.committed(record)]
    assert re.match(r"operator \w+, partition \d, epoch 1, \w+\[\d\]", str(unequal[0]))
