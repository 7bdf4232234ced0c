"""An epoch that does not end: only time in which it is seen to run counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator.epoch_timeout import TOPICS_S
from perseid.coordinator.events import SourceTopic, TopicsSeen
from perseid.coordinator.lifecycle import Phase
from perseid.jobs.model.spec import EpochSpec
from perseid.topics.records import Rewind
from support.coordinator import TOPIC_ID, Leader, World, job_spec

JOB = "wordcount"
TIMEOUT_S = 60.0


@pytest.fixture
def leader(world: World) -> Leader:
    """Its job runs, and has one epoch in flight."""
    world.programs["archive-1"] = job_spec(epoch=EpochSpec(timeout_s=TIMEOUT_S))
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    world.produce(1, 10)
    leader.poll()
    assert leader.job().in_flight == 1
    return leader


def wait(leader: Leader, seconds: float) -> None:
    """Kafka answers all the time."""
    for _ in range(int(seconds / TOPICS_S)):
        leader.tick(TOPICS_S)
        look(leader)


def has_all_its_time(leader: Leader) -> None:
    wait(leader, TIMEOUT_S)
    assert leader.job().phase is Phase.RUNNING
    wait(leader, 1)
    assert leader.job().phase is Phase.FAILED


def look(leader: Leader) -> None:
    topic = SourceTopic("lines", TOPIC_ID, compacted=False, starts={0: 0, 1: 0})
    leader.feed(TopicsSeen({"lines": topic}))


def test_the_job_fails_with_what_the_epoch_reads(world: World, leader: Leader) -> None:
    has_all_its_time(leader)
    error = world.statuses[JOB].error
    assert error is not None
    assert error["kind"] == "EpochTimeout"
    assert "epoch 1 has not ended on worker w1-1 after 61 s" in error["text"]
    assert error["text"].endswith("; it reads lines[1] 0 to 10")
    assert "`epoch.timeout`" in error["next"] and "perseid jobs apply" in error["next"]
    assert world.plans[JOB].owner is None


def test_a_changed_job_takes_the_epoch_back(world: World, leader: Leader) -> None:
    wait(leader, TIMEOUT_S + 1)
    world.programs["archive-2"] = job_spec()
    entry = replace(world.entries[JOB], counter=2, revision="r2", archive="archive-2")
    world.entries[JOB] = entry
    leader.look()
    assert [r.epoch for r in world.tokens[JOB] if isinstance(r, Rewind)] == [0]


def test_a_stop_that_waits_for_it_ends_with_it(world: World, leader: Leader) -> None:
    world.entries[JOB] = replace(world.entries[JOB], counter=2, desired="stopped")
    leader.look()
    wait(leader, TIMEOUT_S)
    assert world.statuses[JOB].state == "stopping"
    wait(leader, 1)
    assert (world.statuses[JOB].state, world.statuses[JOB].counter) == ("failed", 2)


def test_each_epoch_has_its_own_time(world: World, leader: Leader) -> None:
    for _ in range(3):
        wait(leader, TIMEOUT_S - 1)
        world.work(JOB)
        leader.listen()
        world.produce(0, 10)
        leader.poll()
    assert leader.job().phase is Phase.RUNNING
    wait(leader, TIMEOUT_S + 1)
    assert leader.job().phase is Phase.FAILED


def test_time_in_which_kafka_does_not_answer_is_not_the_epochs(
    world: World, leader: Leader
) -> None:
    leader.tick(10 * TIMEOUT_S)
    has_all_its_time(leader)


def test_looks_that_waited_for_the_leader_count_once(world: World, leader: Leader) -> None:
    wait(leader, TIMEOUT_S - 2)
    for _ in range(30):
        look(leader)
    assert leader.job().phase is Phase.RUNNING


def test_an_idle_job_has_no_epoch_to_end(world: World, leader: Leader) -> None:
    world.work(JOB)
    leader.listen()
    for _ in range(3):
        wait(leader, TIMEOUT_S - 1)
        world.work(JOB)  # one without input, each 10 s
        leader.listen()
    assert leader.job().phase is Phase.RUNNING


def test_a_restore_takes_nothing_of_it(world: World, leader: Leader) -> None:
    wait(leader, TIMEOUT_S - 1)
    world.report(JOB, "failed", error="the broker is away")
    leader.listen()
    leader.look()
    assert leader.job().phase is Phase.RESTORING
    wait(leader, 3 * TIMEOUT_S)
    world.report(JOB, "running")
    leader.listen()
    has_all_its_time(leader)


def test_a_new_leader_begins_again(world: World, leader: Leader) -> None:
    wait(leader, TIMEOUT_S - 1)
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    has_all_its_time(leader)
