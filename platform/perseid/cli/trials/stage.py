"""Puts a wordcount job of its own on a running cluster: topics, job folder, apply, ready."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.errors import PermanentError, RetryableError

if TYPE_CHECKING:
    from perseid.records import Deployment
    from perseid.registry.facade import Registry

PARTITIONS = 4
READY_TIMEOUT_S = 120.0  # a worker's first Spark session on a loaded machine
# The append time, not the producer's, is what seconds to output and rates are taken from.
TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class Names:
    """A job and its two topics. Fresh for each trial, so nothing of an older one is read."""

    job: str
    source: str
    sink: str

    @classmethod
    def fresh(cls, prefix: str) -> Names:
        mark = f"{time.time_ns() // 1_000_000 % 36**6:x}"
        return cls(f"{prefix}-{mark}", f"{prefix}-lines-{mark}", f"{prefix}-counts-{mark}")


def make_topics(bootstrap: str, *topics: str, partitions: int = PARTITIONS) -> None:
    from perseid.topics.admin import TopicAdmin

    admin = TopicAdmin(bootstrap)
    for topic in topics:
        admin.create(topic, partitions, TOPIC_CONFIG)


def wordcount_folder(folder: Path, names: Names) -> Path:
    """The wordcount example under another name and with other topics; nothing else differs."""
    import shutil

    from perseid.jobs.repository import example

    target = folder / names.job
    shutil.copytree(example("wordcount"), target, ignore=shutil.ignore_patterns("__pycache__"))
    text = (target / "job.yaml").read_text()
    for old, new in (
        ("name: wordcount\n", f"name: {names.job}\n"),
        ("topic: lines,", f"topic: {names.source},"),
        ("topic: word-counts,", f"topic: {names.sink},"),
    ):
        if text.count(old) != 1:
            raise PermanentError(
                f"the wordcount example has {text.count(old)} times {old!r}, not 1"
            )
        text = text.replace(old, new)
    (target / "job.yaml").write_text(text)
    return target


def ledgers(folder: Path) -> list[int]:
    """The ledger partitions that hold a record of every epoch of the job in `folder`."""
    from perseid.jobs import layout, parse

    built = layout.build(parse.load(folder), 1)
    return [task.ledger for task in built.ledger_tasks if task.ledger is not None]


@dataclass(frozen=True, slots=True)
class Staged:
    """A job that runs, with what is needed to follow it."""

    names: Names
    job_uuid: str
    ledgers: list[int]


def start(
    deployment: Deployment,
    registry: Registry,
    names: Names,
    apply: Callable[[Path], None],
) -> Staged:
    """Makes the topics, applies the job and waits until a worker runs it."""
    make_topics(deployment.kafka, names.source, names.sink)
    with tempfile.TemporaryDirectory(prefix="perseid-job-") as scratch:
        folder = wordcount_folder(Path(scratch), names)
        expected = ledgers(folder)
        apply(folder)
    entry = registry.job_entry(names.job)
    if entry is None:
        raise PermanentError(f"job {names.job} was applied and is not there")
    await_running(registry, names.job)
    return Staged(names, entry.value.uuid, expected)


def await_running(registry: Registry, job: str, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Waits until a worker has restored the job and runs it."""
    deadline_s = time.monotonic() + timeout_s
    state = "unknown"
    while time.monotonic() < deadline_s:
        status = registry.status(job)
        state = status.state if status is not None else state
        if state == "running":
            return
        if status is not None and status.state == "failed":
            raise PermanentError(f"job {job} failed: {(status.error or {}).get('text', '')}")
        time.sleep(0.1)
    raise RetryableError(
        f"job {job} is {state} after {timeout_s:.0f} s, not running; see `perseid jobs show {job}`"
    )
