"""One handle for a Kafka, real or model, so that a contract test runs on both."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from perseid.testing.kafka import (
    FakeBufferWriter,
    FakeColumnReader,
    FakeLogReader,
    FakeLogWriter,
    FakeRangeReader,
    FakeTopics,
    FakeTransactions,
    ModelKafka,
)
from perseid.topics.admin import TopicAdmin
from perseid.topics.buffers import BufferWriter, KafkaBufferWriter
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import KafkaLogReader, KafkaLogWriter, LogReader, LogWriter
from perseid.topics.ranges import ColumnReader, RangeReader
from perseid.topics.transactions import Transactions

_names = itertools.count(1)


@dataclass
class Kafka:
    """One Kafka, real or model: its ports, and topics that no other test uses."""

    topics: FakeTopics | TopicAdmin
    transactions: Transactions
    writer: LogWriter
    ranges: RangeReader | FakeRangeReader
    sources: ColumnReader | FakeColumnReader
    model: ModelKafka | None = None
    bootstrap: str = ""

    def reader(self) -> LogReader:
        if self.model is not None:
            return FakeLogReader(self.model)
        return KafkaLogReader(self.bootstrap)

    def buffer_writer(self) -> BufferWriter:
        """Returns a producer of its own."""
        if self.model is not None:
            return FakeBufferWriter(self.model)
        return KafkaBufferWriter(self.bootstrap)

    def ledger(self) -> LedgerReader:
        """Returns a reader without a cache."""
        return LedgerReader(self.reader(), self.topics)

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Creates a topic; underscores in the settings stand for dots."""
        name = f"t{next(_names)}"
        self.topics.create(name, partitions, {k.replace("_", "."): v for k, v in config.items()})
        return name

    def job(self, ledger_partitions: int = 2) -> str:
        """Returns the name of a new job that has a ledger."""
        job = f"job{next(_names)}"
        self.topics.create(f"perseid.{job}.ledger", ledger_partitions)
        return job

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Returns every committed value, read by a reader of its own."""
        place = (topic, partition)
        start = self.topics.starts([place])[place]
        # A commit is acknowledged before its markers, so the end is the high watermark.
        end = self.topics.ends([place], committed=False)[place]
        found = self.reader().read_range(topic, partition, start, end, timeout_s=20)
        return [e.value for e in found]


def real(bootstrap: str) -> Kafka:
    """Returns a handle for the broker at `bootstrap`."""
    return Kafka(
        TopicAdmin(bootstrap),
        KafkaTransactions(bootstrap),
        KafkaLogWriter(bootstrap),
        RangeReader(bootstrap),
        ColumnReader(bootstrap),
        bootstrap=bootstrap,
    )


def fake() -> Kafka:
    """Returns a handle for a new model."""
    model = ModelKafka()
    return Kafka(
        FakeTopics(model),
        FakeTransactions(model),
        FakeLogWriter(model),
        FakeRangeReader(model),
        FakeColumnReader(model),
        model=model,
    )
