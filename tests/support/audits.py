"""Audits on workers without Spark: processes that a test ends, and the registry that they share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import orjson

from perseid.clocks import ManualClock
from perseid.jobs.operations import audits
from perseid.records import Deployment, JobEntry, WorkerInfo
from perseid.records.audits import (
    PROGRESS,
    REPORT,
    RESULT,
    VALUES,
    AuditProgress,
    AuditRequest,
    AuditResult,
)
from perseid.registry import Registry
from perseid.registry.audits import AuditNodes
from perseid.replay import reports
from perseid.testing.registry import FakeZooKeeper
from perseid.worker.audit_runs import AuditRun, AuditRuns, follow_in_thread
from perseid.worker.machine import Memory
from support.audit_reports import example

JOB = "orders"
EQUAL = AuditResult("done", "every output is equal", "equal", 7, 9, 3, 30)


class FakeProcess:
    """A process of an audit that ends when its test decides, or is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code: int | None = None
        self.killed, self._over = threading.Event(), threading.Event()

    def progress(self, epoch: int, of: int = 9) -> None:
        data = orjson.dumps(asdict(AuditProgress(epoch, of, 0)))
        (self.folder / PROGRESS).write_bytes(data)

    def end(
        self, result: AuditResult | None = EQUAL, code: int = 0, *, reported: bool = True
    ) -> None:
        """As `perseid.replay.__main__`: the report, then the result."""
        if reported and result is not None and result.state == "done":
            redacted = reports.as_json(reports.without_values(example()))
            (self.folder / REPORT).write_text(redacted)
            (self.folder / VALUES).write_text(reports.as_json(example()))
        if result is not None:
            (self.folder / RESULT).write_bytes(orjson.dumps(asdict(result)))
        self.code = code
        self._over.set()

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        if self.code is None:
            self.killed.set()
            self.code = -9
        self._over.set()

    def wait(self, timeout: float | None = None) -> int:
        assert self._over.wait(timeout)
        return self.code or 0


class Host:
    """A worker with its session, as far as audits go."""

    def __init__(
        self, world: Audited, name: str, follow: Callable[[AuditRun], None] = follow_in_thread
    ) -> None:
        self.session = world.zookeeper.session()
        self.registry = Registry(self.session)
        self.incarnation = f"{name}-1"
        self.processes: list[FakeProcess] = []
        self.memory = Memory(8 << 30, 16 << 30)
        self.runs = AuditRuns(
            world.deployment, self.registry, self.incarnation, world.clock, self._start,
            lambda: self.memory, follow,
        )  # fmt: skip
        self.registry.register_worker(
            WorkerInfo(name, self.incarnation, "h", 1, 2, 2, "local[2]", 3)
        )

    def _start(self, _: Deployment, audit: AuditRequest, folder: Path) -> FakeProcess:
        assert folder.is_dir() and folder.name == audit.id
        self.processes.append(FakeProcess(folder))
        return self.processes[-1]

    def die(self) -> None:
        """By SIGKILL: its session expires, its threads do nothing more."""
        self.session.expire()


class Audited:
    """A deployment with one job, and the audits of it."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper, self.clock = FakeZooKeeper(), ManualClock()
        self.registry = Registry(self.zookeeper.session())
        self.nodes = AuditNodes(self.registry)
        self.deployment = Deployment(
            kafka="k:1", zookeeper="z:1", redis="redis://r:1", store=str(folder / "store"),
            state=str(folder / "state"), logs=str(folder / "logs"),
        )  # fmt: skip
        self.registry.put_job_entry(JobEntry(JOB, "u1", "r", "a", "running", 1, 0), None)

    def ask(self, epochs: str = "7:9") -> str:
        given = audits.arguments({"epochs": epochs})
        return audits.ask(self.registry, self.clock, JOB, given, "ann").id

    def audit(self, id_: str) -> AuditRequest:
        return audits.find(self.registry, id_).value

    def state(self, id_: str) -> str:
        return self.audit(id_).state
