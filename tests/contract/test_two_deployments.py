"""Two deployments, each with a ZooKeeper of its own, and one Kafka: jobs of one name."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.clocks import SystemClock
from perseid.coordinator import foreign
from perseid.coordinator.loading import Clients, Known, Loader
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.model.trees import folder_tree, store_archive
from perseid.jobs.repository.job_folders import example
from perseid.records import JobEntry, LeaderInfo, Plan
from perseid.registry import FencedRegistry, Registry, lead
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore
from perseid.topics import codec, names
from perseid.topics.records import Begin, Claim, Token
from support.kafka_handle import Kafka

DAY_MS = 24 * 3600 * 1000


class Clock(SystemClock):
    """That of a machine; the wall clock may be wrong by any time, and be set."""

    later_s = 0.0
    ahead_ms = 0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.later_s

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms + int(self.later_s * 1000)


class Deployment:
    """One of them: the job has a UUID of its own there."""

    def __init__(self, kafka: Kafka, job: str, job_uuid: str, folder: Path) -> None:
        self.kafka, self.job, self.folder = kafka, job, folder / job_uuid
        self.clock, self.known = Clock(), Known()
        self.registry = Registry(FakeZooKeeper().session())
        fence = lead(self.registry, lambda epoch: LeaderInfo("c1", epoch, 1, ""))
        assert fence is not None
        self.fenced = FencedRegistry(self.registry, fence)
        self.store = MemoryStore()
        sha = store_archive(self.store, folder_tree(example("wordcount"), "wordcount"))
        self.entry = JobEntry(job, job_uuid, "r1", sha, "running", 1, 0)
        self.registry.put_job_entry(self.entry, None)

    def loader(self, epoch: int) -> Loader:
        kafka = self.kafka
        clients = Clients(
            self.registry, kafka.topics, kafka.reader(), kafka.writer, kafka.ledger(),
            kafka.transactions, self.store, self.folder, self.clock,
        )  # fmt: skip
        return Loader(clients, epoch, "c1", self.known)

    def begin(self, epoch: int, *, tokens: bool = True) -> None:
        """As its leader does: reads the job, opens the chain, places the job, issues a token."""
        loaded = self.loader(epoch).load(self.entry)
        begin = Begin(epoch, self.entry.uuid, loaded.highest_epoch)
        offset = self.kafka.writer.append(names.tokens(self.job), 0, codec.encode(begin))
        if not tokens:
            return  # there is no worker to place it on
        self.fenced.put_plan(
            Plan.fused(self.job, self.entry.uuid, 1, "w1-1", "r1", self.entry.archive, 1,
                       begin.epoch, offset)
        )  # fmt: skip
        self.last = begin.epoch, offset
        self.issue(epoch)

    def issue(self, epoch: int) -> None:
        """One more token."""
        number, offset = self.last
        token = Token(epoch, self.entry.uuid, number + 1, offset, "r1", 1, (), 1)
        offset = self.kafka.writer.append(names.tokens(self.job), 0, codec.encode(token))
        self.last = number + 1, offset

    def watch(self, epoch: int) -> None:
        """What it does while it cannot know whether the other one continues."""
        with pytest.raises(RetryableError, match="may be in use") as unknown:
            self.loader(epoch).load(self.entry)
        assert "if no other token comes in 60 s it begins" in str(unknown.value)


@pytest.fixture
def job(kafka: Kafka) -> str:
    if kafka.model is not None:
        kafka.model.clock = SystemClock()
    if "lines" not in kafka.topics.describe(["lines"]):
        kafka.topics.create("lines", 1)
    return f"shared-{uuid.uuid4().hex[:8]}"  # its topics are made as it is read


@pytest.mark.parametrize("ahead_ms", [0, 30 * DAY_MS, -30 * DAY_MS])
def test_the_second_one_does_not_begin_while_the_first_one_runs(
    kafka: Kafka, job: str, tmp_path: Path, ahead_ms: int
) -> None:
    """Whatever their clocks show, and the broker's."""
    ours, theirs = (Deployment(kafka, job, own, tmp_path) for own in ("uuid-a", "uuid-b"))
    theirs.clock.ahead_ms = ahead_ms
    ours.begin(epoch=9)
    place = (names.tokens(job), 0)
    theirs.watch(epoch=1)
    theirs.clock.later_s = 10.0
    ours.issue(epoch=9)
    end = kafka.topics.ends([place])[place]
    with pytest.raises(PermanentError) as refused:  # also with a lower coordinator epoch
        theirs.loader(epoch=1).load(theirs.entry)
    text = str(refused.value)
    assert f"{place[0]} is in use: job UUID uuid-a" in text
    assert "here is uuid-b and has never run" in text
    assert "10 s ago" in text
    assert "another `name:` in job.yaml" in text
    assert "without --purge" in text
    assert kafka.topics.ends([place])[place] == end  # not even a claim
    assert ours.loader(epoch=9).load(ours.entry).begun
    theirs.watch(epoch=1)  # somebody has started the job again


