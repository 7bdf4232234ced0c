"""Reads whole topics as a careful user would: read_committed, from the first record to the end.

The end of a partition is what the broker calls it under read_committed (the last stable offset), so
records of open or aborted transactions are never seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

_BATCH_RECORDS = 10_000
_SILENCE_S = 30.0  # a live broker answers a fetch at once; so much silence is an error, not an end


class Record(NamedTuple):
    """One record of a topic; `time_ms` is the broker's append time where the topic keeps that."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int = 0


class ReadError(Exception):
    """The topic could not be read to its end, so nothing can be said about it."""


def read_topic(bootstrap: str, topic: str) -> Iterator[Record]:
    """All committed records, partition after partition, each in offset order."""
    for message in _messages(bootstrap, topic):
        yield Record(
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            message.timestamp()[1],
        )


def read_values(bootstrap: str, topic: str) -> Iterator[bytes | None]:
    """Only the values of `read_topic`, which is all that counting words needs."""
    for message in _messages(bootstrap, topic):
        yield message.value()


def partitions(bootstrap: str, topic: str) -> list[int]:
    """The partition numbers of `topic`; ReadError when there is no such topic."""
    consumer = _consumer(bootstrap)
    try:
        found = consumer.list_topics(topic, timeout=10).topics[topic]
        if found.error is not None:
            raise ReadError(f"topic {topic}: {found.error}")
        return sorted(found.partitions)
    finally:
        consumer.close()


def _messages(bootstrap: str, topic: str) -> Iterator:  # type: ignore[type-arg]
    for partition in partitions(bootstrap, topic):
        consumer = _consumer(bootstrap)
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            yield from _to_end(consumer, f"{topic}[{partition}]")
        finally:
            consumer.close()


def _to_end(consumer: Consumer, name: str) -> Iterator:  # type: ignore[type-arg]
    """Yields messages until the broker says that the partition ends here."""
    silent_s = 0.0
    while True:
        batch = consumer.consume(_BATCH_RECORDS, timeout=0.2)
        silent_s = 0.0 if batch else silent_s + 0.2
        if silent_s > _SILENCE_S:
            raise ReadError(f"{name}: neither a record nor the end for {_SILENCE_S:.0f} s")
        for message in batch:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verifier",  # never joined: partitions are assigned by hand
            "isolation.level": "read_committed",
            "check.crcs": True,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
