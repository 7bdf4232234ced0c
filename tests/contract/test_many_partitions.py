"""Hundreds of source partitions in one process, on a real broker."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from perseid.errors import TransientAnswer
from perseid.topics import clients
from perseid.topics.admin import Partition
from perseid.topics.ranges import ColumnReader
from support.kafka_handle import Kafka

EACH = 5  # records of a partition in an epoch
EPOCH_MS = 2.0  # of a partition; about 0.1 on an idle machine, and 4 with a consumer for each


def produced(kafka: Kafka, topic: str, partitions: int, epoch: int, size: int = 10) -> None:
    producer = clients.bulk(kafka.bootstrap)
    for partition in range(partitions):
        for number in range(EACH):
            value = b"%d %d" % (partition, epoch * EACH + number)
            producer.produce(topic, value.ljust(size), partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(reader: ColumnReader, starts: dict[Partition, int]) -> dict[int, list[bytes]]:
    reader.prepare(starts)
    found: dict[int, list[bytes]] = {}
    for (topic, partition), start in starts.items():
        batches = reader.read(topic, partition, start, start + EACH)
        found[partition] = [r.value() or b"" for batch in batches for r in batch]
    return found


def expected(partitions: int, epoch: int) -> dict[int, list[bytes]]:
    offsets = range(epoch * EACH, (epoch + 1) * EACH)
    return {p: [b"%d %d" % (p, at) for at in offsets] for p in range(partitions)}


def native_threads() -> int:
    """Of this process, those of clients too."""
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize("partitions", [200, pytest.param(1000, marks=pytest.mark.matrix)])
def test_an_epoch_of_few_records_each_takes_no_seconds(real_kafka: Kafka, partitions: int) -> None:
    topic = real_kafka.topic(partitions)
    before, took_ms = native_threads(), []
    with closing(ColumnReader(real_kafka.bootstrap)) as reader:
        for epoch in range(4):
            produced(real_kafka, topic, partitions, epoch, size=0)
            started_s = time.monotonic()
            found = read(reader, {(topic, p): epoch * EACH for p in range(partitions)})
            took_ms.append((time.monotonic() - started_s) * 1000)
            assert found == expected(partitions, epoch)
        threads = native_threads()
    assert min(took_ms[1:]) < partitions * EPOCH_MS
    assert threads < before + 150  # of all clients of this process


def test_a_partition_that_jumps_and_one_that_is_not_there(real_kafka: Kafka) -> None:
    """As after a restore, and with a topic that lost partitions: the others are read on."""
    topic, partitions = real_kafka.topic(40), 40
    for epoch in range(3):
        produced(real_kafka, topic, partitions, epoch, size=0)
    with closing(ColumnReader(real_kafka.bootstrap)) as reader:
        last = {(topic, p): 2 * EACH for p in range(partitions)}
        assert read(reader, last) == expected(partitions, 2)
        first = dict.fromkeys(last, 0)
        assert read(reader, first) == expected(partitions, 0)
        assert read(reader, dict.fromkeys(last, EACH)) == expected(partitions, 1)
        with pytest.raises(TransientAnswer, match="partition"):
            list(reader.read(topic, partitions + 3, 0, 5))
        assert read(reader, first) == expected(partitions, 0)
