"""How records of a transaction get to the broker: none waits for a clock, and no core is spent.

The client has one request a partition under way. While more is due it polls without pause: two
producers have taken both cores of a machine for ten seconds, and its broker none to answer with.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from perseid.errors import RetryableError
from perseid.topics import clients
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.transactions import PartitionBatch
from support import kafka_handle
from support.broker import KafkaServer
from support.kafka_handle import Kafka

BATCH_BYTES = 100_000


def batch(topic: str, partition: int, records: int) -> PartitionBatch:
    values = [b"%06d " % n + b"x" * 90 for n in range(records)]
    return PartitionBatch(topic, partition, [None] * records, values)


def test_a_paused_broker_is_waited_for_and_costs_no_core(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        kafka = kafka_handle.real(server.bootstrap)
        topic = kafka.topic(1)
        transaction = kafka.transactions.acquire("t", BATCH_BYTES, 20)
        transaction.begin()
        transaction.send(batch(topic, 0, 1))  # the partition is part of the transaction now
        transaction.flush(20)
        server.pause()
        sent = batch(topic, 0, 5_000)  # five requests
        before_s = time.process_time()
        transaction.send(sent)
        with pytest.raises(RetryableError, match="not delivered in 3"):
            transaction.flush(3.0)
        assert time.process_time() - before_s < 1.2  # of 3, all of which a spinning client takes
        server.resume()
        written = transaction.flush(20)
        transaction.commit(20)
        assert written[topic, 0].last - written[topic, 0].first == 4_999
        assert kafka.values(topic)[1:] == sent.values.to_pylist()
        transaction.close()
        kafka.ranges.close()


def test_a_queue_full_of_small_partitions_is_sent_at_once(
    real_kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "QUEUE_MESSAGES_MAX", 12_000)
    topic, transactions = real_kafka.topic(8), KafkaTransactions(real_kafka.bootstrap)
    transaction = transactions.acquire(f"t-{topic}", clients.BATCH_BYTES_MAX, 20)
    transaction.begin()
    batches = [batch(topic, partition, 6_000) for partition in range(8)]  # a request has 10,000
    began_s = time.monotonic()
    for one in batches:
        transaction.send(one)
    transaction.flush(20)
    assert time.monotonic() - began_s < 10  # not until they have lingered: 15 s
    transaction.commit(20)
    assert [real_kafka.values(topic, partition) for partition in range(8)] == [
        one.values.to_pylist() for one in batches
    ]
    transaction.close()
    transactions.close()
