"""A consumer at one offset of one partition; all readers here are built of it.

Reading on from its position is nearly free, because the client has prefetched. Any other position
gets a new consumer: that costs the same 10 ms as a seek, and nothing of the old position remains.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from perseid.errors import LogTruncated, PerseidError, ReplayDataLost, TransientAnswer
from perseid.records.access import Bootstrap
from perseid.topics import clients
from perseid.topics.clients import Isolation
from perseid.topics.columns import Records
from perseid.topics.librdkafka import Event, PartitionConsumer

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_LOOKUP_S = 5.0  # one request to the broker
_BRIEF = {"queued.min.messages": 5_000, "fetch.message.max.bytes": 262_144}
_SILENCE_S = 1.0  # of a new cursor, before it checks whether its topic exists


class _Position:
    """What all cursors share: their position, and the meaning of the client's errors there."""

    def __init__(self, topic: str, partition: int, start: int) -> None:
        self.topic, self.partition, self.position = topic, partition, start
        self.at_end = False  # the broker reported the end of readable records here
        self._seen = False
        self._ask_at_s: float | None = None  # set by the first fetch, which may be later

    def _heard(self, anything: bool) -> None:
        """Checks whether the partition exists when it has returned nothing for a while."""
        if anything:
            self._seen, self.at_end = True, False
        if not self._seen and self._ask_at_s is not None and time.monotonic() > self._ask_at_s:
            self._seen = True
            self._check_exists(self._asked())

    def _listens(self) -> None:
        """A fetch begins: from the first one on an answer is expected."""
        if self._ask_at_s is None:
            self._ask_at_s = time.monotonic() + _SILENCE_S

    def _handle(self, error: KafkaError, offset: int) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            self.at_end = True
            self.position = max(self.position, offset)
        elif error.code() in {
            KafkaError._AUTO_OFFSET_RESET,
            KafkaError.OFFSET_OUT_OF_RANGE,
            KafkaError._LOG_TRUNCATION,  # below our position, by the leaders' epochs
        }:
            raise self._out_of_range(self._asked())
        else:
            raise clients.as_error(error, f"reading {self.topic}[{self.partition}]")

    def _asked(self) -> Consumer:
        """A client for requests."""
        raise NotImplementedError

    def _check_exists(self, client: Consumer) -> None:
        """Checks this because the client waits silently for a missing topic or partition."""
        from confluent_kafka import KafkaException

        here = f"reading {self.topic}[{self.partition}]"
        try:
            seen = client.list_topics(self.topic, timeout=_LOOKUP_S).topics[self.topic]
        except KafkaException as error:
            raise clients.as_error(error.args[0], here) from error
        if seen.error is not None:
            raise clients.as_error(seen.error, here)
        if self.partition not in seen.partitions:
            raise TransientAnswer(f"{here}: the topic has only {len(seen.partitions)} partitions")

    def _out_of_range(self, client: Consumer) -> PerseidError:
        from confluent_kafka import KafkaException, TopicPartition

        here = f"{self.topic}[{self.partition}]"
        place = TopicPartition(self.topic, self.partition)
        try:
            low, high = client.get_watermark_offsets(place, timeout=_LOOKUP_S, cached=False)
        except KafkaException as error:
            return clients.as_error(error.args[0], f"offsets of {here}")
        if low > self.position:
            return ReplayDataLost(self.topic, self.partition, self.position, low)
        return LogTruncated(self.topic, self.partition, self.position, high)


class Cursor(_Position):
    """`position` is the offset up to which all readable records have been returned."""

    def __init__(
        self, bootstrap: Bootstrap, topic: str, partition: int, start: int, isolation: Isolation,
        *, brief: bool = False, **settings: int,
    ) -> None:  # fmt: skip
        """`brief`: one range will be read, so little is prefetched. `settings`: of `reading`."""
        from confluent_kafka import TopicPartition

        super().__init__(topic, partition, start)
        self._consumer: Consumer = clients.reader(
            bootstrap, isolation=isolation, **settings, **(_BRIEF if brief else {})
        )
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def fetch(self, count: int, timeout_s: float) -> list[Message]:
        """Up to `count` records from the position on; returns early only with all of them.

        Markers and aborted records are skipped silently; only `position` shows them. An error of
        the partition is raised, and the cursor must not be used after it.
        """
        self._listens()
        found = self._consumer.consume(count, timeout_s)
        self._heard(bool(found))
        records = [m for m in found if m.error() is None]
        if records:
            self.position = self._offset(records[-1]) + 1
        if len(records) < len(found):
            for event in found:
                if (error := event.error()) is not None:
                    offset = event.offset()  # an event without a partition has no offset
                    self._handle(error, -1 if offset is None else offset)
        return records

    def close(self) -> None:
        self._consumer.close()

    def _asked(self) -> Consumer:
        return self._consumer

    @staticmethod
    def _offset(message: Message) -> int:
        offset = message.offset()
        assert offset is not None  # only messages that were never sent have none
        return offset


class Fetching(Protocol):
    """Records of one partition, from the offset where it was opened."""

    def fetch(self, count: int, timeout_s: float) -> tuple[Records, list[Event]]: ...
    def close(self) -> None: ...


class ColumnCursor(_Position):
    """A cursor for sources: records from `consumer` as columns."""

    def __init__(
        self, bootstrap: Bootstrap, topic: str, partition: int, start: int, consumer: Fetching
    ) -> None:
        super().__init__(topic, partition, start)
        self._bootstrap, self._consumer = bootstrap, consumer
        self._asking: Consumer | None = None

    @classmethod
    def alone(
        cls, bootstrap: Bootstrap, topic: str, partition: int, start: int, isolation: Isolation,
        *, brief: bool = False,
    ) -> ColumnCursor:  # fmt: skip
        """With a consumer of its own."""
        settings = clients.reading(bootstrap, isolation=isolation, **(_BRIEF if brief else {}))
        consumer = PartitionConsumer(settings, topic, partition, start)
        return cls(bootstrap, topic, partition, start, consumer)

    def fetch(self, count: int, timeout_s: float) -> Records:
        """Like `Cursor.fetch`."""
        self._listens()
        records, events = self._consumer.fetch(count, timeout_s)
        self._heard(bool(len(records) or events))
        if len(records):
            self.position = int(records.offsets[-1]) + 1
        for event in events:
            self._handle(event.error, event.offset)
        return records

    def close(self) -> None:
        self._consumer.close()
        self._end_asking()

    def _check_exists(self, client: Consumer) -> None:
        super()._check_exists(client)
        self._end_asking()  # no further check follows, and thousands of cursors may start slowly

    def _asked(self) -> Consumer:
        if self._asking is None:
            self._asking = clients.reader(self._bootstrap)
        return self._asking

    def _end_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.close()
