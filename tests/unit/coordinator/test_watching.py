"""What the watchers tell, and in which order."""

from __future__ import annotations

import pytest

from perseid.coordinator.events import EndsSeen, Event, ProgressSeen
from perseid.coordinator.watching import EndsWatcher, ProgressWatcher, Wanted
from perseid.errors import RetryableError
from perseid.testing import kafka_handle
from perseid.topics import names
from perseid.topics.log import ProgressLog
from perseid.topics.records import EpochDone, FragmentState


def test_a_job_applied_again_under_its_name_is_told_the_ends() -> None:
    kafka = kafka_handle.fake()
    topic = kafka.topic()
    place = (topic, 0)
    wanted = [Wanted(frozenset({"first-uuid"}), frozenset({place}), True)]
    seen: list[Event] = []
    watcher = EndsWatcher(kafka.topics, lambda: wanted[0], seen.append, lambda: 0.0)
    watcher._look()
    watcher._look()
    assert seen == [EndsSeen({place: 0})]
    wanted[0] = Wanted(frozenset({"second-uuid"}), frozenset({place}), True)
    watcher._look()
    assert seen == [EndsSeen({place: 0})] * 2
    wanted[0] = Wanted()  # nothing runs for a while
    watcher._look()
    wanted[0] = Wanted(frozenset({"second-uuid"}), frozenset({place}), True)
    watcher._look()
    assert seen == [EndsSeen({place: 0})] * 3


def test_ends_are_looked_at_in_front_of_the_end_of_an_epoch() -> None:
    """The token that it makes due would else name input as of the last look, 50 ms before."""
    kafka = kafka_handle.fake()
    source, job = kafka.topic(), kafka.job()
    kafka.topics.create(names.progress(job), 1)
    place, seen = (source, 0), list[Event]()
    ends = EndsWatcher(kafka.topics, Wanted, seen.append, lambda: 0.0)
    watcher = ProgressWatcher(
        job, 0, kafka.reader(), seen.append, lambda _: ends.look_at(frozenset({place}))
    )
    kafka.writer.append(source, 0, b"record")
    running = FragmentState("u", 1, "w", "running", 0)
    done = EpochDone("u", 1, "w", 1, 1, 10, 10, 5)
    progress = ProgressLog(job, writer=kafka.writer)
    for record in (running, done):
        progress.append(record)
    watcher._look()
    expected = [ProgressSeen(job, running), EndsSeen({place: 1}), ProgressSeen(job, done)]
    assert seen == expected


def test_a_broker_that_does_not_tell_its_ends_holds_no_epoch_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, seen = kafka_handle.fake(), list[Event]()
    ends = EndsWatcher(kafka.topics, Wanted, seen.append, lambda: 0.0)

    def away(*_: object) -> None:
        raise RetryableError("no answer")

    monkeypatch.setattr(kafka.topics, "ends", away)
    ends.look_at(frozenset({("t", 0)}))
    assert seen == []
