"""`perseid checkpoint`: what is asked for, what counts as the answer, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perseid.cli import checkpoint, jobs, main
from perseid.clocks import ManualClock
from perseid.jobs.operations import checkpointing
from perseid.jobs.operations.applying import Cluster
from perseid.records import CheckpointPointer, CheckpointPointers, JobEntry, JobStatus
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create, Set
from perseid.testing.kafka import FakeLogReader, FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore
from perseid.topics import codec as records
from perseid.topics import names
from perseid.topics.records import Begin, Claim, Token, TokenRecord

JOB = "counts"
Answer = Callable[[], None]


class Answering(ManualClock):
    """A clock whose first `sleep` lets the coordinator do something."""

    answer: Answer | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        answer, self.answer = self.answer, None
        if answer is not None:
            answer()


class Running:
    """A job in a registry and a token log in memory."""

    def __init__(self) -> None:
        self.clock, self.kafka = Answering(), ModelKafka()
        topics = FakeTopics(self.kafka)
        topics.create(names.tokens(JOB), 1)
        self.registry = Registry(FakeZooKeeper().session())
        self.registry.put_job_entry(JobEntry(JOB, "u1", "r", "a", "running", 3, 0), None)
        self.cluster = Cluster(self.registry, topics, MemoryStore(), self.clock)
        tokens = [self.token(epoch) for epoch in (5, 6, 7)]
        log: list[TokenRecord] = [Claim(1, "c1"), Begin(1, "u1", 4), *tokens, Claim(2, "c2")]
        for record in log:
            self.kafka.append((names.tokens(JOB), 0), None, records.encode(record))

    def token(self, epoch: int) -> Token:
        return Token(1, "u1", epoch, epoch - 4, "r", 1, (), 0)

    def write(self, path: str, value: object) -> None:
        data = codec.encode(value)
        there = self.registry.coordination.get(path) is not None
        self.registry.coordination.write(Set(path, data) if there else Create(path, data))

    def point(self, epoch: int, uuid: str = "u1") -> None:
        pointer = CheckpointPointer(epoch, 1, 1, "r", epoch, "m", 1, 2048, 0)
        self.write(paths.checkpoint(JOB), CheckpointPointers(uuid, (pointer,)))

    def state(self, state: str, **fields: Any) -> None:
        error = {"kind": "BadInputError", "text": "a bad record"} if state == "failed" else None
        self.write(paths.status(JOB), JobStatus("u1", state, 1, 3, 0, error, **fields))

    @property
    def entry(self) -> JobEntry:
        stored = self.registry.job_entry(JOB)
        assert stored is not None
        return stored.value

    def change(self, **fields: Any) -> None:
        from dataclasses import replace

        self.registry.put_job_entry(replace(self.entry, **fields), -1)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    found = Running()

    @contextmanager
    def connected(_data: Path | None) -> Iterator[Cluster]:
        yield found.cluster

    monkeypatch.setattr(jobs, "connected", connected)
    monkeypatch.setattr(checkpoint, "log_reader", lambda _: FakeLogReader(found.kafka))
    return found


@pytest.fixture
def run(run: Callable[..., Any]) -> Callable[..., Any]:
    return partial(run, "checkpoint", JOB)


def test_it_waits_for_a_checkpoint_above_the_newest_token(running: Running, run: Any) -> None:
    running.point(7)
    running.clock.answer = lambda: running.point(9)
    document = run("--json")
    assert (document["state"], document["above_epoch"]) == ("complete", 7)
    assert document["checkpoint"]["epoch"] == 9
    assert (running.entry.checkpoint_above, running.entry.counter) == (7, 3)


def test_what_it_prints(running: Running, run: Any) -> None:
    running.clock.answer = lambda: running.point(8)
    assert run() == "counts: checkpoint of epoch 8 complete, 2048 bytes\n"
    assert run("--no-wait") == "counts: a checkpoint above epoch 7 asked for\n"
    assert run("--dry-run") == "counts: a checkpoint above epoch 7 would be asked for\n"


def test_a_dry_run_writes_nothing(running: Running, run: Any) -> None:
    before = running.entry
    run("--dry-run")
    assert running.entry == before


def test_a_checkpoint_of_an_earlier_life_is_no_answer(running: Running, run: Any) -> None:
    running.clock.answer = lambda: running.point(9, uuid="u0")
    text = run("--timeout", "5", code=1)
    assert "the request is written, but after 5 s" in text
    assert "no coordinator leads" in text


def test_a_job_that_does_not_run_is_refused(running: Running, run: Any) -> None:
    running.state("failed")
    text = run(code=3)
    assert "has failed, so it takes no checkpoint: BadInputError: a bad record" in text
    assert "perseid jobs apply" in text
    running.change(desired="stopped", counter=4)
    assert "`perseid jobs start counts` starts it" in run(code=3)
    assert running.entry.checkpoint_above is None


def test_a_job_that_ends_meanwhile_is_reported(running: Running, run: Any) -> None:
    running.clock.answer = lambda: running.state("failed")
    assert "BadInputError" in run(code=3)
    running.state("running")
    running.clock.answer = lambda: running.change(desired="stopped")
    assert "another user stopped or removed it" in run(code=3)


def test_an_unknown_job_is_named(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["checkpoint", "count"]) == 2
    assert "did you mean counts?" in capsys.readouterr().err


def test_the_last_epoch_is_found_after_any_number_of_claims(running: Running) -> None:
    logs, topics = FakeLogReader(running.kafka), FakeTopics(running.kafka)
    place = (names.tokens(JOB), 0)
    for leader in range(3, 3 + 2 * checkpointing.RECORDS_READ):
        running.kafka.append(place, None, records.encode(Claim(leader, "c")))
    assert checkpointing.last_epoch(topics, logs, JOB) == 7
    topics.create(names.tokens("empty"), 1)
    assert checkpointing.last_epoch(topics, logs, "empty") == 0
