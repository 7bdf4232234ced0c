"""The token topic as a Structured Streaming source: one record of the log is one micro-batch.

The log is dense (one partition, no transactions), so batch n of a query that started at offset s
is record s + n. The driver reads the record itself, through the chain that tells valid tokens from
void ones; Spark only needs to know that there is one more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

NAME = "perseid-tokens"
WAIT_S = 0.2  # the longest a look for the next record blocks; a stop of the query waits for it
LOOK_RECORDS = 100


class TokenSource(DataSource):
    """Options: bootstrap, topic, start (the first offset)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "offset bigint, record binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return TokenStreamReader(dict(self.options))


class TokenStreamReader(DataSourceStreamReader):
    """Runs in a Python process of its own beside the driver."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.start = int(options["start"])
        self._consumer: Consumer | None = None
        self._seen = self.start  # one above the highest offset that is known to exist

    def initialOffset(self) -> dict[str, int]:
        return {"offset": self.start}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """One record further as soon as there is one, else `start` after a short wait."""
        position = start["offset"]
        deadline = time.monotonic() + WAIT_S
        while self._seen <= position and (left := deadline - time.monotonic()) > 0:
            self._note(self._open().consume(1, left))  # returns early only with all it was asked
        self._note(self._open().consume(LOOK_RECORDS, 0))
        return {"offset": min(position + 1, max(self._seen, position))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["offset"], end["offset"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        """The records themselves, for whoever looks at the micro-batch."""
        first, end = partition.value
        reader = TokenStreamReader({**self.options, "start": str(first)})
        while first < end:
            for message in reader._open().consume(end - first, WAIT_S):
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and offset < end:
                    yield offset, value or b""
                    first = offset + 1

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: where a fragment goes on is in the ledger and the state log, not in Spark."""

    def _note(self, messages: list[Message]) -> None:
        for message in messages:
            offset = message.offset()
            if message.error() is None and offset is not None:
                self._seen = max(self._seen, offset + 1)

    def _open(self) -> Consumer:
        if self._consumer is None:
            from confluent_kafka import TopicPartition

            from perseid.topics.clients import reader

            self._consumer = reader(self.options["bootstrap"])
            self._consumer.assign([TopicPartition(self.options["topic"], 0, self.start)])
        return self._consumer
