"""Follows a sink while the job runs: the number of counted words, and the age of outputs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from perseid.testing.meter.counted import Highest, percentile
from perseid.testing.verify.read import consumer, partitions

_POLL_S = 0.005
_REPORT_S = 0.25
_LATE_S = 3.0  # within an epoch or a trigger keys come in any order
_LATE_MAX_S = 30.0  # a system with a longer delay does not keep up


def follow(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """Yields words counted and records seen so far, several times a second, without limit."""
    highest = Highest()
    reported_s = 0.0
    for message in _tail(bootstrap, topic):
        if message is not None:
            highest.feed(message.key(), message.value())
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            yield {"words": highest.words, "records": highest.records}


def latency(bootstrap: str, topic: str, *, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """Returns the ages on arrival of records sent after the warm-up; see `Ages`."""
    ages = Ages(warm_up_s, seconds, len(partitions(bootstrap, topic)))
    for message in _tail(bootstrap, topic):
        now_ns = time.time_ns()
        if message is not None:
            ages.arrived(now_ns, message.partition(), stamp_ns(json.loads(message.value())))
        if ages.done(now_ns):
            return ages.summary()
    raise AssertionError("a tail has no end")


def stamp_ns(value: dict[str, Any]) -> int:
    """When the answer's record was sent: its `sent`, or its word `@<ns>`; 0 without a stamp."""
    if "sent" in value:
        return int(value["sent"])
    word = value["word"]
    return int(word[1:]) if word.startswith("@") else 0


class Ages:
    """Ages of records sent within `seconds` after the warm-up, however late they arrive. Pure.

    The clock starts with the first record. It ends a while after every partition has shown records
    sent after the window, so that a stall at the end is not cut off.
    """

    def __init__(self, warm_up_s: float, seconds: float, partitions: int) -> None:
        self._warm_up_s, self._seconds, self._partitions = warm_up_s, seconds, partitions
        self._begin_ns = self._end_ns = 0
        self._passed: set[int] = set()  # partitions that are past the window
        self._passed_ns: int | None = None  # when all were
        self._samples: list[float] = []

    def arrived(self, now_ns: int, partition: int, sent_ns: int) -> None:
        """Takes a record that carries the time `sent_ns`, 0 for none."""
        if not self._begin_ns:
            self._begin_ns = now_ns + int(self._warm_up_s * 1e9)
            self._end_ns = self._begin_ns + int(self._seconds * 1e9)
        if self._begin_ns <= sent_ns < self._end_ns:
            self._samples.append((now_ns - sent_ns) / 1e6)
        elif sent_ns >= self._end_ns and len(self._passed) < self._partitions:
            self._passed.add(partition)
            if len(self._passed) == self._partitions:
                self._passed_ns = now_ns

    def done(self, now_ns: int) -> bool:
        if self._passed_ns is not None and now_ns > self._passed_ns + int(_LATE_S * 1e9):
            return True
        return bool(self._end_ns) and now_ns > self._end_ns + int(_LATE_MAX_S * 1e9)

    def summary(self) -> dict[str, Any]:
        if not self._samples:
            return {"samples": 0}
        return {
            "samples": len(self._samples),
            "p50_ms": round(percentile(self._samples, 0.50), 1),
            "p99_ms": round(percentile(self._samples, 0.99), 1),
            "max_ms": round(max(self._samples), 1),
        }


def _tail(bootstrap: str, topic: str) -> Iterator[Any]:
    """Yields every committed record from the first on, and None when there is no new one."""
    with closing(consumer(bootstrap)) as reader:
        reader.assign([TopicPartition(topic, p, 0) for p in partitions(bootstrap, topic)])
        while True:
            batch = reader.consume(1_000, timeout=_POLL_S)
            good = 0
            for message in batch:
                error = message.error()
                if error is None:
                    good += 1
                    yield message
                elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise KafkaException(error)
            if not good:
                yield None
