"""Reads exact ranges of source partitions, as fast as Python can.

A partition is read on from its last position, because the next epoch's range starts where the last
one ended. Each has its own consumer while they are few; more of them share consumers
(`perseid.topics.shared`). If several tasks read a partition in turn, no reader continues at its
last position: prefetched records are lost, so few are prefetched.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from perseid.errors import RetryableError
from perseid.records.access import Bootstrap
from perseid.topics.admin import TopicAdmin
from perseid.topics.clients import Isolation
from perseid.topics.columns import Records
from perseid.topics.cursor import ColumnCursor, Cursor
from perseid.topics.shared import SharedConsumers

if TYPE_CHECKING:
    from confluent_kafka import Message

BATCH_RECORDS_MAX = 10_000
CURSORS_MAX = 64  # partitions that a reader of messages keeps open; each has three threads
ALONE_MAX = 16  # partitions of a process that have their own consumer with 32 MiB prefetched
IDLE_S = 60.0  # if there are more, one that was not read for so long is released
_WAIT_S = 0.01  # a range with gaps ends with a wait of at most this


Batch = TypeVar("Batch", "list[Message]", Records)


@dataclass(slots=True)
class _Place(Generic[Batch]):
    """`served_to`: the end of the last range read. `ahead`: records fetched beyond it.

    `brief`: the previous range was elsewhere, and the next one is expected to be, too. `kept_s`:
    when the last range was read (monotonic).
    """

    cursor: Cursor | ColumnCursor
    served_to: int
    brief: bool
    ahead: Batch | None = None
    kept_s: float = 0.0


class _Ranges(Generic[Batch]):
    """Reads ranges as batches. Not thread-safe."""

    def __init__(
        self, bootstrap: Bootstrap, *, isolation: Isolation = "read_committed",
        timeout_s: float = 30.0,
    ) -> None:  # fmt: skip
        """`timeout_s` is how long a read may make no progress."""
        self._bootstrap, self._isolation, self._timeout_s = bootstrap, isolation, timeout_s
        self._places: OrderedDict[tuple[str, int], _Place[Batch]] = OrderedDict()
        self._admin: TopicAdmin | None = None
        self._ids: dict[str, str] = {}  # of the topics that were read, as last seen

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Batch]:
        """All readable records of [start, end) in order, in batches; `end` <= last stable offset.

        Markers and aborted records leave gaps, which are legal. ReplayDataLost if the partition
        starts above `start`; RetryableError if nothing arrives within the time limit.
        """
        if start >= end:
            return
        place = self._take(topic, partition, start)
        kept = False
        try:
            yield from self._batches(place, end)
            place.served_to = end
            self._keep(topic, partition, place)
            kept = True
        finally:
            if not kept:
                place.cursor.close()

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        """The topics' current ids, without those that do not exist.

        RetryableError if one differs from the last call: the prefetched records are of the previous
        topic and may just have been read as if they were of this one.
        """
        if self._admin is None:
            self._admin = TopicAdmin(self._bootstrap)
        found = self._admin.identities(topics)
        again = {topic for topic, id_ in found.items() if self._ids.get(topic, id_) != id_}
        self._ids |= found
        if again:
            for place in [place for place in self._places if place[0] in again]:
                self._places.pop(place).cursor.close()
            raise RetryableError(
                f"topic {', '.join(sorted(again))} was created again since it was read here: it "
                "is read again, since what was fetched ahead is of the previous one"
            )
        return found

    def close(self) -> None:
        """Closes all consumers; the reader can be used again."""
        self._ids.clear()
        while self._places:
            self._places.popitem()[1].cursor.close()

    def _open(self, topic: str, partition: int, start: int, brief: bool) -> Cursor | ColumnCursor:
        raise NotImplementedError

    def _split(self, records: Batch, end: int) -> tuple[Batch, Batch]:
        """The records below `end`, and the others: a range with gaps ends only beyond it."""
        raise NotImplementedError

    def _batches(self, place: _Place[Batch], end: int) -> Iterator[Batch]:
        if place.ahead is not None:
            inside, rest = self._split(place.ahead, end)
            place.ahead = rest if len(rest) else None  # an empty part would keep the whole batch
            if len(inside):
                yield inside
        deadline_s = time.monotonic() + self._timeout_s
        while place.cursor.position < end:
            before = place.cursor.position
            found: Batch = place.cursor.fetch(  # type: ignore[assignment]
                min(end - before, BATCH_RECORDS_MAX), _WAIT_S
            )
            if place.cursor.position > before:
                inside, rest = self._split(found, end)
                place.ahead = rest if len(rest) else None
                if len(inside):
                    yield inside
                deadline_s = time.monotonic() + self._timeout_s
            elif time.monotonic() > deadline_s:
                raise RetryableError(
                    f"{place.cursor.topic}[{place.cursor.partition}]: nothing at offset {before} "
                    f"of a range to {end} for {self._timeout_s} s; is the broker up?"
                )

    def _take(self, topic: str, partition: int, start: int) -> _Place[Batch]:
        place = self._places.pop((topic, partition), None)
        continues = place is not None and place.served_to == start
        if place is not None and continues and not place.brief:
            return place
        if place is not None:
            place.cursor.close()
        brief = place is not None and not continues
        return _Place(self._open(topic, partition, start, brief), start, brief)

    def _keep(self, topic: str, partition: int, place: _Place[Batch]) -> None:
        replaced = self._places.pop((topic, partition), None)  # of a read that continued meanwhile
        if replaced is not None:
            replaced.cursor.close()
        place.kept_s = time.monotonic()
        self._places[topic, partition] = place
        while self._places and self._too_many(next(iter(self._places.values()))):
            self._places.popitem(last=False)[1].cursor.close()

    def _too_many(self, oldest: _Place[Batch]) -> bool:
        """Whether to release the place that was read the longest time ago."""
        raise NotImplementedError


class RangeReader(_Ranges["list[Message]"]):
    """Messages of the client, with all their attributes: for tools."""

    def _open(self, topic: str, partition: int, start: int, brief: bool) -> Cursor:
        return Cursor(self._bootstrap, topic, partition, start, self._isolation, brief=brief)

    def _split(self, records: list[Message], end: int) -> tuple[list[Message], list[Message]]:
        if not records or (records[-1].offset() or 0) < end:
            return records, []
        cut = next(i for i, m in enumerate(records) if (m.offset() or 0) >= end)
        return records[:cut], records[cut:]

    def _too_many(self, oldest: _Place[list[Message]]) -> bool:
        return len(self._places) > CURSORS_MAX


class ColumnReader(_Ranges[Records]):
    """Columns, without headers: for sources."""

    def __init__(
        self, bootstrap: Bootstrap, *, isolation: Isolation = "read_committed",
        timeout_s: float = 30.0,
    ) -> None:  # fmt: skip
        super().__init__(bootstrap, isolation=isolation, timeout_s=timeout_s)
        self._shared = SharedConsumers(bootstrap, isolation)

    def close(self) -> None:
        super().close()
        self._shared.close()

    def prepare(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Announces which partitions are read next, and from where: opens many together.

        Opened one after another, each would wait for an answer of the broker.
        """
        places = [self._places.get(place) for place in starts]
        elsewhere = {
            place: start
            for (place, start), seen in zip(starts.items(), places, strict=True)
            if seen is None or seen.served_to != start
        }
        if len(self._places.keys() | elsewhere.keys()) <= ALONE_MAX or len(elsewhere) <= 1:
            return
        for place in elsewhere.keys() & self._places.keys():
            self._places.pop(place).cursor.close()
        wanted = {p: start for p, start in elsewhere.items() if not self._shared.has(*p)}
        for (topic, partition), part in self._shared.open(wanted).items():
            start = wanted[topic, partition]
            cursor = ColumnCursor(self._bootstrap, topic, partition, start, part)
            self._keep(topic, partition, _Place(cursor, start, brief=False))

    def _open(self, topic: str, partition: int, start: int, brief: bool) -> ColumnCursor:
        few = len(self._places) < ALONE_MAX
        if few or self._shared.has(topic, partition):  # a read under way may use it
            return ColumnCursor.alone(
                self._bootstrap, topic, partition, start, self._isolation, brief=brief
            )
        part = self._shared.open({(topic, partition): start})[topic, partition]
        return ColumnCursor(self._bootstrap, topic, partition, start, part)

    def _split(self, records: Records, end: int) -> tuple[Records, Records]:
        return records.split(end)

    def _too_many(self, oldest: _Place[Records]) -> bool:
        return len(self._places) > ALONE_MAX and oldest.kept_s + IDLE_S < time.monotonic()
