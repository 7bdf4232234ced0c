"""A job of two fragments on one Spark application and a real broker, without a coordinator.

Python workers import this module with the context that they get, so they accept the job, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.engine.agreement import agree
from perseid.engine.feed import TokenHistory
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import TaskReport
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.spread import spread_of
from perseid.jobs.validation import parse
from perseid.records import Assignment, Deployment, Plan
from perseid.topics import codec, control, names
from perseid.topics.admin import TopicAdmin
from perseid.topics.chain import Base
from perseid.topics.records import SourceRange, Token
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.epoch.inbox import BufferInbox, kafka_inbox
from perseid.worker.spark import restoring
from perseid.worker.spark.epochs import EpochRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
name: NAME
parallelism: 4
sources:
  lines: {topic: NAME-lines, format: text}
operators:
  words: {input: lines, key: value, use: "ops:Words"}
  totals: {input: words, key: letter, use: "ops:Totals"}
sinks:
  out: {input: totals, topic: NAME-out, format: json, key: letter}
placement: {spread: 2}
"""
OPS = """
from perseid.jobs import Operator, Table, pa

class Words(Operator):
    n = Table(key=pa.string(), n=pa.int64())
    output = pa.schema([("letter", pa.string()), ("n", pa.int64())])

    def process(self, batch, out):
        ones = pa.array([1] * len(batch), pa.int64())
        self.n.add(batch["value"], n=ones)
        letters = [word[0] for word in batch["value"].to_pylist()]
        out.emit(pa.table({"letter": pa.array(letters, pa.string()), "n": ones}))

class Totals(Operator):
    n = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        changed = self.n.add(batch["letter"], n=batch["n"])
        out.emit(changed.rename_columns(["letter", "n"]))
"""


class SpreadContext(FragmentContext):
    """Its class brings this module into the processes of tasks."""


@dataclass
class Fragment:
    """One fragment, restored from nothing."""

    runner: EpochRunner
    inbox: BufferInbox
    warned: list[str]

    def run(self, order: EpochOrder) -> TaskReport:
        return self.runner.run(order, codec.encode(order.token))


class Job:
    """The job's topics, its two fragments, and the next token."""

    def __init__(
        self, spark: SparkSession, name: str, kafka: str, folder: Path, generation: int = 1
    ) -> None:
        self.name, self._spark, self._folder = name, spark, folder
        self.job = folder / "job"
        self.job.mkdir(parents=True, exist_ok=True)
        (self.job / "job.yaml").write_text(JOB.replace("NAME", name))
        (self.job / "ops.py").write_text(OPS)
        self.spec = parse.load(self.job)
        self.layout = layouts.build(self.spec, 1)
        self.deployment = Deployment(
            kafka=kafka, zookeeper="z:2", redis="r:3", store=str(folder / "store"),
            state=str(folder / "state"), logs=str(folder),
        )  # fmt: skip
        self.topics = TopicAdmin(kafka)
        self.epoch, self._ends = 0, [0, 0]
        self.generation = generation

    def create(self) -> None:
        wanted = [
            (names.ledger(self.name), self.layout.ledger_partitions), (f"{self.name}-lines", 2),
            (f"{self.name}-out", 1),
        ]  # fmt: skip
        for topic, partitions in wanted:
            self.topics.create(topic, partitions)
        for operator in ("words", "totals"):
            one = control.buffer_topic(self.name, operator, 1, 4)
            self.topics.create(one.name, one.partitions, one.config)

    def order(self, until: tuple[int, int]) -> EpochOrder:
        """Of a token that reads both partitions of the source up to these offsets."""
        topic = f"{self.name}-lines"
        topic_id = self.topics.identities([topic])[topic]
        splits = tuple(
            (SourceRange("lines", topic, topic_id, p, self._ends[p], until[p]),) for p in (0, 1)
        )
        self.epoch, self._ends = self.epoch + 1, list(until)
        at = self.epoch
        token = Token(1, "u", at, at - 1, "r", 1, splits, 1_000)
        return EpochOrder(token, at, None, generation=self.generation)

    @contextmanager
    def fragments(
        self, continues: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Fragment, Fragment]]:
        with ThreadPoolExecutor(1) as pool:
            found = tuple(self._fragment(split, continues, pool.submit) for split in (0, 1))
            yield found[0], found[1]
            for one in found:
                one.inbox.close()
                one.runner.close()

    def _fragment(self, split: int, continues: Callable[[], bool], soon: Any) -> Fragment:
        spread = spread_of(self.spec, self.layout)
        assert spread is not None
        gids, generation = spread.shares[split].gids, self.generation
        whole: dict[str, Any] = {
            "deployment": self.deployment, "job": self.name, "job_uuid": "u",
            "generation": generation, "incarnation": "w1-a", "revision": "r", "archive": "a",
            "folder": str(self.job), "layout": self.layout.part(gids), "base_epoch": 0,
            "lanes": 2, "one_task_each": False, "rescaled": False, "fragment": str(split),
            "split": split,
        }  # fmt: skip
        context = SpreadContext(**whole)
        runner = EpochRunner(self._spark, context)
        restoring.fence(runner)
        own = Assignment(str(split), gids, "w1-a", generation, split=split)
        plan = Plan(self.name, "u", generation, "r", "a", 1, 0, 0, (own,))
        past = TokenHistory(
            Base("u", 0, 0), {epoch: epoch for epoch in range(self.epoch + 1)}, {}, self.epoch + 1
        )
        stateful = [task.gid for task in context.layout.stateful_tasks]
        found = agree(
            plan, past, stateful, partial(restoring.restore, runner),
            lambda: restoring.ledgers(restoring.Ledgers(context), plan),
        )  # fmt: skip
        runner.prepare()
        warned: list[str] = []
        inbox = kafka_inbox(context, continues, warned.append, tuple, soon)
        inbox.begin(past, found.epoch)
        runner.begin(inbox, self._folder / f"rows-{split}")
        return Fragment(runner, inbox, warned)


def run_both(fragments: tuple[Fragment, Fragment], order: EpochOrder) -> tuple[float, TaskReport]:
    """Runs an epoch of both at once: milliseconds, and their merged report."""
    from pyspark import InheritableThread

    begun_s = time.monotonic()
    reports: list[TaskReport] = []
    threads = [
        InheritableThread(lambda one=one: reports.append(one.run(order))) for one in fragments
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one, other = reports
    return (time.monotonic() - begun_s) * 1000, one.merged(other)


def median(numbers: list[float]) -> float:
    return round(statistics.median(numbers), 1)
