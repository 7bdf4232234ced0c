"""The end-offset watcher tells every job the ends, also one that comes after the last change."""

from __future__ import annotations

from perseid.coordinator.events import EndsSeen, Event
from perseid.coordinator.watching import EndsWatcher, Wanted
from perseid.testing import kafka_handle


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
