"""The model's disk: what a power failure may take, drawn at random."""

from __future__ import annotations

import random

from perseid.testing.kafka import FakeTopics, FakeTransactions, ModelKafka
from perseid.testing.kafka_disk import ModelDisk
from perseid.topics.transactions import PartitionBatch


def logs(flushed: int, unflushed: int, partitions: int = 2) -> tuple[ModelKafka, ModelDisk]:
    """Partitions with so many records below and after a flush."""
    kafka = ModelKafka()
    FakeTopics(kafka).create("t", partitions)
    disk = ModelDisk(kafka)
    for count in (flushed, unflushed):
        for partition in range(partitions):
            for _ in range(count):
                kafka.append(("t", partition), None, b"v")
        if count == flushed:
            disk.flush()
    return kafka, disk


def test_what_was_flushed_stays_and_every_cut_after_it_comes() -> None:
    seen = set()
    for seed in range(200):
        kafka, disk = logs(3, 2)
        ends = disk.power_failure(random.Random(seed))
        found = tuple(log.end for log in kafka.topics["t"].logs)
        assert ends == {("t", p): end for p, end in enumerate(found) if end < 5}
        assert kafka.lost_tails == list(ends.items())
        seen.add(found)
    assert seen == {(a, b) for a in (3, 4, 5) for b in (3, 4, 5)}


def test_trimmed_offsets_are_not_given_again() -> None:
    kafka, disk = logs(0, 4, partitions=1)
    FakeTopics(kafka).delete_records({("t", 0): 4})
    disk.power_failure(random.Random(1))
    assert (kafka.log("t", 0).start, kafka.log("t", 0).end) == (4, 4)


def test_a_recreated_topic_has_nothing_flushed() -> None:
    kafka, disk = logs(5, 0, partitions=1)
    topics = FakeTopics(kafka)
    topics.delete(["t"])
    topics.create("t", 1)
    for _ in range(5):
        kafka.append(("t", 0), None, b"new")
    lowest = 5
    for seed in range(50):
        ends = ModelDisk.power_failure(disk, random.Random(seed))
        lowest = min(lowest, *ends.values(), kafka.log("t", 0).end)
    assert lowest == 0


def test_a_transaction_may_stay_in_one_log_and_be_gone_from_another() -> None:
    kafka = ModelKafka()
    topics = FakeTopics(kafka)
    topics.create("t", 2)
    disk = ModelDisk(kafka)
    transaction = FakeTransactions(kafka).acquire("a", 1_000, 1.0)
    transaction.begin()
    for partition in (0, 1):
        transaction.send(PartitionBatch("t", partition, [None], [b"v"]))
    transaction.commit(1.0)
    disk.cut(("t", 1), 0)
    assert [r.value for r in kafka.readable("t", 0, 0, 9)] == [b"v"]
    assert kafka.readable("t", 1, 0, 9) == []
    assert topics.ends([("t", 0), ("t", 1)]) == {("t", 0): 2, ("t", 1): 0}
