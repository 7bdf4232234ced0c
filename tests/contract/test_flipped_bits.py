"""One byte of a record that a broker's disk gives back wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.errors import RetryableError, TransientAnswer
from perseid.topics import clients
from support import kafka_handle
from support.broker import KafkaServer
from support.kafka_handle import Kafka

GOOD, HIT = 50, b"the-record-that-is-hit"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path / "broker") as server:
        yield server


def written(kafka: Kafka) -> str:
    """A topic with good records and after them, in a batch of its own, the one to be hit."""
    topic = kafka.topic(1)
    producer = clients.bulk(kafka.bootstrap)
    for number in range(GOOD):
        producer.produce(topic, b"good-%d" % number)
    assert producer.flush(20) == 0
    producer.produce(topic, HIT)
    assert producer.flush(20) == 0
    return topic


def flip(server: KafkaServer, topic: str) -> None:
    log = server.folder / "data" / f"{topic}-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[data.index(HIT)] ^= 1
    log.write_bytes(data)


def read(kafka: Kafka, topic: str) -> list[bytes | None]:
    """What a source task reads of the whole range."""
    found: list[bytes | None] = []
    for records in kafka.sources.read(topic, 0, 0, GOOD + 1):
        found += records.values.to_pylist()
    return found


@pytest.mark.drawn(group="brokers")
def test_a_damaged_record_is_never_handed_out(broker: KafkaServer) -> None:
    """The broker served it as it is, since it ended well and does not look again."""
    kafka = kafka_handle.real(broker.bootstrap)
    topic = written(kafka)
    broker.stop()
    flip(broker, topic)
    broker.start()
    text = "not have the checksum it was written with"
    with pytest.raises(TransientAnswer, match=text) as caught:
        read(kafka, topic)
    assert topic in str(caught.value)


@pytest.mark.drawn(group="brokers")
def test_a_broker_that_finds_the_damage_has_a_shorter_log_which_is_reported(
    broker: KafkaServer,
) -> None:
    """After a crash it checks its logs and cuts them before what is damaged."""
    kafka = kafka_handle.real(broker.bootstrap)
    topic = written(kafka)
    broker.kill()
    flip(broker, topic)
    broker.start()
    with pytest.raises(RetryableError, match=f"nothing at offset {GOOD}"):
        read(kafka, topic)  # the coordinator, who knows the log's end, reports that it was cut
