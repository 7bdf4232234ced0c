"""Whole topics, read_committed, from the first record to what is the end now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from benches.bench_cluster import Place
from perseid.errors import RetryableError
from perseid.topics.cursor import Cursor

_BATCH_RECORDS = 10_000
_STEP_S = 0.2
_SILENCE_S = 60.0


class Record(NamedTuple):
    """One record; `time_ms` is the broker's append time where the topic keeps that."""

    offset: int
    value: bytes
    time_ms: int


def read_topic(place: Place, topic: str) -> Iterator[Record]:
    """Partition after partition, each in offset order. RetryableError when the broker is silent."""
    info = place.topics.describe([topic])[topic]
    partitions = [(topic, partition) for partition in range(info.partitions)]
    starts, ends = place.topics.starts(partitions), place.topics.ends(partitions)
    for one in partitions:
        yield from _partition(place.kafka, one, starts[one], ends[one])


def _partition(kafka: str, place: tuple[str, int], start: int, end: int) -> Iterator[Record]:
    if start >= end:
        return
    cursor = Cursor(kafka, *place, start, "read_committed")
    heard_s = time.monotonic()
    try:
        while cursor.position < end:
            found = cursor.fetch(_BATCH_RECORDS, _STEP_S)
            for message in found:
                offset = message.offset() or 0
                if offset < end:
                    yield Record(offset, message.value() or b"", message.timestamp()[1])
            if found:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _SILENCE_S:
                raise RetryableError(
                    f"{place[0]}[{place[1]}] is read to {cursor.position} of {end}, and nothing "
                    f"came for {_SILENCE_S:.0f} s; is the broker up?"
                )
    finally:
        cursor.close()
