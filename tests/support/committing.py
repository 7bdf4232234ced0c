"""Commits epochs of one operator partition to a Kafka, and checks them record by record.

The smallest setup that loses or doubles output when the exactly-once sink is wrong: only the sink
session and the broker that a test kills, pauses or cuts off, without Spark and coordinator.
"""

from __future__ import annotations

import uuid

from perseid.errors import RetryableError
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession
from support.kafka_handle import Kafka

RECORDS = 500  # per epoch
PATIENCE_S = 180.0


class Committing:
    """Epochs of one operator partition, each with unique records."""

    def __init__(self, kafka: Kafka) -> None:
        self.topic = kafka.topic(2)
        self._who = SinkIdentity(kafka.job(), uuid.uuid4().hex, 1, "op", 0, ledger=0, after_epoch=0)
        self._kafka = kafka
        self._session = self._open()
        self.epoch = 0

    def commit(self) -> None:
        """Retries the next epoch until it is committed, as a fragment does."""
        epoch = self.epoch + 1

        def committed() -> bool:
            try:
                self._session.commit(epoch, epoch, 1, [self.batch(epoch)])
            except RetryableError:
                self._session = self._open()
                return False
            return True

        until(committed, PATIENCE_S, f"epoch {epoch} to be committed")
        self.epoch = epoch

    def try_once(self) -> bool:
        """Returns whether the next epoch is acknowledged; without that it may be committed too."""
        try:
            self._session.commit(self.epoch + 1, self.epoch + 1, 1, [self.batch(self.epoch + 1)])
        except RetryableError:
            self._session = self._open()
            return False
        return True

    def batch(self, epoch: int) -> SinkBatch:
        keys: list[bytes | None] = [b"%d" % i for i in range(RECORDS)]
        return SinkBatch(self.topic, keys, [b"%d:%d" % (epoch, i) for i in range(RECORDS)])

    def expected(self) -> list[bytes]:
        return sorted(b"%d:%d" % (e + 1, i) for e in range(self.epoch) for i in range(RECORDS))

    def found(self) -> list[bytes]:
        """Reads the topic with the verifier's own reader."""
        return sorted(r.value or b"" for r in read_topic(self._kafka.bootstrap, self.topic))

    def _open(self) -> SinkSession:
        kafka = self._kafka
        return SinkSession(self._who, kafka.transactions, kafka.ledger(), kafka.topics)
