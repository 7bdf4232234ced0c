"""The verbs of `perseid jobs`: exit codes, one JSON document, the same words as the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perseid.cli import jobs, queries
from perseid.clocks import ManualClock
from perseid.jobs.operations.applying import Cluster
from perseid.records import JobStatus
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create, Delete
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore

Run = Callable[..., Any]


class Obedient(ManualClock):
    """A clock whose `sleep` lets the coordinator answer every request at once."""

    registry: Registry
    states: dict[str, str]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        write = self.registry.coordination.write
        for name, entry in self.registry.jobs().items():
            if self.registry.coordination.get(paths.status(name)) is not None:
                write(Delete(paths.status(name)))
            if entry.desired == "removed":
                write(Delete(paths.spec(name)))
                continue
            state = self.states.get(name, entry.desired)
            error = {"kind": "BadInputError", "text": "bad"} if state == "failed" else None
            status = JobStatus(entry.uuid, state, 1, entry.counter, 0, error)
            write(Create(paths.status(name), codec.encode(status)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    clock = Obedient()
    clock.registry, clock.states = Registry(FakeZooKeeper().session()), {}
    topics = FakeTopics(ModelKafka())
    topics.create("lines", 4)
    found = Cluster(clock.registry, topics, MemoryStore(), clock)

    @contextmanager
    def connected(data: Path | None) -> Iterator[Cluster]:
        yield found

    monkeypatch.setattr(jobs, "connected", connected)
    return found


def test_validate(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_remembered", lambda asked: [[] for _ in asked])
    text = run("jobs", "validate", "example:wordcount")
    assert text == "wordcount/job.yaml: job wordcount is valid\n"
    document = run("jobs", "validate", "example:grep", "--json")
    assert document["jobs"][0]["name"] == "grep"
    (tmp_path / "job.yaml").write_text("name: X\nsources: 5\n")
    text = run("jobs", "validate", str(tmp_path), code=1)
    assert "job.yaml:1: name: found 'X'" in text
    assert "job.yaml:2: sources: found 5" in text
    document = run("jobs", "validate", str(tmp_path), "--json", code=1)
    assert document["error"]["kind"] == "JobFileErrors"
    run("jobs", "validate", "/nowhere", code=2)
    run("jobs", "validate", "file:///x", code=3)


def test_the_life_of_a_job(run: Run, cluster: Cluster) -> None:
    assert "no jobs" in run("jobs", "list")
    text = run("jobs", "apply", "example:wordcount")
    assert "wordcount: new" in text
    assert "creates topic word-counts with 4 partitions" in text
    assert "wordcount: running" in text
    assert run("jobs", "apply", "example:wordcount", "--json")["jobs"][0]["action"] == "unchanged"
    (listed,) = run("jobs", "list", "--json")["jobs"]
    assert (listed["name"], listed["state"]) == ("wordcount", "running")
    assert "wordcount" in run("jobs", "list")
    assert run("jobs", "show", "wordcount", "--json")["spec"]["parallelism"] == 4
    assert "writes      word-counts (json) as counts" in run("jobs", "show", "wordcount")
    assert "starts it" in run("jobs", "stop", "wordcount", "--checkpoint")
    assert run("jobs", "start", "wordcount", "--json")["state"] == "running"
    run("jobs", "start", "wordcount", code=3)
    assert run("jobs", "remove", "wordcount", "--dry-run") == "wordcount: would be removed\n"
    removed = run("jobs", "remove", "wordcount", "--purge", "--json")
    assert (removed["state"], removed["purged_topics"]) == ("removed", ["word-counts"])
    assert cluster.registry.jobs() == {}
    run("jobs", "show", "wordcount", code=2)


def test_a_dry_run_and_a_diff_write_nothing(run: Run, cluster: Cluster) -> None:
    document = run("jobs", "apply", "example:wordcount", "--dry-run", "--json")
    assert document["jobs"][0]["created_topics"] == [{"topic": "word-counts", "partitions": 4}]
    assert "wordcount: new" in run("jobs", "diff", "example:wordcount")
    assert cluster.registry.jobs() == {}
    assert "wordcount: new" in run("jobs", "apply", "example:wordcount", "--no-wait")
    text = run("jobs", "stop", "wordcount", "--dry-run")
    assert text == "wordcount: would be stopped\n"
    assert cluster.registry.jobs()["wordcount"].desired == "running"


def test_a_job_that_fails_gives_1_and_the_next_step(run: Run, cluster: Cluster) -> None:
    clock = cluster.clock
    assert isinstance(clock, Obedient)
    clock.states["wordcount"] = "failed"
    text = run("jobs", "apply", "example:wordcount", code=1)
    assert "wordcount: failed: BadInputError: bad" in text
    assert "next: mend the job" in text
    assert "next        mend the job" in run("jobs", "show", "wordcount")


def test_a_diff_shows_changed_lines(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    run("init", str(tmp_path / "job"), "--json")
    cluster.topics.create("orders", 1)
    run("jobs", "apply", str(tmp_path / "job"))
    file = tmp_path / "job" / "job.yaml"
    file.write_text(file.read_text().replace("orders-spent", "spent"))
    text = run("jobs", "diff", str(tmp_path / "job"))
    assert "~ sinks.spent.topic: 'orders-spent' -> 'spent'" in text
    assert "+  spent: {input: spent, topic: spent," in text


def test_init(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "first"
    assert "would make" in run("init", str(folder), "--dry-run")
    assert not folder.exists()
    text = run("init", str(folder))
    assert f"perseid jobs apply {folder}" in text
    run("init", str(folder), code=3)


def test_without_a_cluster(run: Run, tmp_path: Path) -> None:
    assert "type `perseid up`" in run("jobs", "list", "--data", str(tmp_path), code=3)


@pytest.mark.parametrize(
    "verb", ["validate", "apply", "diff", "list", "show", "start", "stop", "remove"]
)
def test_help_has_an_example_and_both_options(run: Run, verb: str) -> None:
    text = run("jobs", verb, "--help")
    assert f"Example: perseid jobs {verb}" in text
    assert "--json" in text
    assert "--data" in text
