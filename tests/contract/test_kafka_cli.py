"""What `topics produce` and `topics tail` do to a topic."""

from __future__ import annotations

import time
from itertools import islice

from perseid.cli.topic_records import Look, Pair, write
from perseid.testing.wait import until
from perseid.topics import codec
from perseid.topics.admin import TopicAdmin
from perseid.topics.partitioner import partitions
from perseid.topics.records import Claim
from perseid.topics.transactions import PartitionBatch, octets
from support.kafka_handle import Kafka


def look(kafka: Kafka, topic: str, *, committed: bool = True) -> Look:
    admin = TopicAdmin(kafka.bootstrap)
    return Look(kafka.bootstrap, admin, admin.describe([topic])[topic], committed)


def test_what_is_produced_is_where_any_consumer_looks_for_it(real_kafka: Kafka) -> None:
    topic = real_kafka.topic(3)
    records: list[Pair] = [(b"k%d" % i, b"v%d" % i) for i in range(50)]
    assert write(real_kafka.bootstrap, topic, records, None)[0] == 50
    found = look(real_kafka, topic).first(None)
    assert sorted((r.key, r.value) for r in found) == sorted(
        (k.decode(), v.decode()) for k, v in records if k is not None
    )
    keys = [k for k, _ in records]
    where = dict(zip(keys, partitions(octets(keys), 3), strict=True))
    assert all(r.partition == where[(r.key or "").encode()] for r in found)


def test_a_rate_is_kept(real_kafka: Kafka) -> None:
    topic = real_kafka.topic()
    count, seconds = write(real_kafka.bootstrap, topic, [(None, b"v")] * 20, 100.0)
    assert count == 20
    assert seconds >= 0.19


def await_next_millisecond() -> None:
    """Records of one millisecond have no order between partitions."""
    now_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > now_ms, 5, "the next millisecond")


def test_the_last_records_lie_before_markers_and_aborted_ones(real_kafka: Kafka) -> None:
    topic = real_kafka.topic(2)
    for i in range(5):
        real_kafka.writer.append(topic, i % 2, b"%d" % i)
        await_next_millisecond()
    for name in ("a", "b"):
        transaction = real_kafka.transactions.acquire(f"{name}-{topic}", 1_000_000, 20)
        transaction.begin()
        transaction.send(PartitionBatch(topic, 0, [None] * 30, [b"aborted"] * 30))
        transaction.flush(20)
        transaction.close()
    assert [r.value for r in look(real_kafka, topic).last(2)] == ["3", "4"]
    assert [r.value for r in look(real_kafka, topic).first(2)] == ["0", "1"]
    assert len(look(real_kafka, topic, committed=False).first(None)) == 65


def test_following_shows_what_comes_and_control_records_as_they_are(real_kafka: Kafka) -> None:
    topic = real_kafka.topic()
    real_kafka.writer.append(topic, 0, codec.encode(Claim(1, "c1")))
    real_kafka.writer.append(topic, 0, b"\xff text")
    shown = list(islice(look(real_kafka, topic).follow(from_beginning=True), 2))
    assert [s.value for s in shown] == [repr(Claim(1, "c1")), "\\xff text"]
