"""Reads a job's token log and ledger while it runs, and looks up append times of records."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from perseid.cli.scenario.progress import Progress
from perseid.errors import RetryableError
from perseid.topics import clients, codec, names
from perseid.topics.records import Begin, Claim, LedgerRecord, Rewind, SinkWindow, Token

_BATCH_RECORDS = 500
_TOPICS_TIMEOUT_S = 60.0  # the coordinator makes them when it first sees the job
_LOOK_UP_TIMEOUT_S = 30.0


class Follower:
    """Keeps a Progress up to date; `poll` is to be called often.

    It reads the ledger read_committed, so an epoch counts only once its transactions are committed.
    """

    def __init__(self, bootstrap: str, job: str, progress: Progress) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        self.progress = progress
        self._tokens = names.tokens(job)
        self._reader = clients.reader(bootstrap, fetch_wait_ms=10)
        wanted = (self._tokens, names.ledger(job))
        partitions = _await_topics(self._reader, wanted)
        self._reader.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in partitions])

    def poll(self, timeout_s: float) -> None:
        """Takes new records; waits up to the timeout for them."""
        messages: list[Any] = self._reader.consume(_BATCH_RECORDS, timeout=timeout_s)
        for message in messages:
            if message.error() is not None:
                continue  # the end of a partition, or a broker that is temporarily away
            record = codec.decode(message.value())
            if isinstance(record, LedgerRecord):
                self.progress.ledger_record(message.partition(), record)
            elif isinstance(record, Begin | Claim | Rewind | Token):
                self.progress.token_record(message.offset(), record, time.monotonic())

    def close(self) -> None:
        self._reader.close()


def first_append_ms(bootstrap: str, windows: list[SinkWindow], after_ms: int) -> int | None:
    """The earliest append time, not before `after_ms`, of the windows' first records.

    An epoch may have been committed in part before a kill; that part does not count as output after
    it.
    """
    with closing(clients.reader(bootstrap, fetch_wait_ms=10)) as reader:
        times = [_append_ms(reader, w.topic, w.partition, w.first) for w in windows]
    return min((t for t in times if t is not None and t >= after_ms), default=None)


def _append_ms(reader: Any, topic: str, partition: int, offset: int) -> int | None:
    from confluent_kafka import TopicPartition

    reader.assign([TopicPartition(topic, partition, offset)])
    deadline_s = time.monotonic() + _LOOK_UP_TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            append_ms: int = message.timestamp()[1]
            return append_ms
    return None


def _await_topics(reader: Any, wanted: tuple[str, ...]) -> list[tuple[str, int]]:
    deadline_s = time.monotonic() + _TOPICS_TIMEOUT_S
    while time.monotonic() < deadline_s:
        found = reader.list_topics(timeout=10).topics
        if all(topic in found and found[topic].partitions for topic in wanted):
            return [(topic, p) for topic in wanted for p in sorted(found[topic].partitions)]
        time.sleep(0.1)
    raise RetryableError(
        f"topics {', '.join(wanted)} did not appear within {_TOPICS_TIMEOUT_S:.0f} s; "
        "see `perseid status` and `perseid logs c1`"
    )
