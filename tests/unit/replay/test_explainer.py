"""Whole explanations of a job's past on a model of Kafka, from the ledgers to the inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from perseid.clocks import SystemClock
from perseid.errors import RefusedError
from perseid.jobs.model import trees
from perseid.jobs.repository.job_folders import EXAMPLES
from perseid.records import WHOLE, Assignment, Deployment, JobEntry, Plan
from perseid.replay.explained import Earlier
from perseid.replay.explainer import Explainer, Options
from perseid.state.durability.store import open_store
from perseid.testing.kafka import (
    FakeColumnReader,
    FakeLogReader,
    FakeLogWriter,
    FakeTopics,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import codec, names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import Begin, SourceRange, Token
from perseid.worker.dataflow import source
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.one_process import Past

JOB = "pageviews"
EPOCHS: list[dict[str, list[Any]]] = [
    {"users": [{"user": "ann", "country": "at"}, {"user": "bob", "country": "de"}], "views": [0]},
    {"users": [], "views": [1, 0]},
    {"users": [{"user": "ann", "country": "at"}], "views": [0, 1, 0]},
]
VIEWS = [{"user": "ann", "page": "p", "ms": 7}, {"user": "bob", "page": "p", "ms": 9}]


class World:
    """The job has committed EPOCHS; it is its own registry."""

    def __init__(self, scratch: Path) -> None:
        self.kafka = ModelKafka()
        self.topics, self.writer = FakeTopics(self.kafka), FakeLogWriter(self.kafka)
        self.past = Past(EXAMPLES / JOB, scratch / "past")
        tasks = self.past.layout.ledger_tasks
        sources = [one.topic for one in self.past.spec.sources.values()]
        sinks = [one.topic for one in self.past.spec.sinks.values()]
        for topic in (*sources, *sinks, names.tokens(JOB)):
            self.topics.create(topic, 1, {})
        self.topics.create(names.ledger(JOB), len(tasks), {})
        self.sinks = {task.gid: self.sink(task) for task in tasks}
        self.writer.append(names.tokens(JOB), 0, codec.encode(Begin(1, "u", 0)))
        self.previous = 0
        for number, rows in enumerate(EPOCHS, 1):
            views = [VIEWS[at] for at in rows["views"]]
            self.run(number, {"users": rows["users"], "views": views})
        self.deployment = self.deployed(scratch)

    def deployed(self, scratch: Path) -> Deployment:
        store = scratch / "store"
        files = {path.name: path.read_bytes() for path in (EXAMPLES / JOB).glob("*.*")}
        content = trees.archive(files)
        self.sha = trees.sha256(content)
        open_store(str(store)).write(trees.archive_path(self.sha), [content])
        return Deployment(
            kafka="k:1", zookeeper="z:2", redis="r:3", store=str(store), state="t", logs="l"
        )

    def sink(self, task: Any) -> SinkSession:
        who = SinkIdentity(JOB, "u", 1, task.operator, task.partition, task.ledger, 0)
        ledger = LedgerReader(FakeLogReader(self.kafka), self.topics)
        return SinkSession(
            who, FakeTransactions(self.kafka), ledger, self.topics, clock=self.kafka.clock
        )

    def run(self, number: int, rows: dict[str, Any]) -> None:
        ids = self.topics.identities(list(rows))
        ranges = []
        for topic, some in rows.items():
            offsets = [self.writer.append(topic, 0, orjson.dumps(row)) for row in some]
            if offsets:
                span = offsets[0], offsets[-1] + 1
                ranges.append(SourceRange(topic, topic, ids[topic], 0, *span))
        token = Token(1, "u", number, self.previous, "r", 1, (tuple(ranges),), 1_000 * number)
        self.previous = self.writer.append(names.tokens(JOB), 0, codec.encode(token))
        self.past.epoch({topic: {0: some} for topic, some in rows.items()})
        executor, spec = self.past.runner.executor, self.past.spec
        for task in self.past.layout.ledger_tasks:
            batches = [
                executor.batch(task, executor.trace.order, sink, table)
                for sink in spec.sinks.values() if sink.input == task.operator
                for table in [executor.trace.outputs[task.gid]["output"]] if table.num_rows
            ]  # fmt: skip
            self.sinks[task.gid].commit(number, self.previous, 1, batches)

    def jobs(self) -> list[str]:
        return [JOB]

    def job_entry(self, _job: str) -> Any:
        return SimpleNamespace(value=JobEntry(JOB, "u", "r", self.sha, "running", 1, 0))

    def plan(self, _job: str) -> Plan:
        own = Assignment(WHOLE, None, "w1-a", 1)
        return Plan(JOB, "u", 1, "r", self.sha, 1, 0, 0, (own,), ())

    def pointers(self, _job: str) -> None:
        return None

    def last_of(self, topic: str, key: bytes) -> int:
        """The offset of the last record with the key."""
        end = self.topics.ends([(topic, 0)])[topic, 0]
        found = FakeColumnReader(self.kafka).read(topic, 0, 0, end)
        return max(one.offset() for some in found for one in some if one.key() == key)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)

    class Reader(FakeLogReader):
        def __init__(self, _brokers: object) -> None:
            super().__init__(made.kafka)

        def close(self) -> None: ...

    monkeypatch.setattr("perseid.topics.log.KafkaLogReader", Reader)
    monkeypatch.setattr("perseid.topics.admin.TopicAdmin", lambda _: made.topics)
    monkeypatch.setattr(
        "perseid.topics.ranges.ColumnReader", lambda _: FakeColumnReader(made.kafka)
    )
    monkeypatch.setattr(source, "ranges", lambda _: FakeColumnReader(made.kafka))
    return made


def explainer(world: World, folder: Path, *, since: bool = False) -> Explainer:
    registry: Any = world
    options = Options(folder, since)
    return Explainer(
        world.deployment, registry, world.topics, SystemClock(), options, lambda _: None
    )


def test_a_record_is_explained(world: World, tmp_path: Path) -> None:
    offset = world.last_of("views-by-country", b"at")
    asked = explainer(world, tmp_path / "audit", since=True)
    found = asked.record("views-by-country", 0, offset)
    assert (found.job, found.revision, found.epoch) == (JOB, "r", 3)
    assert (found.operator, found.key) == ("countries", ({"country": "at"},))
    inputs = {(one.topic, one.ranges) for one in found.inputs}
    assert inputs == {("views", ((3, 3), (5, 5))), ("users", ((2, 2),))}
    assert found.before == {"seen": ({"key": "at", "views": 2, "ms": 14},)}
    assert found.after == {"seen": ({"key": "at", "views": 4, "ms": 28},)}
    assert found.earlier == (Earlier(1, 1), Earlier(2, 1))
    assert (found.base, found.epochs) == ("scratch", 3)


def test_a_key_of_an_epoch_is_explained(world: World, tmp_path: Path) -> None:
    found = explainer(world, tmp_path / "audit").key(JOB, "bob", 2, "enriched")
    assert [(one.topic, one.ranges) for one in found.inputs] == [("views", ((1, 1),))]
    assert found.earlier is None


def test_what_has_no_explanation_is_refused(world: World, tmp_path: Path) -> None:
    asked = explainer(world, tmp_path / "audit")
    foreign = world.writer.append("views-by-country", 0, b"other")
    for topic, offset, why in (
        ("views-by-country", foreign, "another program wrote it"),
        ("views-by-country", 99, "no record at 99 yet"),
        ("views", 0, "not a sink of any applied job; sinks are: views-by-country"),
        ("pageviews-dlq", 0, "dead letters of pageviews"),
    ):
        with pytest.raises(RefusedError, match=why):
            asked.record(topic, 0, offset)
    with pytest.raises(RefusedError, match="not committed"):
        asked.key(JOB, "bob", 9, "enriched")
    with pytest.raises(RefusedError, match="there is no job none"):
        world.job_entry = lambda _job: None  # type: ignore[method-assign]
        asked.key("none", "bob", 1, None)
