"""Consumers that read many partitions each: how many there are, and how much they prefetch.

A consumer costs three threads and some milliseconds to create, so a process that reads hundreds of
partitions cannot have one for each. Prefetched records are counted by partition. To keep their sum
within a budget, each consumer has twice as many partitions as the previous one, and half as much
for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseid.records.access import Bootstrap
from perseid.topics import clients
from perseid.topics.clients import Isolation
from perseid.topics.columns import Records
from perseid.topics.librdkafka import Event, SharedConsumer

PARTS_FIRST = 128  # partitions of the first consumer
AHEAD_KIB = 65_536  # that one consumer prefetches, or one batch a partition if that is more
_RECORDS_AHEAD = 10_000  # of a partition
_BACKOFF_MS = 5  # of partitions with enough prefetched; each check visits all of them


def parts_max(consumer: int) -> int:
    """How many partitions the consumer of this number has at most."""
    return PARTS_FIRST << consumer


def settings(consumer: int) -> dict[str, int]:
    """What its partitions prefetch, by librdkafka's names."""
    kib = max(1, AHEAD_KIB // parts_max(consumer))
    return {
        "queued.max.messages.kbytes": kib,
        "queued.min.messages": _RECORDS_AHEAD,
        "fetch.message.max.bytes": kib * 1024,
        "fetch.max.bytes": 16 * 1024 * 1024,
        "fetch.queue.backoff.ms": _BACKOFF_MS,
    }


@dataclass
class Part:
    """One partition of a shared consumer, with the interface that a cursor needs."""

    consumer: SharedConsumer
    topic: str
    partition: int
    _silent: bool = False  # the last fetch returned nothing

    def fetch(self, count: int, timeout_s: float) -> tuple[Records, list[Event]]:
        records, events = self.consumer.fetch(self.topic, self.partition, count, timeout_s)
        self.consumer.failed |= any(not event.is_end for event in events)
        self._silent = not len(records) and not events
        return records, events

    def close(self) -> None:
        """Releases the partition; the last one of a failed consumer closes it.

        If the last fetch returned nothing, the consumer counts as failed and another one is used
        next.
        """
        self.consumer.failed |= self._silent
        if (self.topic, self.partition) in self.consumer.parts:
            self.consumer.remove([(self.topic, self.partition)])
        if self.consumer.failed and not self.consumer.parts:
            self.consumer.close()


@dataclass
class SharedConsumers:
    """The shared consumers of one reader. Not thread-safe."""

    bootstrap: Bootstrap
    isolation: Isolation
    _consumers: dict[int, SharedConsumer] = field(default_factory=dict)

    def has(self, topic: str, partition: int) -> bool:
        """Whether a consumer reads the partition already: it cannot read it twice."""
        return any((topic, partition) in one.parts for one in self._consumers.values())

    def open(self, places: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], Part]:
        """Begins to read partitions that no consumer has, each from its offset on."""
        found: dict[tuple[str, int], Part] = {}
        try:
            while left := places.keys() - found.keys():
                consumer, room = self._with_room()
                some = sorted(left)[:room]
                consumer.add({place: places[place] for place in some})
                found |= {place: Part(consumer, *place) for place in some}
        except BaseException:  # the caller does not have them, so they must be closed here
            for part in found.values():
                part.close()
            raise
        return found

    def close(self) -> None:
        """Closes all consumers, even with partitions that are still read."""
        while self._consumers:
            self._consumers.popitem()[1].close()

    def _with_room(self) -> tuple[SharedConsumer, int]:
        """The first consumer with room, and how much. A failed one is replaced.

        A failed consumer is closed with its last partition.
        """
        number = 0
        while (found := self._consumers.get(number)) is not None and not found.failed:
            if (room := parts_max(number) - len(found.parts)) > 0:
                return found, room
            number += 1
        over = {**clients.reading(self.bootstrap, isolation=self.isolation), **settings(number)}
        self._consumers[number] = SharedConsumer(over)
        return self._consumers[number], parts_max(number)
