"""Puts a shipped example as a job of its own on a cluster, by the functions of `perseid jobs`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.clocks import SystemClock
from perseid.errors import PermanentError

if TYPE_CHECKING:
    from perseid.jobs.operations.applying import Cluster as Jobs
    from perseid.records import Deployment, JobEntry
    from perseid.topics.admin import TopicAdmin

PARTITIONS = 4
READY_TIMEOUT_S = 120.0  # a worker's first Spark session on a loaded machine
# Seconds to output and rates are computed from the append time, not the producer's.
TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class Names:
    """A job and its two topics. New for each run, so that no older topic is read."""

    job: str
    reads: str = ""  # a source topic of another name, which several runs share

    @property
    def source(self) -> str:
        return self.reads or f"{self.job}.lines"

    @property
    def sink(self) -> str:
        return f"{self.job}.counts"

    @classmethod
    def fresh(cls, prefix: str, reads: str = "") -> Names:
        return cls(f"{prefix}-{time.time_ns() // 1_000_000:x}", reads)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A shipped example of one source and one sink, with texts of its job.yaml replaced."""

    example: str = "wordcount"
    edits: tuple[tuple[str, str], ...] = ()


# Words split by the example's Python operator, equivalent to its SQL.
_IN_SQL = """sql: "SELECT explode(split(value, ' ')) AS word FROM input\""""
WORDS_IN_PYTHON = Scenario(edits=((_IN_SQL, 'use: "wordcount:Words"'),))


@dataclass(frozen=True, slots=True)
class AppliedJob:
    """A running job, with what is needed to follow it."""

    names: Names
    job_uuid: str
    ledgers: list[int]


class ScenarioBed:
    """Topics and jobs of scenarios on one cluster. `with connect(...)` makes and closes it."""

    def __init__(self, bootstrap: str, jobs: Jobs, topics: TopicAdmin) -> None:
        self.bootstrap = bootstrap
        self.registry = jobs.registry
        self._jobs = jobs
        self._topics = topics

    def make_topics(self, *topics: str, partitions: int = PARTITIONS) -> None:
        for topic in topics:
            self._topics.create(topic, partitions, TOPIC_CONFIG)

    def delete_topics(self, *topics: str) -> None:
        self._topics.delete(topics)

    def start(self, names: Names, scenario: Scenario = Scenario()) -> AppliedJob:
        """Applies the scenario's example as job `names` and waits until a worker runs it."""
        with tempfile.TemporaryDirectory(prefix="perseid-job-") as scratch:
            return self.apply(names, job_folder(Path(scratch), names, scenario))

    def apply(self, names: Names, folder: Path) -> AppliedJob:
        """Applies the job in `folder`, whose name is `names.job`, and waits for a worker."""
        applied = self.put(names, folder)
        self.await_running(names)
        return applied

    def put(self, names: Names, folder: Path) -> AppliedJob:
        """Applies the job in `folder`; a worker may come later."""
        from perseid.jobs.model import layout
        from perseid.jobs.operations import applying
        from perseid.jobs.repository import job_folders

        with job_folders.validated(job_folders.find(str(folder))) as jobs:
            (change,) = applying.prepare(self._jobs, jobs)
            applying.perform(self._jobs, change)
            tasks = layout.build(change.job.spec, 1).ledger_tasks
        ledgers = [task.ledger for task in tasks if task.ledger is not None]
        return AppliedJob(names, change.entry.uuid, ledgers)

    def await_running(self, names: Names) -> None:
        """Waits for a worker that runs the job; PermanentError when there is none."""
        from perseid.jobs.operations import steering

        found = self.registry.job_entry(names.job)
        if found is None:
            raise PermanentError(f"job {names.job} is not applied")
        answer = steering.wait(self.registry, SystemClock(), found.value, READY_TIMEOUT_S)
        if answer.status is None or answer.status.state != "running":
            error = answer.status.error if answer.status is not None else None
            raise PermanentError(f"job {names.job} does not run: {(error or {}).get('text')}")

    def stop(self, names: Names) -> None:
        """Stops the job; all its data stays for inspection."""
        from perseid.jobs.operations import steering

        self._ask(*steering.stop(self.registry, SystemClock(), names.job, checkpoint=False))

    def resume(self, names: Names) -> None:
        """Resumes a stopped job."""
        from perseid.jobs.operations import steering

        self._ask(*steering.start(self.registry, SystemClock(), names.job, "checkpoint"))

    def end(self, names: Names) -> None:
        """Removes the job and its control topics; its source and its sink stay."""
        from perseid.jobs.operations import steering

        if names.job in self.registry.jobs():
            self._ask(*steering.remove(self.registry, SystemClock(), names.job))
        prefix = f"perseid.{names.job}."
        self.delete_topics(*(t for t in self._topics.list() if t.startswith(prefix)))

    def _ask(self, entry: JobEntry, version: int) -> None:
        from perseid.jobs.operations import steering

        steering.put(self.registry, entry, version)
        steering.wait(self.registry, SystemClock(), entry, READY_TIMEOUT_S)

    def remove(self, names: Names) -> None:
        """Removes the job and all of its topics."""
        self.end(names)
        own = {names.source, names.sink}
        self.delete_topics(*(t for t in self._topics.list() if t in own))

    def remove_older(self, prefix: str) -> list[str]:
        """Removes what earlier runs of this kind have left; returns the jobs' names."""
        older = [job for job in self.registry.jobs() if job.startswith(f"{prefix}-")]
        for job in older:
            self.remove(Names(job))
        return older


@contextmanager
def connect(deployment: Deployment) -> Iterator[ScenarioBed]:
    """Connections to the cluster, closed at the end."""
    from perseid.jobs.operations.applying import Cluster as Jobs
    from perseid.registry.facade import Registry
    from perseid.state.durability.store import open_store
    from perseid.topics.admin import TopicAdmin

    registry = Registry.connect(deployment)
    topics = TopicAdmin(deployment.kafka)
    store = open_store(deployment.store)
    try:
        yield ScenarioBed(
            deployment.kafka,
            Jobs(registry, topics, store, SystemClock(), deployment.jobs_allow_code),
            topics,
        )
    finally:
        registry.close()


def job_folder(folder: Path, names: Names, scenario: Scenario = Scenario()) -> Path:
    """The scenario's example under another name and with other topics."""
    from perseid.jobs.repository.job_folders import example
    from perseid.jobs.validation import parse

    shipped = parse.load(example(scenario.example))
    (source,), (sink,) = shipped.sources.values(), shipped.sinks.values()
    return edited(example(scenario.example), folder / names.job, (
        (f"name: {shipped.name}\n", f"name: {names.job}\n"),
        (f"topic: {source.topic},", f"topic: {names.source},"),
        (f"topic: {sink.topic},", f"topic: {names.sink},"),
        *scenario.edits,
    ))  # fmt: skip


def edited(shipped: Path, target: Path, edits: Iterable[tuple[str, str]]) -> Path:
    """Copies a job folder with texts of its job.yaml replaced, each of which must occur once."""
    shutil.copytree(shipped, target, ignore=shutil.ignore_patterns("__pycache__"))
    text = (target / "job.yaml").read_text()
    for old, new in edits:
        if text.count(old) != 1:
            raise PermanentError(f"{shipped}: job.yaml has {old!r} {text.count(old)} times, not 1")
        text = text.replace(old, new)
    (target / "job.yaml").write_text(text)
    return target
