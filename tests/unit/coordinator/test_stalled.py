"""Input after an open transaction: lag counts it, and after a while it is reported."""

from __future__ import annotations

from perseid.coordinator import stalled, view
from perseid.coordinator.events import SourceTopic, TopicsSeen
from perseid.coordinator.loading import high_watermarks
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.topics.admin import Partition
from support.coordinator import TOPIC_ID, Leader, World
from support.coordinator_steps import run

PLACE = ("lines", 0)


def look(leader: Leader, highs: dict[Partition, int]) -> None:
    topic = SourceTopic("lines", TOPIC_ID, False, {0: 0, 1: 0})
    leader.feed(TopicsSeen({"lines": topic}, highs))


def test_what_a_transaction_holds_back_is_lag_and_reported_with_its_place(
    world: World, leader: Leader
) -> None:
    run(world, leader)
    run(world, leader)
    assert view.lag(leader.job()) == 0
    end = leader.job().inputs.ends[PLACE]
    look(leader, {PLACE: end + 11, ("lines", 1): 0, ("other", 0): 99})
    assert (view.lag(leader.job()), leader.job().inputs.backlog) == (11, 0)
    assert view.job_status(leader.job(), world.now)["stalled_input"] == []
    world.time_s += stalled.REPORTED_S
    look(leader, {PLACE: end + 12, ("lines", 1): 0})
    assert view.job_status(leader.job(), world.now)["stalled_input"] == [
        {"topic": "lines", "partition": 0, "offset": end, "records": 12,
         "for_s": stalled.REPORTED_S}
    ]  # fmt: skip
    assert stalled.longest_s(leader.job().inputs, world.now) == stalled.REPORTED_S


def test_it_ends_with_the_transaction(world: World, leader: Leader) -> None:
    run(world, leader)
    end = leader.job().inputs.ends[PLACE]
    look(leader, {PLACE: end + 5})
    world.time_s += 60
    world.produce(0, 5)  # it is committed: they can be read
    leader.poll()
    world.work("wordcount")
    leader.listen()
    look(leader, {PLACE: end + 5})
    assert stalled.longest_s(leader.job().inputs, world.now) == 0
    assert view.lag(leader.job()) == 0


def test_another_transaction_is_counted_again(world: World, leader: Leader) -> None:
    """A producer that commits again and again is well."""
    run(world, leader)
    for _ in range(9):
        look(leader, {PLACE: leader.job().inputs.ends[PLACE] + 5})
        world.time_s += stalled.REPORTED_S / 2
        world.produce(0, 5)
        leader.poll()
        look(leader, {PLACE: leader.job().inputs.ends[PLACE] + 5})
        assert stalled.longest_s(leader.job().inputs, world.now) == 0


def test_high_watermarks_are_asked_for_of_topics_that_there_are() -> None:
    kafka = ModelKafka()
    topics = FakeTopics(kafka)
    topics.create("lines", 2)
    kafka.append(PLACE, None, b"x")
    seen = {"lines": SourceTopic("lines", "id", False, {0: 0, 1: 0}), "gone": None}
    assert high_watermarks(topics, seen) == {PLACE: 1, ("lines", 1): 0}
    assert high_watermarks(topics, {"gone": None}) == {}
