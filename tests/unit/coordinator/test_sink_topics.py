"""What people hear while an epoch waits for a sink topic that its broker does not give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import sink_topics
from perseid.coordinator.epoch_timeout import TOPICS_S
from perseid.coordinator.events import Event, SourceTopic, TopicsSeen
from perseid.coordinator.sink_topics import ASKED_S
from perseid.coordinator.watching import TopicsWatcher, Wanted
from perseid.errors import TransientAnswer
from support import kafka_handle
from support.coordinator import TOPIC_ID, Leader, World, job_spec

JOB = "wordcount"
LINES = SourceTopic("lines", TOPIC_ID, compacted=False, starts={0: 0, 1: 0})


@pytest.fixture
def leader(world: World) -> Leader:
    """Its job has one epoch in flight."""
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    world.produce(1, 10)
    leader.poll()
    assert leader.job().in_flight == 1
    return leader


def wait(leader: Leader, sinks: dict[str, str], seconds: float = ASKED_S) -> None:
    for _ in range(int(seconds / TOPICS_S)):
        leader.tick(TOPICS_S)
        leader.feed(TopicsSeen({"lines": LINES}, sinks=sinks))


def test_only_of_an_epoch_that_does_not_end_the_topics_are_asked_for(
    world: World, leader: Leader
) -> None:
    assert sink_topics.asked(leader.job()) == frozenset()
    wait(leader, {})
    assert sink_topics.asked(leader.job()) == job_spec().written_topics.keys()
    world.work(JOB)
    leader.listen()
    wait(leader, {}, 1)
    assert sink_topics.asked(leader.job()) == frozenset()


def test_what_the_broker_answers_is_an_event_once_an_epoch(world: World, leader: Leader) -> None:
    (sink,) = job_spec().written_topics
    wait(leader, {sink: "sink topic counts does not exist", "of-another-job": "so does this"}, 30)
    reported = [event for event in world.statuses[JOB].events if "sink topic" in event]
    assert reported == [
        "epoch 1 waits, and the job fails if the broker repeats this for 30 s: "
        "sink topic counts does not exist"
    ]
    assert not any("so does this" in event for event in world.statuses[JOB].events)
    assert world.statuses[JOB].state == "running"


def test_the_look_at_sources_reports_what_is_wrong_with_sinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, seen = kafka_handle.fake(), list[Event]()
    source, there, denied = kafka.topic(), kafka.topic(), kafka.topic()
    wanted = Wanted(partitions=frozenset({(source, 0)}))
    sinks = frozenset({there, denied, "gone"})
    watcher = TopicsWatcher(kafka.topics, lambda: wanted, seen.append, lambda: 0.0)
    watcher._look()
    wanted = replace(wanted, sinks=sinks)
    identities = kafka.topics.identities

    def asked(topics: list[str]) -> dict[str, str]:
        if denied in topics:
            raise TransientAnswer("the broker denies access to the topic")
        return identities(topics)

    monkeypatch.setattr(kafka.topics, "identities", asked)
    watcher._look()
    without, reported = seen
    assert isinstance(without, TopicsSeen) and isinstance(reported, TopicsSeen)
    assert without.sinks == {}
    assert reported.sinks == {
        denied: "the broker denies access to the topic",
        "gone": "sink topic gone does not exist; create it with "
        "`perseid topics create gone --partitions N`",
    }
