"""Topics: what TopicReader and TopicChanger promise, on the model and on a broker."""

from __future__ import annotations

import time

import pytest

from perseid.errors import PermanentError, UsageError
from perseid.testing.kafka_handle import Kafka


def test_create_is_explicit_and_done_once(kafka: Kafka) -> None:
    name = kafka.topic(3, max_message_bytes="2000")
    assert kafka.topics.create(name, 5) is False
    info = kafka.topics.describe([name, "not-there"])
    assert list(info) == [name]
    assert (info[name].partitions, info[name].message_bytes_max) == (3, 2000)
    assert not info[name].compacted
    assert name in kafka.topics.list()


def test_a_compacted_topic_is_known_as_such(kafka: Kafka) -> None:
    name = kafka.topic(1, cleanup_policy="compact")
    assert kafka.topics.describe([name])[name].compacted


def test_bad_requests_are_permanent_and_create_nothing(kafka: Kafka) -> None:
    with pytest.raises(UsageError, match="a b"):
        kafka.topics.create("a b", 1)
    with pytest.raises(PermanentError, match="at least 1"):
        kafka.topics.create("empty", 0)
    with pytest.raises(PermanentError, match="nowhere"):
        kafka.topics.ends([("nowhere", 0)])
    assert not {"a b", "empty", "nowhere"} & set(kafka.topics.list())


def test_offsets_of_many_partitions(kafka: Kafka) -> None:
    name = kafka.topic(3)
    for _ in range(4):
        kafka.writer.append(name, 1, b"v")
    places = [(name, p) for p in range(3)]
    assert kafka.topics.ends(places) == {(name, 0): 0, (name, 1): 4, (name, 2): 0}
    kafka.topics.delete_records({(name, 1): 3})
    assert kafka.topics.starts(places) == {(name, 0): 0, (name, 1): 3, (name, 2): 0}
    assert kafka.topics.ends([]) == {}
    with pytest.raises(PermanentError, match=name):
        kafka.topics.delete_records({(name, 0): 9})


def test_offsets_at_a_time(kafka: Kafka) -> None:
    name = kafka.topic()
    kafka.writer.append(name, 0, b"v")
    assert kafka.topics.offsets_at([(name, 0)], 0) == {(name, 0): 0}
    later_ms = time.time_ns() // 1_000_000 + 3_600_000
    assert kafka.topics.offsets_at([(name, 0)], later_ms) == {(name, 0): 1}


def test_added_partitions_are_seen_by_who_knew_the_topic_before(kafka: Kafka) -> None:
    name = kafka.topic(1)
    assert kafka.topics.ends([(name, 0)]) == {(name, 0): 0}
    kafka.topics.grow(name, 3)
    kafka.topics.grow(name, 2)
    assert kafka.topics.describe([name])[name].partitions == 3
    assert kafka.topics.ends([(name, 2)]) == {(name, 2): 0}


def test_a_topic_made_anew_has_another_identity(kafka: Kafka) -> None:
    name = kafka.topic()
    before = kafka.topics.describe([name])[name]
    kafka.topics.delete([name, "never-was"])
    deadline_s = time.monotonic() + 20
    while not kafka.topics.create(name, 1):  # deletion goes on behind the broker's answer
        assert time.monotonic() < deadline_s
    assert kafka.topics.describe([name])[name].topic_id != before.topic_id
    assert kafka.topics.identities([name, "never-was"])[name] != before.topic_id
