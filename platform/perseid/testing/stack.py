"""A deployment as a test uses it: the command line, topics, jobs, and waiting for results.

Everything uses what users have: `perseid` commands, topics, the leader's status; nothing inspects
the engine. What is asked again and again is asked without a command, which takes a second of a
core. `running.py` is the embedded cluster, `compose.py` containers; `fixtures.py` gives tests the
one that this machine supports.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.testing.wait import until

if TYPE_CHECKING:
    from perseid.topics.records import Token

COMMAND_S = 240.0
CAUGHT_UP_S = 300.0  # the slowest: a takeover while the other worker starts on two slow cores


@dataclass(frozen=True)
class Ran:
    """The result of a command. `document` is its JSON, None when it printed none."""

    code: int
    document: Any
    stderr: str


class Stack(ABC):
    """A deployment and a test's actions on it."""

    kafka: str  # bootstrap servers, as the test reaches them
    look_s = 1.0  # between two looks at the status: a command that is always running costs a core

    @abstractmethod
    def run(self, *arguments: str, timeout_s: float = COMMAND_S) -> Ran:
        """Runs `perseid ARGUMENTS --json` in this deployment."""

    @abstractmethod
    def apply(self, folder: Path) -> Any:
        """Runs `perseid jobs apply` on a local job folder; returns what it printed."""

    @abstractmethod
    def worker_of(self, job: str) -> str:
        """Returns the worker that runs the job; waits until there is one."""

    @abstractmethod
    def leader(self) -> str:
        """Returns the leading coordinator; waits until there is one."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """Sends SIGKILL to `kafka`, `zookeeper`, `redis`, a worker or a coordinator."""

    @abstractmethod
    def restart(self, name: str) -> None:
        """Starts a killed part where no supervisor does; it may not have its work back yet."""

    @abstractmethod
    def pause(self, name: str) -> None:
        """Stops the process and its descendants (SIGSTOP, the freezer of a container)."""

    @abstractmethod
    def resume(self, name: str) -> None:
        """Resumes what `pause` has stopped."""

    def do(self, *arguments: str) -> Any:
        """As `run`; AssertionError with the output unless it exits with 0."""
        ran = self.run(*arguments)
        message = f"perseid {' '.join(arguments)}: {ran.code} {ran.document} {ran.stderr}"
        assert ran.code == 0, message
        return ran.document

    def topic(self, name: str, partitions: int = 4) -> None:
        """Creates a topic; AssertionError if there is one of that name."""
        from perseid.topics.admin import TopicAdmin

        assert TopicAdmin(self.kafka).create(name, partitions), f"topic {name} exists"

    def produce(
        self, topic: str, values: Iterable[bytes], keys: Iterable[bytes | None] | None = None
    ) -> int:
        """Writes records, distributed over the partitions (by key if given); returns how many."""
        from confluent_kafka import Producer

        producer = Producer({
            "bootstrap.servers": self.kafka, "enable.idempotence": True, "linger.ms": 5,
            "partitioner": "murmur2_random",
        })  # fmt: skip
        failed: list[Any] = []
        sent = 0
        given = iter(keys) if keys is not None else None
        for value in values:
            key = next(given) if given is not None else None
            producer.produce(
                topic, value, key, on_delivery=lambda e, _: failed.append(e) if e else None
            )
            producer.poll(0)
            sent += 1
        assert producer.flush(60) == 0, "input was not written in 60 s"
        assert not failed, failed[0]
        return sent

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Returns the committed JSON records of a topic, partition by partition."""
        from perseid.testing.verify.read import read_topic

        return [json.loads(record.value or b"") for record in read_topic(self.kafka, topic)]

    def tokens(self, job: str) -> list[Token]:
        """Returns the valid tokens of the job's token log, by epoch."""
        from perseid.testing.verify.read import read_topic
        from perseid.topics import codec, names
        from perseid.topics.chain import Chain, valid_tokens

        records = read_topic(self.kafka, names.tokens(job))
        entries = [(r.offset, codec.decode(r.value or b"")) for r in records]
        return list(valid_tokens(Chain(), entries).values())  # type: ignore[arg-type]

    def view(self) -> dict[str, Any]:
        """Returns `jobs` of the status and `looked_ms`, the time that their `lag` is of at least.

        `looked_ms` is None while no leader has looked.
        """
        return self.run("status").document or {"jobs": [], "looked_ms": None}

    def job(self, name: str) -> dict[str, Any]:
        """Returns the status's view of a job; empty if there is none."""
        return _named(name, self.view())

    def wait_job(
        self, name: str, wanted: Callable[[dict[str, Any]], bool], what: str,
        timeout_s: float = CAUGHT_UP_S,
    ) -> dict[str, Any]:  # fmt: skip
        """Returns the job's view as soon as it is `wanted`."""

        def look() -> dict[str, Any] | None:
            found = self.job(name)
            return found if found and wanted(found) else None

        return until(look, timeout_s, f"job {name} to be {what}", self.look_s)

    def wait_caught_up(
        self, name: str, timeout_s: float = CAUGHT_UP_S, above_epoch: int = 0
    ) -> dict[str, Any]:
        """Waits until all input that was there at the call is committed.

        `above_epoch`: the last epoch of an earlier job of the same name, so that its successor does
        not count as caught up before it has read its source offsets.
        """
        called_ms = time.time_ns() // 1_000_000

        def look() -> dict[str, Any] | None:
            found = self.view()
            job = _named(name, found)
            if not job or not _caught_up(job) or job["epoch"] <= above_epoch:
                return None
            return job if (found["looked_ms"] or 0) > called_ms else None

        return until(look, timeout_s, f"job {name} to be caught up", self.look_s)


def _named(name: str, view: dict[str, Any]) -> dict[str, Any]:
    return next((job for job in view["jobs"] if job["name"] == name), {})


def _caught_up(job: dict[str, Any]) -> bool:
    return (
        job["state"] == "running" and job["lag"] == 0 and job.get("backlog") == 0
        and job["committed_epoch"] == job["epoch"]
    )  # fmt: skip


def group_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Returns the committed offsets of a consumer group, as a lag tool does; empty without one."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    asked = [ConsumerGroupTopicPartitions(group)]
    client = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = client.list_consumer_group_offsets(asked, request_timeout=20).values()
    found = answer.result(21).topic_partitions
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def lines(count: int, seed: int, words: int = 200) -> list[bytes]:
    """Returns lines of ten words of a small vocabulary, so that every epoch touches old state."""
    chance = random.Random(seed)
    vocabulary = [f"w{i}" for i in range(words)]
    return [" ".join(chance.choices(vocabulary, k=10)).encode() for _ in range(count)]


def example(folder: Path, name: str, replacements: dict[str, str]) -> Path:
    """Copies a shipped example with texts of its job.yaml replaced; returns its folder."""
    from perseid.jobs.repository.job_folders import example as shipped

    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(shipped(name), folder, ignore=ignored, dirs_exist_ok=True)
    text = (folder / "job.yaml").read_text()
    for old, new in replacements.items():
        assert old in text, f"job.yaml of {name} has no {old!r}"
        text = text.replace(old, new)
    (folder / "job.yaml").write_text(text)
    return folder
