"""A reader that follows many partitions over few consumers."""

from __future__ import annotations

from contextlib import closing
from random import Random

import pytest

from perseid.errors import LogTruncated, ReplayDataLost
from perseid.topics.buffers import DATA_BYTES_MAX
from perseid.topics.log import LogReader
from perseid.topics.shared_log import SharedLogReader
from support.kafka_handle import Kafka

PARTITIONS = 6


def filled(kafka: Kafka, count: int = 5) -> str:
    topic = kafka.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        for number in range(count):
            kafka.writer.append(topic, partition, b"%d-%d" % (partition, number))
    return topic


def values(reader: LogReader, topic: str, partition: int, offset: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        entries = reader.read_from(
            topic,
            partition,
            offset + len(found),
            max_records=min(2, count - len(found)),
            timeout_s=20,
        )
        assert [e.offset for e in entries] == [offset + len(found) + n for n in range(len(entries))]
        assert entries, "there are more"
        found += [e.value for e in entries]
    return found


def test_each_partition_is_read_from_where_it_was_left(real_kafka: Kafka) -> None:
    topic = filled(real_kafka)
    starts = {(topic, partition): partition % 2 for partition in range(PARTITIONS)}
    with closing(SharedLogReader(real_kafka.bootstrap, starts)) as reader:
        for end in (3, 5):
            for (topic, partition), start in starts.items():
                want = [b"%d-%d" % (partition, n) for n in range(start, end)]
                assert values(reader, topic, partition, start, end - start) == want
            starts = dict.fromkeys(starts, end)
        assert reader.read_from(topic, 2, 5, max_records=9, timeout_s=0.1) == []
        real_kafka.writer.append(topic, 2, b"late")
        assert values(reader, topic, 2, 5, 1) == [b"late"]


def test_records_larger_than_what_is_prefetched_are_read(real_kafka: Kafka) -> None:
    topic = real_kafka.topic(PARTITIONS)
    sent = {
        p: [Random(9 * p + n).randbytes(DATA_BYTES_MAX) for n in range(3)]
        for p in range(PARTITIONS)
    }
    for partition, large in sent.items():
        for value in large:
            real_kafka.writer.append(topic, partition, value)
    with closing(SharedLogReader(real_kafka.bootstrap, {(topic, p): 0 for p in sent})) as reader:
        for partition, large in sent.items():
            assert values(reader, topic, partition, 0, 3) == large


def test_another_offset_than_the_last_one_is_read_too(real_kafka: Kafka) -> None:
    topic = filled(real_kafka)
    starts = {(topic, partition): 0 for partition in range(PARTITIONS)}
    with closing(SharedLogReader(real_kafka.bootstrap, starts)) as reader:
        assert values(reader, topic, 1, 0, 5) == [b"1-%d" % n for n in range(5)]
        assert values(reader, topic, 1, 2, 2) == [b"1-2", b"1-3"]
        again = reader.read_range(topic, 1, 1, 4, timeout_s=20)
        assert [e.value for e in again] == [b"1-1", b"1-2", b"1-3"]
        assert values(reader, topic, 3, 0, 5) == [b"3-%d" % n for n in range(5)]


def test_records_that_are_gone_are_errors(real_kafka: Kafka) -> None:
    topic = filled(real_kafka)
    real_kafka.topics.delete_records({(topic, 0): 3})
    with closing(SharedLogReader(real_kafka.bootstrap, {(topic, 0): 0, (topic, 1): 9})) as reader:
        with pytest.raises(ReplayDataLost):
            while True:
                reader.read_from(topic, 0, 0, max_records=1, timeout_s=1)
        with pytest.raises(LogTruncated):
            while True:
                reader.read_from(topic, 1, 9, max_records=1, timeout_s=1)
        assert values(reader, topic, 0, 3, 2) == [b"0-3", b"0-4"]
