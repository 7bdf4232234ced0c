"""A job's past on a model of Kafka, and whole audits of it in this process, without Spark.

Tasks, state logs, sinks, ledgers, checkpoints and the audit are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pytest

from perseid.clocks import SystemClock
from perseid.engine.agreement import RestoreOrder
from perseid.engine.order import EpochOrder
from perseid.engine.resume import Restored
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.layout import Task
from perseid.jobs.model.trees import archive, archive_path, folder_tree, sha256
from perseid.jobs.validation import parse
from perseid.records import CheckpointPointer, CheckpointPointers, Deployment, JobEntry, Plan
from perseid.replay.auditing import Asked, Auditor
from perseid.replay.one_process import OneProcess
from perseid.replay.progress import Progress
from perseid.replay.request import Request
from perseid.replay.running import AuditRun, AuditRuntime
from perseid.state.durability.checkpoint import Manifest, Part, write_manifest
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.store import LocalStore
from perseid.testing.kafka import (
    FakeColumnReader,
    FakeLogReader,
    FakeLogWriter,
    FakeRangeReader,
    FakeTopics,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics import codec, names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import Begin, SourceRange, Token
from perseid.topics.transactions import PartitionBatch
from perseid.worker.checkpoint.parts import PartOrder, StateCopy, make, write_snapshot
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.epoch.tasks import SinkClients, TaskExecutor
from perseid.worker.spark import restoring

LAST, CHECKPOINTS, PER_EPOCH = 6, (2, 4), 12
JOB = """\
name: shop
parallelism: 2
sources:
  rows: {topic: rows, format: json, columns: {user: string, n: int64}}
operators:
  sums: {input: rows, key: user, use: "sums:Sums"}
sinks:
  out: {input: sums, topic: out, format: json, key: user}
  copies: {input: rows, topic: copies, format: json}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa


