"""What a deployment got wrong, on real brokers of its own."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.cli import doctor_checks, open_transactions
from perseid.coordinator.loading import high_watermarks, source_topics
from perseid.errors import RetryableError
from perseid.topics import durability
from perseid.topics.admin import TopicAdmin
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.transactions import PartitionBatch
from support.broker import KafkaServer
from support.kafka_handle import Kafka


class LargeKafka(KafkaServer):
    """One broker with the settings of a cluster of three."""

    def settings(self) -> str:
        return (
            "transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\n"
            "min.insync.replicas=2\n"
        )


def test_a_broker_that_wants_more_copies_of_its_transaction_log_than_it_can_have(
    tmp_path: Path,
) -> None:
    with LargeKafka(tmp_path) as server, closing(KafkaTransactions(server.bootstrap)) as kafka:
        with pytest.raises(RetryableError) as caught:
            kafka.acquire("perseid.shop.1.counts.0", 1_000_000, 5.0)
        assert "transaction.state.log.replication.factor" in str(caught.value)
        admin = TopicAdmin(server.bootstrap, timeout_s=60.0)
        settings = admin.brokers()
        log = admin.describe([durability.TRANSACTION_LOG]).get(durability.TRANSACTION_LOG)
        found = list(doctor_checks.transaction_log(settings, log))
        assert [(one.level, one.found) for one in found] == [
            ("problem", "transaction.state.log.replication.factor=3"),
            ("problem", "transaction.state.log.min.isr=2"),
        ]
        assert admin.create("lines", 1)
        (weak,) = durability.of_topic(admin.describe(["lines"])["lines"], len(settings))
        assert (weak.found, weak.stops) == ("min.insync.replicas=2 of 1 copies", True)


def test_input_after_a_transaction_of_another_program_can_be_seen(real_kafka: Kafka) -> None:
    topic = real_kafka.topic(2)
    with closing(real_kafka.transactions.acquire(f"loader-of-{topic}", 1_000_000, 20)) as loader:
        loader.begin()
        loader.send(PartitionBatch(topic, 1, [None], [b"undecided"]))
        loader.flush(20)
        seen = source_topics(real_kafka.topics, [topic])
        highs = high_watermarks(real_kafka.topics, seen)
        stable = real_kafka.topics.ends(list(highs))
        assert (highs[topic, 1], stable[topic, 1]) == (1, 0)
        assert highs[topic, 0] == stable[topic, 0] == 0
        (held,) = open_transactions.held_back(highs, stable, [])
        now_ms = time.time_ns() // 1_000_000
        older = replace(held, since_ms=now_ms - 20_000)
        (found,) = doctor_checks.transactions([older], now_ms)
        assert (found.level, "not perseid's" in found.found) == ("warning", True)
