"""Exact ranges of source partitions: nothing skipped in silence, gaps of transactions are legal."""

from __future__ import annotations

import pytest

from perseid.errors import PermanentError, ReplayDataLost
from perseid.testing.kafka_handle import Kafka
from perseid.worker.sink_ports import PartitionBatch


def read(kafka: Kafka, topic: str, start: int, end: int) -> list[int | None]:
    return [m.offset() for batch in kafka.ranges.read(topic, 0, start, end) for m in batch]


def write(kafka: Kafka, topic: str, values: list[bytes], *, commit: bool = True) -> None:
    """One transaction, ended by a commit or by the next owner of its id."""
    transaction = kafka.transactions.acquire(f"w-{topic}", 1_000_000, 20)
    transaction.begin()
    transaction.send(PartitionBatch(topic, 0, [None] * len(values), values))
    transaction.flush(20)
    if commit:
        transaction.commit(20)
    else:
        kafka.transactions.acquire(f"w-{topic}", 1_000_000, 20).close()
    transaction.close()


def test_ranges_one_after_another_and_back(kafka: Kafka) -> None:
    topic = kafka.topic()
    for i in range(10):
        kafka.writer.append(topic, 0, b"%d" % i)
    assert read(kafka, topic, 0, 4) == [0, 1, 2, 3]
    assert read(kafka, topic, 4, 4) == []
    assert read(kafka, topic, 4, 10) == [4, 5, 6, 7, 8, 9]
    kafka.writer.append(topic, 0, b"10")
    assert read(kafka, topic, 10, 11) == [10]
    assert read(kafka, topic, 2, 5) == [2, 3, 4]


def test_markers_and_aborted_records_are_gaps(kafka: Kafka) -> None:
    topic = kafka.topic()
    write(kafka, topic, [b"a", b"b"])  # 0 1, marker 2
    write(kafka, topic, [b"x"] * 5, commit=False)  # 3-7, marker 8
    write(kafka, topic, [b"c"])  # 9, marker 10
    assert kafka.values(topic) == [b"a", b"b", b"c"]  # and waits for the last marker
    assert kafka.topics.ends([(topic, 0)]) == {(topic, 0): 11}
    assert read(kafka, topic, 0, 11) == [0, 1, 9]
    assert read(kafka, topic, 0, 3) == [0, 1]
    assert read(kafka, topic, 3, 9) == []
    assert read(kafka, topic, 9, 11) == [9]
    assert read(kafka, topic, 4, 8) == []
    assert read(kafka, topic, 8, 10) == [9]
    assert read(kafka, topic, 10, 11) == []


def test_a_trimmed_range_is_data_loss(kafka: Kafka) -> None:
    topic = kafka.topic()
    for _ in range(6):
        kafka.writer.append(topic, 0, b"v")
    kafka.topics.delete_records({(topic, 0): 4})
    with pytest.raises(ReplayDataLost) as caught:
        read(kafka, topic, 2, 6)
    assert (caught.value.topic, caught.value.needed, caught.value.earliest) == (topic, 2, 4)
    assert read(kafka, topic, 2, 2) == []
    assert read(kafka, topic, 4, 6) == [4, 5]


def test_a_range_of_no_topic_is_permanent(kafka: Kafka) -> None:
    with pytest.raises(PermanentError, match="not exist"):
        read(kafka, "nowhere", 0, 3)


def test_what_a_message_gives(kafka: Kafka) -> None:
    topic = kafka.topic()
    transaction = kafka.transactions.acquire(f"h-{topic}", 1_000_000, 20)
    transaction.begin()
    transaction.send(
        PartitionBatch(topic, 0, [b"k", None], [b"v", b""], [[("h", b"1")], [("h", b"2")]])
    )
    transaction.flush(20)
    transaction.commit(20)
    (batch,) = kafka.ranges.read(topic, 0, 0, 2)
    assert [(m.key(), m.value(), m.headers()) for m in batch] == [
        (b"k", b"v", [("h", b"1")]), (None, b"", [("h", b"2")])
    ]  # fmt: skip
    assert all(m.timestamp()[1] > 0 for m in batch)
