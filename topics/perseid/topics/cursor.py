"""A consumer that stands at one offset of one partition: what all readers here are made of.

Going on from where it stands is nearly free, because the client has fetched ahead. Going elsewhere
is a new consumer: that costs the same 10 ms as a seek, and nothing of the old position is left.
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

_LOOKUP_S = 5.0  # one question to the broker
_BRIEF = {"queued.min.messages": 5_000, "fetch.message.max.bytes": 262_144}
_SILENCE_S = 1.0  # of a new cursor, before it asks whether its topic is there at all


class _Position:
    """What all cursors know: where they stand, and what the client's errors mean there."""

    def __init__(self, topic: str, partition: int, start: int) -> None:
        self.topic, self.partition, self.position = topic, partition, start
        self.at_end = False  # the broker has said so, of the position: of what readers may see
        self._seen = False
        self._ask_at_s: float | None = None  # from the first fetch on, which may come later

    def _heard(self, anything: bool) -> None:
        """Asks whether the partition is there when nothing has come of it for a while."""
        if anything:
            self._seen, self.at_end = True, False
        if not self._seen and self._ask_at_s is not None and time.monotonic() > self._ask_at_s:
            self._seen = True
            self._check_exists(self._asked())

    def _listens(self) -> None:
        """A fetch begins: from the first one on something should come."""
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
        """A client for questions."""
        raise NotImplementedError

    def _check_exists(self, client: Consumer) -> None:
        """The client itself waits in silence for a topic or partition that is not there."""
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
    """`position` is the offset up to which everything readable has been handed out."""

    def __init__(
        self, bootstrap: Bootstrap, topic: str, partition: int, start: int, isolation: Isolation,
        *, brief: bool = False,
    ) -> None:  # fmt: skip
        """`brief`: it will not go on behind the first range, so it fetches little ahead."""
        from confluent_kafka import TopicPartition

        super().__init__(topic, partition, start)
        self._consumer: Consumer = clients.reader(
            bootstrap, isolation=isolation, **(_BRIEF if brief else {})
        )
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def fetch(self, count: int, timeout_s: float) -> list[Message]:
        """Up to `count` records behind the position; returns early only with all of them.

        Markers and aborted records are passed over in silence: the position tells. An error of the
        partition is raised, and the cursor is of no use after it.
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
                    offset = event.offset()  # of what is not about the partition there is none
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
    """Records of one partition, from where it was opened on."""

    def fetch(self, count: int, timeout_s: float) -> tuple[Records, list[Event]]: ...
    def close(self) -> None: ...


class ColumnCursor(_Position):
    """The same for sources: records come as columns, out of `consumer`."""

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
        """As `Cursor.fetch`."""
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
        self._end_asking()  # it is not asked again, and thousands of cursors may begin slowly

    def _asked(self) -> Consumer:
        if self._asking is None:
            self._asking = clients.reader(self._bootstrap)
        return self._asking

    def _end_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.close()
