"""A deployment in memory for tests of a leader's reads and writes: fakes of all its ports."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from perseid.clocks import ManualClock
from perseid.coordinator.loading import Clients, Loader
from perseid.jobs.model.trees import folder_tree, store_archive
from perseid.jobs.repository.job_folders import example
from perseid.records import JobEntry, LeaderInfo, Plan
from perseid.registry import FencedRegistry, Registry, lead
from perseid.testing.kafka import FakeLogReader, FakeLogWriter, FakeTopics, FakeTransactions
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore
from perseid.topics import codec, names
from perseid.topics.control import control_topics
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import Begin, Claim, Rewind, SourceRange, Token

JOB = "wordcount"


class Setting:
    """A deployment in memory with the example job, applied and never run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = ModelKafka(ManualClock())
        self.zookeeper = FakeZooKeeper()
        self.registry = Registry(self.zookeeper.session())
        self.store = MemoryStore()
        self.topics = FakeTopics(self.kafka)
        self.entry = self.apply()
        fence = lead(self.registry, lambda epoch: LeaderInfo("c1", epoch, 1, ""))
        assert fence is not None
        self.fenced = FencedRegistry(self.registry, fence)

    def apply(self, **texts: str) -> JobEntry:
        """Applies the example with texts of job.yaml replaced; returns the entry."""
        tree = self.folder / f"tree-{len(self.store.list())}"
        shutil.copytree(example(JOB), tree, ignore=shutil.ignore_patterns("__pycache__"))
        text = (tree / "job.yaml").read_text()
        for old, new in texts.items():
            assert old in text
            text = text.replace(old, new)
        (tree / "job.yaml").write_text(text)
        sha = store_archive(self.store, folder_tree(tree, JOB))
        return JobEntry(JOB, "u1", "r1", sha, "running", 1, 0)

    def loader(self, epoch: int = 1) -> Loader:
        reader = FakeLogReader(self.kafka)
        ledger = LedgerReader(reader, self.topics)
        clients = Clients(
            self.registry, self.topics, reader, FakeLogWriter(self.kafka), ledger,
            FakeTransactions(self.kafka), self.store, self.folder / "cache", self.kafka.clock,
        )  # fmt: skip
        return Loader(clients, epoch, "c1")

    def source(self, partitions: int = 2, records: int = 0, cleanup: str = "delete") -> None:
        self.topics.create("lines", partitions, {"cleanup.policy": cleanup})
        for partition in range(partitions):
            for _ in range(records):
                self.kafka.append(("lines", partition), None, b"a b")

    def append(self, *records: Begin | Claim | Rewind | Token) -> None:
        writer = FakeLogWriter(self.kafka)
        for made in control_topics(JOB, 1):
            self.topics.create(made.name, made.partitions, made.config)
        for record in records:
            writer.append(names.tokens(JOB), 0, codec.encode(record))

    def plan(self, **changes: object) -> Plan:
        plan = Plan.fused(JOB, "u1", 3, "w1-1", "r0", self.entry.archive, 1, 0, 1)
        plan = replace(plan, **changes)  # type: ignore[arg-type]
        self.fenced.registry.put_job_entry(self.entry, None)
        self.fenced.put_plan(plan)
        return plan


def token(epoch: int, previous: int, start: int, end: int, **changes: object) -> Token:
    split = (SourceRange("lines", "lines", "id", 0, start, end),)
    made = Token(1, "u1", epoch, previous, "r0", 1, (split,), epoch)
    return replace(made, **changes)  # type: ignore[arg-type]


def running(setting: Setting) -> None:
    """Appends three tokens, the second one a checkpoint; an earlier third was rolled back."""
    setting.source(records=50)
    setting.append(
        Claim(1, "c0"), Begin(1, "u1", 0), token(1, 1, 0, 10), token(2, 2, 10, 20, checkpoint=True),
        token(3, 3, 20, 30), Rewind(1, "u1", 2, 3, "bad input"), token(3, 3, 20, 25),
    )  # fmt: skip
    setting.plan()