def test_a_job_that_was_removed_here_may_begin_again(
    kafka: Kafka, job: str, tmp_path: Path
) -> None:
    ours = Deployment(kafka, job, "uuid-a", tmp_path)
    ours.begin(epoch=1)
    again = replace(ours.entry, uuid="uuid-c")
    assert not ours.loader(epoch=1).load(again).begun


@pytest.mark.parametrize("ahead_ms", [0, 30 * DAY_MS, -30 * DAY_MS])
def test_one_whose_zookeeper_was_lost_begins_again_a_minute_later(
    kafka: Kafka, job: str, tmp_path: Path, ahead_ms: int
) -> None:
    Deployment(kafka, job, "uuid-a", tmp_path).begin(epoch=1)
    again = Deployment(kafka, job, "uuid-d", tmp_path)
    again.clock.ahead_ms = ahead_ms
    again.watch(epoch=1)
    again.clock.later_s = foreign.ALIVE_S + 1
    assert not again.loader(epoch=1).load(again.entry).begun


def test_a_job_that_never_ran_may_be_applied_again_at_once(
    kafka: Kafka, job: str, tmp_path: Path
) -> None:
    ours = Deployment(kafka, job, "uuid-a", tmp_path)
    ours.begin(epoch=1, tokens=False)
    assert not ours.loader(epoch=1).load(replace(ours.entry, uuid="uuid-c")).begun


def test_the_first_one_finds_that_its_log_was_taken_over(
    kafka: Kafka, job: str, tmp_path: Path
) -> None:
    ours, theirs = (Deployment(kafka, job, own, tmp_path) for own in ("uuid-a", "uuid-b"))
    ours.begin(epoch=1)
    theirs.watch(epoch=2)
    theirs.clock.later_s = foreign.ALIVE_S + 1
    theirs.begin(epoch=2)  # after a pause of ours, in which nothing was issued
    place = (names.tokens(job), 0)
    end = kafka.topics.ends([place])[place]
    for epoch in (1, 3):
        with pytest.raises(PermanentError, match="was taken over by job UUID uuid-b") as refused:
            ours.loader(epoch).load(ours.entry)
    assert kafka.topics.ends([place])[place] == end  # a claim would shut the other one out
    assert "here is uuid-a" in str(refused.value)
    assert f"perseid jobs remove {job}" in str(refused.value)


def test_a_begin_of_a_leader_that_was_shut_out_takes_nothing_over(
    kafka: Kafka, job: str, tmp_path: Path
) -> None:
    ours = Deployment(kafka, job, "uuid-a", tmp_path)
    ours.begin(epoch=4)
    kafka.writer.append(names.tokens(job), 0, codec.encode(Claim(5, "c2")))
    kafka.writer.append(names.tokens(job), 0, codec.encode(Begin(3, "uuid-z", 0)))
    assert ours.loader(epoch=5).load(ours.entry).begun
