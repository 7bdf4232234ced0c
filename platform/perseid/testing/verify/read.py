"""Reads whole topics as a careful user would: read_committed, from the first record to the end.

The end of a partition is the broker's end under read_committed (the last stable offset), so records
of open or aborted transactions are never read. A commit is acknowledged before its markers are
written (KIP-98, 5.1 and 5.2), so this end may be before committed records; the reader waits for
them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

_BATCH_RECORDS = 10_000
_WAIT_S = 0.05  # for a batch to fill, and for a first record before the broker reports the end
_METADATA_S = 60.0  # a broker that was killed a moment ago may still be starting
_SILENCE_S = 30.0  # a live broker answers a fetch at once; so much silence is an error, not an end
_DECIDED_S = 30.0  # commits are decided sooner; only a dead producer's transaction stays open


class Record(NamedTuple):
    """One record of a topic; `time_ms` is the broker's append time where the topic keeps that."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int = 0


class ReadError(Exception):
    """The topic could not be read to its end, so there is no verdict."""


def read_topic(bootstrap: str, topic: str) -> Iterator[Record]:
    """Yields all committed records, partition after partition, each in offset order."""
    return map(_record, _messages(bootstrap, topic))


def read_partition(bootstrap: str, topic: str, partition: int) -> Iterator[Record]:
    """Yields the committed records of one partition in offset order."""
    return map(_record, _messages(bootstrap, topic, partition))


def read_values(bootstrap: str, topic: str) -> Iterator[bytes | None]:
    """Yields only the values of `read_topic`, which suffice to count words."""
    for message in _messages(bootstrap, topic):
        yield message.value()


def partitions(bootstrap: str, topic: str) -> list[int]:
    """Returns the partition numbers of `topic`; ReadError when there is no such topic."""
    with closing(consumer(bootstrap)) as reader:
        return _numbers(reader, topic)


def _numbers(reader: Consumer, topic: str) -> list[int]:
    found = reader.list_topics(topic, timeout=_METADATA_S).topics[topic]
    if found.error is not None:
        raise ReadError(f"topic {topic}: {found.error}")
    return sorted(found.partitions)


def _record(message: Message) -> Record:
    place = message.partition(), message.offset()  # set for every fetched message
    return Record(*place, message.key(), message.value(), message.timestamp()[1])  # type: ignore[arg-type]


def _messages(bootstrap: str, topic: str, only: int | None = None) -> Iterator[Message]:
    """Yields the messages of all partitions, or of one."""
    with closing(consumer(bootstrap)) as reader:
        numbers = _numbers(reader, topic)  # a reader that knows the leaders fetches at once
        wanted = numbers if only is None else [only]
        ends = _ends(bootstrap, topic, wanted)
        decided_s = time.monotonic() + _DECIDED_S
        for partition, end in zip(wanted, ends, strict=True):
            reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            yield from _to_end(reader, f"{topic}[{partition}]", end, decided_s)


def _ends(bootstrap: str, topic: str, wanted: list[int]) -> list[int]:
    """Returns the ends of the logs, including records of open transactions."""
    with closing(consumer(bootstrap, isolation="read_uncommitted")) as reader:
        places = [TopicPartition(topic, partition) for partition in wanted]
        return [reader.get_watermark_offsets(p, timeout=_METADATA_S)[1] for p in places]


def _to_end(reader: Consumer, name: str, end: int, decided_s: float) -> Iterator[Message]:
    """Yields messages until the broker reports the partition's end, at or after `end`.

    From the monotonic time `decided_s` on also before `end`: what an open transaction still holds
    back there is not committed.
    """
    silent_s = 0.0
    is_held_up = False  # at the last stable offset
    while not (is_held_up and time.monotonic() > decided_s):
        batch = reader.consume(_BATCH_RECORDS, timeout=_WAIT_S)
        silent_s = 0.0 if batch or is_held_up else silent_s + _WAIT_S
        if silent_s > _SILENCE_S:
            raise ReadError(f"{name}: neither a record nor the end for {_SILENCE_S:.0f} s")
        for message in batch:
            error = message.error()
            if error is None:
                is_held_up = False
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                if message.offset() >= end:  # type: ignore[operator]  # None: not of what is fetched
                    return
                is_held_up = True
            else:
                raise KafkaException(error)


def consumer(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    """Returns a consumer with explicit settings, for partitions assigned by hand."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verifier",  # never joined
            "isolation.level": isolation,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
            "fetch.wait.max.ms": int(_WAIT_S * 1000),
        }
    )
