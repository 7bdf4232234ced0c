"""A job that has committed some epochs, on a model of Kafka with two writers; its audit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from perseid.engine.comparison import Unequal
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import SinkSpec
from perseid.records import Deployment
from perseid.replay import tolerances
from perseid.replay.causes import Causes
from perseid.replay.ledgers import PastLedgers
from perseid.replay.looking import Look
from perseid.replay.sink_columns import Revision, SinkColumns
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
from perseid.worker.sink.kept_outputs import KeptOutputs
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.coordinator import job_spec

SPEC = job_spec(
    parallelism=2, sinks={"out": SinkSpec(input="counts", topic="out", format="json", key="value")}
)
LAYOUT = build(SPEC, 1)
TASKS = LAYOUT.ledger_tasks
LEDGER = names.ledger("job")
Row = dict[str, object]
ROWS: dict[int, list[Row]] = {
    epoch: [{"k": f"k{i}", "n": epoch + i, "x": 0.5} for i in range(6)] for epoch in range(1, 5)
}


@dataclass
class World:
    """A job that has committed ROWS, the same by each partition, and an audit of it."""

    folder: Path
    kafka: ModelKafka = field(default_factory=ModelKafka)

    def __post_init__(self) -> None:
        self.topics = FakeTopics(self.kafka)
        self.topics.create(LEDGER, len(TASKS), {})
        self.topics.create("out", 1, {})
        self.sinks = {task.gid: self.session(index) for index, task in enumerate(TASKS)}
        for epoch, rows in ROWS.items():
            for sink in self.sinks.values():
                sink.commit(epoch, 10 + epoch, 1, batches(rows))
        self.reader = FakeColumnReader(self.kafka)
        self.columns = SinkColumns(Deployment.model_construct(), Revision(SPEC, self.folder))
        self.ledgers = PastLedgers("job", "u", LAYOUT, 11, self.reader, self.topics)

    def session(self, index: int) -> SinkSession:
        task = TASKS[index]
        who = SinkIdentity("job", "u", 1, task.operator, task.partition, task.ledger or 0, 0)
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        return SinkSession(
            who, FakeTransactions(self.kafka), ledger, self.topics, clock=self.kafka.clock
        )

    def look(self, allowed: list[str] | None = None) -> Look:
        causes, limits = Causes(), tolerances.of_options(allowed or [])
        return Look(self.columns, self.folder, self.reader, causes, limits)

    def unequal(self, epoch: int, rows: list[Row], gid: int = TASKS[0].gid) -> list[Unequal]:
        """The audit makes `rows` in that partition, and in all others what they committed."""
        token = Token(1, "u", epoch, 0, "r", 1, (), 1_000)
        order = EpochOrder(token, 10 + epoch, None, muted=True)
        reports = {}
        for own, sink in self.sinks.items():
            kept = KeptOutputs(sink, self.folder)
            given = batches(rows if own == gid else ROWS[epoch])
            reports[own] = PartitionReport(made=kept.compare(epoch, given))
        return self.ledgers.ran(order, TaskReport(epoch, partitions=reports))


def batches(rows: list[Row]) -> list[SinkBatch]:
    keys = [str(row["k"]).encode() for row in rows]
    return [SinkBatch("out", keys, [json.dumps(row).encode() for row in rows])]


def changed(epoch: int, row: int, **values: object) -> list[Row]:
    return [one | values if at == row else one for at, one in enumerate(ROWS[epoch])]
