"""Outputs that differ are looked at record by record, on a model of Kafka with two writers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perseid.engine.comparison import Unequal
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import SinkSpec
from perseid.records import Deployment
from perseid.replay import tolerances
from perseid.replay.ledgers import PastLedgers
from perseid.replay.looking import Look, by_ledger
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
        self.ledgers = PastLedgers("job", "u", LAYOUT, 11, self.reader, self.topics)

    def session(self, index: int) -> SinkSession:
        task = TASKS[index]
        who = SinkIdentity("job", "u", 1, task.operator, task.partition, task.ledger or 0, 0)
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        return SinkSession(
            who, FakeTransactions(self.kafka), ledger, self.topics, clock=self.kafka.clock
        )

    def look(self, allowed: list[str] | None = None) -> Look:
        columns = SinkColumns(Deployment.model_construct(), Revision(SPEC, self.folder))
        return Look(columns, self.folder, self.reader, tolerances.of_options(allowed or []))

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


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "outputs")


def changed(epoch: int, row: int, **values: object) -> list[Row]:
    return [one | values if at == row else one for at, one in enumerate(ROWS[epoch])]


def test_a_changed_value_is_found_with_its_column_and_key(world: World) -> None:
    look = world.look()
    assert look.differing(world.unequal(1, ROWS[1]), world.ledgers.near(1)) == []
    found = look.differing(world.unequal(2, changed(2, 3, n=99)), world.ledgers.near(2))
    assert len(found) == 1
    (cause,) = look.causes.found()
    assert (cause.operator, cause.kind, cause.fields) == (TASKS[0].operator, "value", ("n",))
    assert (cause.first_epoch, cause.records, cause.keys) == (2, 1, 1)
    assert cause.keys_share == pytest.approx(1 / 6)
    (sample,) = cause.samples
    assert sample.committed is not None and sample.made is not None
    assert (sample.committed.key, sample.position) == (b"k3", 3)
    assert json.loads(sample.committed.value or b"") == ROWS[2][3]
    assert json.loads(sample.made.value or b"") == ROWS[2][3] | {"n": 99}
    (compared,) = look.compared(world.ledgers.comparison)
    assert (compared.topic, compared.by, compared.why) == ("out", "records", "")


def test_missing_and_added_records_are_found(world: World) -> None:
    look = world.look()
    rows = [*ROWS[1][:2], *ROWS[1][3:], {"k": "more", "n": 1, "x": 0.5}]
    look.differing(world.unequal(1, rows), world.ledgers.near(1))
    kinds = {cause.kind: cause.samples[0] for cause in look.causes.found()}
    assert kinds.keys() == {"missing", "added"}
    missing, added = kinds["missing"].committed, kinds["added"].made
    assert missing is not None and missing.key == b"k2"
    assert added is not None and added.key == b"more"


def test_what_is_within_a_tolerance_is_no_difference(world: World) -> None:
    look = world.look(["x=relative:1e-6"])
    near = world.unequal(1, changed(1, 2, x=0.5 + 1e-9))
    assert len(near) == 1
    assert look.differing(near, world.ledgers.near(1)) == []
    far = world.unequal(2, changed(2, 2, x=0.6))
    assert look.differing(far, world.ledgers.near(2)) == far
    assert {cause.fields for cause in look.causes.found()} == {("x",)}


def test_records_that_the_topic_lost_are_compared_by_the_ledger_alone(world: World) -> None:
    look = world.look()
    world.topics.delete_records({("out", 0): 10})
    found = look.differing(world.unequal(1, changed(1, 3, n=99)), world.ledgers.near(1))
    assert len(found) == 1
    (compared,) = look.compared(world.ledgers.comparison)
    assert compared.by == "ledger"
    assert "out[0] begins at offset 10" in compared.why
    (cause,) = look.causes.found()
    assert (cause.kind, cause.fields, cause.samples[0].committed) == ("value", (), None)


@pytest.mark.parametrize(("made", "kind"), [(6, "value"), (4, "missing"), (8, "added")])
def test_counts_show_the_kind(world: World, made: int, kind: str) -> None:
    (found,) = world.unequal(1, [{"k": "k", "n": i} for i in range(made)])
    (difference,) = by_ledger(found).found
    assert difference.kind == kind
    assert (difference.operator, difference.epoch) == (TASKS[0].operator, 1)
