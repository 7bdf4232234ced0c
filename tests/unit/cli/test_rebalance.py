"""`perseid rebalance`: what would move, what is asked for, and when it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseid.cli import jobs, main
from perseid.clocks import ManualClock
from perseid.coordinator import rebalance_requests
from perseid.jobs.operations.applying import Cluster
from perseid.records import JobEntry, JobFailures, JobStatus, Plan, WorkerInfo
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create, Set
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore


class Leading(ManualClock):
    """A clock whose `sleep` lets the leader do the next thing."""

    def __init__(self) -> None:
        super().__init__()
        self.does: list[Callable[[], None]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.does:
            self.does.pop(0)()


class Shares:
    """Three jobs of one fragment on w1, and a worker w2 that has none."""

    def __init__(self) -> None:
        self.clock = Leading()
        self.registry = Registry(FakeZooKeeper().session())
        self.cluster = Cluster(
            self.registry, FakeTopics(ModelKafka()), MemoryStore(), self.clock
        )
        for worker in ("w1", "w2"):
            self.registry.register_worker(WorkerInfo(worker, f"{worker}-1", "h", 1, 1, 2, "l", 0))
        for at, name in enumerate(("first", "second", "third")):
            self.registry.put_job_entry(JobEntry(name, "u1", "r", "a", "running", 1, at), None)
            self.place(name, "w1-1", 1)
            self.state(name, "running", 1)

    def place(self, job: str, owner: str, generation: int) -> None:
        plan = Plan.fused(job, "u1", generation, owner, "r", "a", 1, 0, 0, reason="it was uneven")
        self.write(paths.plan(job), plan)

    def state(self, job: str, state: str, generation: int) -> None:
        self.write(paths.status(job), JobStatus("u1", state, generation, 1, 0))

    def write(self, path: str, value: object) -> None:
        data = codec.encode(value)
        there = self.registry.coordination.get(path) is not None
        self.registry.coordination.write(Set(path, data) if there else Create(path, data))

    def entry(self, job: str) -> JobEntry:
        stored = self.registry.job_entry(job)
        assert stored is not None
        return stored.value

    def asked(self) -> list[str]:
        return [n for n in self.registry.job_names() if self.entry(n).rebalance_until_ms]


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Shares:
    found = Shares()

    @contextmanager
    def connected(_data: Path | None) -> Iterator[Cluster]:
        yield found.cluster

    monkeypatch.setattr(jobs, "connected", connected)
    return found


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main.run(["rebalance", *words]) == code
    shown = capsys.readouterr()
    return json.loads(shown.out) if "--json" in words else shown.out + shown.err


def test_a_dry_run_prints_the_moves_and_writes_nothing(
    shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "w1-1 has 3 fragments, and w2-1 has 0"
    move = {"job": "first", "fragment": "whole", "from": "w1-1", "to": "w2-1", "why": why}
    found = answer(capsys, "--dry-run", "--json")
    assert found == {"state": "would be moved", "moves": [move]}
    text = answer(capsys, "--dry-run")
    assert text == f"first: fragment whole from w1-1 to w2-1 would be moved: {why}\n"
    assert answer(capsys, "second", "--dry-run", "--json")["moves"][0]["job"] == "second"
    assert shares.asked() == []


def test_it_waits_until_what_moved_runs(
    shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    def moved() -> None:
        shares.place("second", "w2-1", 2)

    shares.clock.does = [
        lambda: None, moved, lambda: shares.state("second", "restoring", 2),
        lambda: shares.state("second", "running", 2),
    ]  # fmt: skip
    found = answer(capsys, "--json")
    assert found["state"] == "moved"
    assert [(m["job"], m["from"], m["to"]) for m in found["moves"]] == [("second", "w1-1", "w2-1")]
    assert shares.clock.does == []
    assert shares.asked() == ["first", "second", "third"], "the leader chooses"
    assert {shares.entry(n).counter for n in shares.asked()} == {1}
    assert "nothing to move: the workers' shares are even" in answer(capsys)


def test_without_waiting_it_is_asked_for(
    shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "asked for" in answer(capsys, "third", "--no-wait")
    assert shares.asked() == ["third"]
    until_ms = shares.entry("third").rebalance_until_ms
    assert until_ms == shares.clock.wall_ms() + 1000 * rebalance_requests.VALID_S


def test_the_time_is_over(shares: Shares, capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "--timeout", "5", code=1)
    assert "after 5 s 1 fragments are still to move" in text
    assert "no coordinator leads" in text


@pytest.mark.parametrize("how", ["state", "plan", "failing", "revision"])
def test_what_does_not_run_is_not_moved(
    how: str, shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    if how == "state":
        shares.state("first", "restoring", 1)
    elif how == "plan":
        shares.place("first", "w1-1", 2)
    elif how == "failing":
        shares.write(paths.failures("first"), JobFailures("u1", 1, 0))
    else:
        shares.registry.put_job_entry(replace(shares.entry("first"), archive="b"), -1)
    assert answer(capsys, "--dry-run", "--json")["moves"][0]["job"] == "second"
    assert "of first move when it runs" in answer(capsys, "first", code=3)


def test_a_job_that_is_stopped_or_unknown(
    shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    shares.registry.put_job_entry(replace(shares.entry("first"), desired="stopped"), -1)
    assert "`perseid jobs start first`" in answer(capsys, "first", code=3)
    assert "did you mean first?" in answer(capsys, "firs", code=2)


def test_a_worker_that_leaves_gets_nothing(
    shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving = WorkerInfo("w2", "w2-1", "h", 1, 1, 2, "l", 0, leaving=True)
    shares.registry.change_worker(leaving)
    assert "nothing to move" in answer(capsys)
