"""Follows a sink while the job runs: how many words are counted, and how old news is on arrival."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from perseid.testing.meter.counted import Highest, percentile
from perseid.testing.verify.read import consumer, partitions

_POLL_S = 0.005
_REPORT_S = 0.25


def follow(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """Words counted and records seen so far, some times a second, for ever."""
    highest = Highest()
    reported_s = 0.0
    for message in _tail(bootstrap, topic):
        if message is not None:
            highest.feed(message.key(), message.value())
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            yield {"words": highest.words, "records": highest.records}


def latency(bootstrap: str, topic: str, *, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """Age on arrival of stamped words (`@<send time in ns>`), sent after the warm-up.

    The clock starts with the first record of the sink. Words sent within `seconds` count, however
    late they arrive, so a stall at the end is not cut off.
    """
    samples: list[float] = []
    begin_ns = end_ns = 0
    for message in _tail(bootstrap, topic):
        now_ns = time.time_ns()
        if message is not None:
            if not begin_ns:
                begin_ns = now_ns + int(warm_up_s * 1e9)
                end_ns = begin_ns + int(seconds * 1e9)
            word = json.loads(message.value())["word"]
            if word.startswith("@") and begin_ns <= int(word[1:]) < end_ns:
                samples.append((now_ns - int(word[1:])) / 1e6)
        elif end_ns and now_ns > end_ns + int(15e9):
            break
        if end_ns and now_ns > end_ns + int(30e9):
            break
    if not samples:
        return {"samples": 0}
    return {
        "samples": len(samples),
        "p50_ms": round(percentile(samples, 0.50), 1),
        "p99_ms": round(percentile(samples, 0.99), 1),
        "max_ms": round(max(samples), 1),
    }


def _tail(bootstrap: str, topic: str) -> Iterator[Any]:
    """Every committed record from the first on, and None whenever there is nothing new."""
    reader = consumer(bootstrap)
    try:
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
    finally:
        reader.close()
