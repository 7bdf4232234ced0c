"""Batches by librdkafka itself: the same records as by confluent-kafka, on a real broker."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.testing.wait import until
from perseid.topics import clients, librdkafka
from perseid.topics.columns import Records
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.ranges import ColumnReader, RangeReader
from perseid.topics.transactions import PartitionBatch
from support.kafka_handle import Kafka

Row = tuple[bytes | None, bytes | None]
ROWS: list[Row] = [
    (b"k", b"v"), (None, b"no key"), (b"", b"empty key"), (b"empty value", b""), (b"none", None),
    (None, None), ("ä".encode(), bytes(range(256))), (b"long", b"x" * 70_000),
] * 40  # fmt: skip


def sent(kafka: Kafka, rows: list[Row], *, commit: bool = True) -> str:
    topic = kafka.topic(2)
    transaction = KafkaTransactions(kafka.bootstrap).acquire(f"t-{topic}", 1_000_000, 20)
    transaction.begin()
    transaction.send(PartitionBatch(topic, 1, [k for k, _ in rows], [v for _, v in rows]))
    written = transaction.flush(20)
    assert (written[topic, 1].first, written[topic, 1].last) == (0, len(rows) - 1)
    if commit:
        transaction.commit(20)
    transaction.close()
    return topic


def test_what_was_sent_in_batches_is_read_by_both_readers(real_kafka: Kafka) -> None:
    topic = sent(real_kafka, ROWS)
    with closing(RangeReader(real_kafka.bootstrap)) as ranges:
        plain = [m for batch in ranges.read(topic, 1, 0, len(ROWS)) for m in batch]
    assert [(m.key(), m.value()) for m in plain] == ROWS
    with closing(ColumnReader(real_kafka.bootstrap)) as columns:
        batches = list(columns.read(topic, 1, 0, len(ROWS)))
    for batch in batches:
        assert isinstance(batch, Records)
        batch.values.validate(full=True)
        batch.keys.validate(full=True)
    found = [record for batch in batches for record in batch]
    assert [(r.partition(), r.offset(), r.timestamp()[1], r.key(), r.value()) for r in found] == [
        (m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value()) for m in plain
    ]


def test_an_aborted_batch_is_a_gap(real_kafka: Kafka) -> None:
    topic = sent(real_kafka, ROWS[:5], commit=False)
    place, after_marker = (topic, 1), 6
    until(lambda: real_kafka.topics.ends([place])[place] == after_marker, 20, "it is aborted")
    with closing(ColumnReader(real_kafka.bootstrap)) as columns:
        assert list(columns.read(topic, 1, 0, after_marker)) == []


def test_a_range_that_ends_within_a_batch_leaves_the_rest_for_the_next(real_kafka: Kafka) -> None:
    topic = sent(real_kafka, [(None, b"%d" % i) for i in range(1000)])
    with closing(ColumnReader(real_kafka.bootstrap)) as columns:
        for start in range(0, 1000, 250):
            found = [r.value() for b in columns.read(topic, 1, start, start + 250) for r in b]
            assert found == [b"%d" % i for i in range(start, start + 250)]


def test_a_batch_that_the_client_refuses_is_an_error(real_kafka: Kafka) -> None:
    producer = clients.transactional(real_kafka.bootstrap, "t-refused")  # without a transaction
    topic = librdkafka.TopicProducer(producer, real_kafka.topic())
    one = pa.array([b"v"], pa.binary())
    error = topic.produce(0, one, one, 0, 1)
    assert error is not None
    assert error.name() == "_STATE"
    topic.close()


def test_a_setting_that_the_client_refuses_is_named(real_kafka: Kafka) -> None:
    settings = clients.reading(real_kafka.bootstrap, nonsense="1")
    with pytest.raises(PermanentError, match=r"refuses a setting: .*nonsense"):
        librdkafka.PartitionConsumer(settings, "t", 0, 0)
