"""A commit that a broker has acknowledged stays, also when a partition had no leader just then.

Kafka 4.3.0 to 4.4.0 count such a partition as deleted and complete the transaction without a marker
in it (KAFKA-20734): its records are undecided again, and whatever ends the producer's next
transaction decides them. So perseid brings 4.2.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin
from support.broker import JoiningBroker, KafkaServer

TOPIC = "sink"


def commit(
    server: KafkaServer, topic: str, before_commit: Callable[[], object] = lambda: None
) -> None:
    """One record in a transaction."""
    producer = Producer({
        "bootstrap.servers": server.bootstrap, "transactional.id": "writer",
        "transaction.timeout.ms": 60_000,
    })  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    assert producer.flush(20) == 0
    before_commit()
    producer.commit_transaction(30)


def committed(server: KafkaServer) -> list[bytes | None]:
    """What a read_committed reader gets within a few seconds, from the start."""
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap, "group.id": "reader",
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = [m.value() for m in consumer.consume(1, 3.0) if m.error() is None]
    consumer.close()
    return found


@pytest.mark.drawn(group="brokers")
def test_an_acknowledged_commit_outlives_a_partition_without_leader(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "1") as first:
        topics = TopicAdmin(first.bootstrap, timeout_s=60.0)
        topics.create("other", 1, {})
        commit(first, "other")  # so that transactions are kept by the first broker alone
        with JoiningBroker(tmp_path / "2", first) as second:
            until(lambda: len(topics.client.list_topics().brokers) == 2, 30, "two brokers")
            placed = NewTopic(TOPIC, 1, replica_assignment=[[2]])
            topics.client.create_topics([placed])[TOPIC].result(20)

            def leader() -> int | None:
                partitions = topics.client.list_topics(TOPIC).topics[TOPIC].partitions
                return partitions[0].leader if partitions else None

            def lose_leader() -> None:
                second.kill()
                until(lambda: leader() == -1, 30, "the partition to have no leader")

            until(lambda: leader() == 2, 30, "the second broker to lead the partition")
            commit(first, TOPIC, lose_leader)
            second.start()
            until(lambda: committed(first) == [b"kept"], 40, "the record that was committed")
