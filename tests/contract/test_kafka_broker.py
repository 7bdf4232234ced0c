"""What only a broker can show: its partitioner, its size limit to the byte, its death."""

from __future__ import annotations

import random
from threading import Timer

import pytest

from perseid.embedded import Cluster
from perseid.errors import PermanentError
from perseid.topics import clients
from perseid.topics.partitioner import partitions
from perseid.topics.transactions import octets
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession
from support.kafka_handle import Kafka


def identity(kafka: Kafka) -> SinkIdentity:
    return SinkIdentity(kafka.job(), "u", 1, "op", 0, ledger=0, after_epoch=0)


def session(kafka: Kafka, who: SinkIdentity) -> SinkSession:
    return SinkSession(who, kafka.transactions, kafka.ledger(), kafka.topics)


def test_our_partitions_are_the_producers(real_kafka: Kafka) -> None:
    topic = real_kafka.topic(7)
    chosen = random.Random(7)
    keys = [chosen.randbytes(chosen.randrange(40)) for _ in range(3000)] + [b"", "ß→".encode()]
    found: dict[bytes | None, int | None] = {}
    producer = clients.bulk(real_kafka.bootstrap)
    for key in keys:
        producer.produce(
            topic, b"", key, on_delivery=lambda _, m: found.update({m.key(): m.partition()})
        )
    assert producer.flush(20) == 0
    ours = partitions(octets(keys), 7).tolist()
    # The client treats an empty key as none, and spreads it at random.
    assert [p for k, p in zip(keys, ours, strict=True) if k] == [found[k] for k in keys if k]


def test_the_size_limit_to_the_byte(real_kafka: Kafka) -> None:
    topic = real_kafka.topic(1, max_message_bytes="3000")
    sink = session(real_kafka, identity(real_kafka))
    # Batch header; body length; attributes and deltas; key; the value's length; no headers.
    fits = 3000 - 61 - 2 - 3 - 2 - 2 - 1
    with pytest.raises(PermanentError, match="needs 3001 bytes"):
        sink.commit(1, 1, 1, [SinkBatch(topic, [b"k"], [b"x" * (fits + 1)])])
    values = [b"small", b"x" * fits, b"small"]
    sink.commit(1, 1, 1, [SinkBatch(topic, [b"k"] * 3, values)])
    assert real_kafka.values(topic) == values


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_the_broker_dies_while_epochs_are_committed(
    real_kafka: Kafka, cluster: Cluster, delay_s: float
) -> None:
    topic = real_kafka.topic(3)
    sink = session(real_kafka, identity(real_kafka))
    killer = Timer(delay_s, cluster.kill, ["kafka"])
    written: list[list[bytes]] = [[], [], []]
    killer.start()
    for epoch in range(1, 9):
        keys: list[bytes | None] = [b"%d" % i for i in range(2000)]
        values = [b"%d:%d" % (epoch, i) for i in range(2000)]
        sink.commit(epoch, epoch, 1, [SinkBatch(topic, keys, values)])
        for value, partition in zip(values, partitions(octets(keys), 3).tolist(), strict=True):
            written[partition].append(value)
    killer.join()
    assert [real_kafka.values(topic, p) for p in range(3)] == written
