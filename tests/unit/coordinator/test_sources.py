from __future__ import annotations

import pytest

from perseid.coordinator.events import EndsSeen, SourceTopic, TopicsSeen
from perseid.coordinator.job.positions import ranges_of
from support.coordinator import TOPIC_ID, Leader, World, job_entry

JOB = "wordcount"


def seen(
    leader: Leader, *, topic_id: str = TOPIC_ID, compacted: bool = False,
    starts: dict[int, int] | None = None, asked_s: float = float("inf"),
) -> None:  # fmt: skip
    topic = SourceTopic("lines", topic_id, compacted, starts or {0: 0, 1: 0})
    leader.feed(TopicsSeen({"lines": topic}, asked_s=asked_s))


def error_of(world: World) -> dict[str, object]:
    status = world.statuses[JOB]
    assert status.state == "failed"
    assert status.error is not None
    return status.error


def test_a_topic_that_is_what_it_was_changes_nothing(world: World, leader: Leader) -> None:
    before = leader.job()
    seen(leader)
    assert leader.job() == before


def test_a_recreated_topic_stops_the_job(world: World, leader: Leader) -> None:
    seen(leader, topic_id="topic-2")
    assert error_of(world)["kind"] == "TopicIdentityChanged"
    world.produce(0, 100)
    leader.poll()
    leader.tick(60)
    assert world.valid(JOB) == {}


def test_a_deleted_topic_stops_the_job(world: World, leader: Leader) -> None:
    for passed_s in range(30):
        leader.feed(TopicsSeen({"lines": None}))
        assert world.statuses[JOB].state == "running", passed_s
        leader.tick(1)
    leader.feed(TopicsSeen({"lines": None}))
    error = error_of(world)
    assert error["kind"] == "PermanentError"
    assert "source topic lines does not exist any more" in str(error["text"])
    assert "(the same answer for 30 s)" in str(error["text"])


def test_a_topic_that_a_broker_does_not_know_for_a_second_is_an_event(
    world: World, leader: Leader
) -> None:
    """While brokers restart one of them answers so, in between good looks."""
    for _ in range(20):
        leader.feed(TopicsSeen({"lines": None}))
        leader.tick(1)
        seen(leader)
        leader.tick(1)
    assert world.statuses[JOB].state == "running"
    assert "if the broker repeats this for 30 s, the job fails" in world.statuses[JOB].events[-1]


def test_an_answer_before_an_outage_and_one_after_it_are_not_half_a_minute_of_answers(
    world: World, leader: Leader
) -> None:
    """A broker that starts and dies again, and is back after minutes in which none answered."""
    leader.feed(TopicsSeen({"lines": None}))
    leader.tick(300)
    leader.feed(TopicsSeen({"lines": None}))
    leader.tick(1)
    seen(leader)
    assert world.statuses[JOB].state == "running"


def test_a_compacted_topic_is_refused(world: World, leader: Leader) -> None:
    seen(leader, compacted=True)
    assert "compacted" in str(error_of(world)["text"])


def test_input_that_retention_took_stops_the_job(world: World, leader: Leader) -> None:
    world.produce(1, 50)
    leader.poll()
    seen(leader, starts={0: 0, 1: 50})  # up to the position: everything was named in time
    assert world.statuses[JOB].state == "running"
    seen(leader, starts={0: 0, 1: 51})
    error = error_of(world)
    assert error["kind"] == "ReplayDataLost"
    assert "needed=50, earliest=51" in str(error["text"])


def test_new_partitions_are_read_from_their_first_record(world: World, leader: Leader) -> None:
    world.produce(0, 5)
    leader.poll()
    world.work(JOB)
    leader.listen()
    world.produce(2, 7)  # before anybody has noticed the partition
    leader.poll()
    assert len(world.valid(JOB)) == 1
    seen(leader, starts={0: 0, 1: 0, 2: 0})
    leader.poll()
    token = list(world.valid(JOB).values())[-1]
    assert [(r.partition, r.start, r.end) for r in ranges_of(token)] == [(2, 0, 7)]