class Sums(Operator):
    output = pa.schema([("user", pa.string()), ("total", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        found = self.total.add(batch["user"], n=batch["n"])
        totals = [TOTAL for n in found["n"].to_pylist()]
        out.emit(pa.table({"user": found.column(0), "total": pa.array(totals, pa.int64())}))
"""


def write_job(folder: Path, total: str = "n") -> Path:
    """A folder of the job; `total`: what it puts out for the sum `n`."""
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB)
    (folder / "sums.py").write_text(CODE.replace("TOTAL", total))
    return folder


class Local(OneProcess):
    """Past epochs in this process, with the sinks that Spark's tasks have."""

    def __init__(self, context: FragmentContext, kafka: ModelKafka) -> None:
        super().__init__(context, FakeColumnReader(kafka))
        self.executor.new_sink = partial(  # type: ignore[method-assign,assignment]
            TaskExecutor.new_sink, self.executor
        )


class LocalRuntime(AuditRuntime):
    """The runtime of an audit over `Local`."""

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> list[Restored]:
        runner: Any = self.runner
        return [
            restoring.restore_one(runner.context, runner.partitions, order, self.layout.task(gid))
            for gid in gids
        ]


class AuditedPast:
    """The job has committed epochs 1 to LAST, with checkpoints; see the module's docstring."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, total: str = "n") -> None:
        self.folder, self.kafka = folder, ModelKafka()
        self.topics = FakeTopics(self.kafka)
        self.settings = Deployment(
            kafka="k:1", zookeeper="z:2", redis="r:3", store=str(folder / "store"),
            state=str(folder / "state"), logs=str(folder / "logs"),
        )  # fmt: skip
        self.store = LocalStore(self.settings.store)
        self.source = write_job(folder / "job", total)
        content = archive(folder_tree(self.source, "shop").files)
        sha = sha256(content)
        self.store.write(archive_path(sha), [content])
        self._patch(monkeypatch)
        self.spec = parse.load(self.source)
        self.layout = layouts.build(self.spec, 1)
        for name, count in (("rows", 1), ("out", 2), ("copies", 1), (names.tokens("shop"), 1),
                            (names.ledger("shop"), len(self.layout.ledger_tasks))):  # fmt: skip
            self.topics.create(name, count, {})
        self.context = FragmentContext(
            deployment=self.settings, job="shop", job_uuid="u", generation=1, incarnation="w1-a",
            revision="r", archive=sha, folder=str(self.source), base_epoch=0, lanes=1,
            one_task_each=False, layout=self.layout, rescaled=False,
        )  # fmt: skip
        self.entry = JobEntry("shop", "u", "r", sha, "running", 1, 0)
        self.pointers_ = CheckpointPointers("u")
        self._live()

    # The job ------------------------------------------------------------------------------------

    def _live(self) -> None:
        runner, log = Local(self.context, self.kafka), FakeLogWriter(self.kafka)
        restoring.fence(runner)  # type: ignore[arg-type]
        order = RestoreOrder({}, 0, 0, (), 0, 1, 1)
        for task in self.layout.stateful_tasks:
            restoring.restore_one(self.context, runner.partitions, order, task)
        runner.prepare()
        topic = names.tokens("shop")
        self.tokens: list[Token] = []
        previous = base = log.append(topic, 0, codec.encode(Begin(1, "u", 0)))
        self.plan_ = Plan("shop", "u", 1, "r", self.entry.archive, 1, 0, base, ())
        for epoch in range(1, LAST + 1):
            token = Token(1, "u", epoch, previous, "r", 1, (self._produce(epoch),), 1_000 * epoch)
            logged = Token(
                1, "u", epoch, previous, "r", 1, token.splits, token.time_ms,
                checkpoint=epoch in CHECKPOINTS,
            )  # fmt: skip
            self.tokens.append(logged)
            previous = log.append(topic, 0, codec.encode(logged))
            runner.run(EpochOrder(token, previous, None, generation=1), b"")
            if logged.checkpoint:
                self._checkpoint(runner, epoch, previous)

    def _produce(self, epoch: int) -> tuple[SourceRange, ...]:
        transaction = FakeTransactions(self.kafka).acquire("producer", 1 << 20, 1.0)
        transaction.begin()
        rows = [{"user": f"u{(epoch * i) % 7}", "n": epoch + i} for i in range(PER_EPOCH)]
        values = pa.array(list(map(orjson.dumps, rows)), pa.binary())
        transaction.send(PartitionBatch("rows", 0, pa.nulls(len(rows), pa.binary()), values))
        found = transaction.flush(1.0)["rows", 0]
        transaction.commit(1.0)
        ids = self.topics.identities(["rows"])
        return (SourceRange("rows", "rows", ids["rows"], 0, found.first, found.last + 1),)

    def _checkpoint(self, runner: Local, epoch: int, offset: int) -> None:
        parts = []
        for task in self.layout.stateful_tasks:
            state: Any = runner.partitions.state(task)
            order = state.part_order("shop", 1, epoch, offset, None)
            done = make(order, LocalFiles(), self.store)
            parts.append(
                Part(done.operator, done.partition, done.path, done.bytes, done.crc, done.chain)
            )
        manifest = Manifest("shop", "u", epoch, 1, 1, "r", offset, 0, tuple(parts))
        path, crc = write_manifest(self.store, manifest)
        pointer = CheckpointPointer(epoch, 1, 1, "r", offset, path, crc, 0, 0, epoch, (epoch,))
        self.pointers_ = CheckpointPointers("u", (pointer, *self.pointers_.pointers))

    # The registry of an audit -------------------------------------------------------------------

    def job_entry(self, _name: str) -> Any:
        return SimpleNamespace(value=self.entry)

    def plan(self, _name: str) -> Plan:
        return self.plan_

    def pointers(self, _name: str) -> CheckpointPointers:
        return self.pointers_

    # The audit ----------------------------------------------------------------------------------

    def asked(self, folder: Path, first: int = 1, last: int = LAST, **others: Any) -> Asked:
        return Asked("shop", Request(epochs=(first, last)), folder, 1, **others)

    def auditor(self, asked: Asked, progress: Progress, notes: list[str] | None = None) -> Auditor:
        def note(line: object) -> None:
            if notes is not None:
                notes.append(str(line))

        asked.folder.mkdir(exist_ok=True)
        spark: Any = object()
        registry: Any = self
        return Auditor(
            self.settings, registry, self.topics, SystemClock(), asked, note, spark, progress
        )

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kafka = self.kafka

        def runtime(
            run: Any, context: FragmentContext, tokens: Any, _held: ExitStack
        ) -> AuditRuntime:  # fmt: skip
            runner: Any = Local(context, kafka)
            return LocalRuntime(
                runner, run._plan, tokens, self.topics, run.last, run._ran, None, run._compared,
                lambda: run.kept_to,
            )  # fmt: skip

        ledger = LedgerReader(FakeLogReader(kafka), self.topics)
        clients: Any = SinkClients(FakeTransactions(kafka), ledger, self.topics)  # type: ignore[arg-type]
        monkeypatch.setattr("perseid.worker.epoch.tasks._sink_clients", lambda _: clients)
        monkeypatch.setattr("perseid.topics.log.KafkaLogReader", lambda _: FakeLogReader(kafka))
        monkeypatch.setattr("perseid.topics.admin.TopicAdmin", lambda _: self.topics)
        monkeypatch.setattr("perseid.topics.ranges.ColumnReader", lambda _: FakeColumnReader(kafka))
        monkeypatch.setattr("perseid.topics.ranges.RangeReader", lambda _: FakeRangeReader(kafka))
        monkeypatch.setattr(AuditRun, "_runtime", runtime)
        monkeypatch.setattr(TaskExecutor, "fold", fold_at_once)
        monkeypatch.setattr(TaskExecutor, "collect", collect_at_once)


def fold_at_once(_executor: TaskExecutor, part: PartOrder, _copy: StateCopy | None) -> None:
    """However small the log is, and without a part writer."""
    write_snapshot(StateLog(LocalFiles(), part.directory, part.identity), part)


def collect_at_once(_executor: TaskExecutor, _task: Task, log: StateLog, epoch: int) -> None:
    log.collect(epoch)


class Killed(BaseException):
    """In the place of SIGKILL: nothing catches it."""
