"""Reads whole topics as a careful user would: read_committed, from the first record to the end.

The end of a partition is what the broker calls it under read_committed (the last stable offset), so
records of open or aborted transactions are never seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

_BATCH_RECORDS = 10_000
_METADATA_S = 60.0  # a broker that was killed a moment ago may still be starting
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
    for partition in partitions(bootstrap, topic):
        yield from read_partition(bootstrap, topic, partition)


def read_partition(bootstrap: str, topic: str, partition: int) -> Iterator[Record]:
    """The committed records of one partition in offset order."""
    for message in _messages(bootstrap, topic, partition):
        yield Record(
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            message.timestamp()[1],
        )


def read_values(bootstrap: str, topic: str) -> Iterator[bytes | None]:
    """Only the values of `read_topic`, which is all that counting words needs."""
    for partition in partitions(bootstrap, topic):
        for message in _messages(bootstrap, topic, partition):
            yield message.value()


def partitions(bootstrap: str, topic: str) -> list[int]:
    """The partition numbers of `topic`; ReadError when there is no such topic."""
    reader = consumer(bootstrap)
    try:
        found = reader.list_topics(topic, timeout=_METADATA_S).topics[topic]
        if found.error is not None:
            raise ReadError(f"topic {topic}: {found.error}")
        return sorted(found.partitions)
    finally:
        reader.close()


def _messages(bootstrap: str, topic: str, partition: int) -> Iterator:  # type: ignore[type-arg]
    reader = consumer(bootstrap)
    try:
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        yield from _to_end(reader, f"{topic}[{partition}]")
    finally:
        reader.close()


def _to_end(reader: Consumer, name: str) -> Iterator:  # type: ignore[type-arg]
    """Yields messages until the broker says that the partition ends here."""
    silent_s = 0.0
    while True:
        batch = reader.consume(_BATCH_RECORDS, timeout=0.2)
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


def consumer(bootstrap: str) -> Consumer:
    """A consumer with explicit settings, for partitions assigned by hand."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verifier",  # never joined
            "isolation.level": "read_committed",
            "check.crcs": True,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