def test_a_new_leader_finds_new_partitions_in_the_tokens(world: World, leader: Leader) -> None:
    test_new_partitions_are_read_from_their_first_record(world, leader)
    successor = Leader(world)
    successor.look()
    assert successor.job().inputs.positions == leader.job().inputs.positions


@pytest.mark.parametrize("phase", ["stopped", "failed"])
def test_a_job_that_does_not_run_is_not_judged(world: World, leader: Leader, phase: str) -> None:
    if phase == "failed":
        world.report(JOB, "failed", permanent=True, error_kind="BadInputError")
    else:
        world.workers = []
        leader.look()
        world.entries[JOB] = job_entry(desired="stopped", counter=2)
        leader.look()
    leader.listen()
    before = world.statuses[JOB]
    seen(leader, topic_id="topic-2")
    assert world.statuses[JOB] == before


def test_a_source_that_ends_below_the_position_stops_the_job(world: World, leader: Leader) -> None:
    """Records that are written there later have offsets that were read: no job would see them."""
    world.produce(0, 1000)
    leader.tick(1)
    leader.poll()
    world.work(JOB)
    leader.listen()
    before = len(world.valid(JOB))
    world.ends["lines", 0] = 900
    leader.tick(1)
    leader.poll()
    seen(leader)
    error = error_of(world)
    assert error["kind"] == "LogTruncated"
    assert "LogTruncated(lines, 0, needed=1000, end=900)" in str(error["text"])
    assert "or try it again as it is" not in str(error["next"])
    world.produce(0, 100)
    leader.poll()
    leader.tick(60)
    assert len(world.valid(JOB)) == before
    world.entries[JOB] = job_entry(counter=2)  # `jobs start`, and still the same log
    world.ends["lines", 0] = 900
    leader.look()
    leader.tick(1)
    leader.poll()
    seen(leader)
    assert error_of(world)["kind"] == "LogTruncated"


def test_what_a_source_that_was_cut_is_now_decides_what_is_reported(
    world: World, leader: Leader
) -> None:
    """A topic that was made again ends below the position, too. Until it is known, no token."""
    world.produce(0, 1000)
    leader.tick(1)
    leader.poll()
    world.work(JOB)
    leader.listen()
    before = len(world.valid(JOB))
    world.ends["lines", 0] = 900
    leader.tick(1)
    leader.poll()
    world.ends["lines", 0] = 1100  # above the position again: 100 records would be left out
    leader.tick(1)
    leader.poll()
    seen(leader, asked_s=world.time_s - 10)  # this look was begun before
    leader.feed(TopicsSeen({"lines": None}))  # and this broker does not know the topic yet
    assert world.statuses[JOB].state == "running"
    assert len(world.valid(JOB)) == before
    seen(leader, topic_id="topic-2")
    assert error_of(world)["kind"] == "TopicIdentityChanged"


def test_an_end_from_before_the_position_was_reached_means_nothing(
    world: World, leader: Leader
) -> None:
    """Two threads look at ends: an older answer may come after the token of a newer one."""
    asked_s = world.time_s + 1
    leader.tick(2)
    world.produce(0, 1000)
    leader.poll()
    leader.feed(EndsSeen({("lines", 0): 400}, asked_s))
    assert world.statuses[JOB].state == "running"
    assert leader.job().inputs.positions["lines", 0].offset == 1000


def test_a_job_whose_source_was_cut_while_there_was_no_leader_is_stopped(
    world: World, leader: Leader
) -> None:
    world.produce(0, 1000)
    leader.poll()
    world.work(JOB)
    world.ends["lines", 0] = 900
    successor = Leader(world)
    successor.look()
    successor.tick(1)
    successor.poll()
    seen(successor)
    assert error_of(world)["kind"] == "LogTruncated"
