"""Records in and out of topics: the work of `topics produce` and `topics tail`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from perseid.errors import PermanentError, RetryableError
from perseid.topics import clients
from perseid.topics.clients import Isolation

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from perseid.records.access import Bootstrap
    from perseid.topics.admin import Partition, TopicAdmin, TopicInfo

Pair = tuple[bytes | None, bytes]  # key, value

_FLUSH_S = 60.0
_POLL_S = 0.5
_WINDOW_FACTOR = 4  # for markers and aborted records: read back further than records are wanted


@dataclass(frozen=True, slots=True)
class Shown:
    """A record as text. Control records are shown decoded."""

    partition: int
    offset: int
    time_ms: int
    key: str | None
    value: str | None
    headers: dict[str, str]


def lines_of(file: str, separator: bytes | None) -> Iterator[Pair]:
    """The lines of a file, or of stdin for "-", without their ends."""
    with ExitStack() as stack:
        source = sys.stdin.buffer if file == "-" else stack.enter_context(open(file, "rb"))
        for number, line in enumerate(source, 1):
            value = line.rstrip(b"\r\n")
            if separator is None:
                yield None, value
                continue
            key, found, rest = value.partition(separator)
            if not found:
                raise PermanentError(
                    f"{file}:{number}: no key separator {separator.decode()!r} in the line"
                )
            yield key, rest


def write(
    bootstrap: Bootstrap, topic: str, records: Iterable[Pair], rate: float | None
) -> tuple[int, float]:
    """Writes all, with Kafka's own partition for each key; how many and in how many seconds."""
    producer = clients.bulk(bootstrap)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    started_s, count = time.monotonic(), 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if rate is not None:
            due_s = started_s + count / rate
            producer.poll(max(0.0, due_s - time.monotonic()))
        elif count % 1000 == 0:
            producer.poll(0)
        if failed:
            break
    left = producer.flush(_FLUSH_S)
    if failed:
        raise clients.as_error(failed[0], f"writing to {topic}")
    if left:
        raise RetryableError(f"{left} records for {topic} were not taken in {_FLUSH_S} s")
    return count, time.monotonic() - started_s


class Look:
    """Reads one topic, all partitions."""

    def __init__(
        self, bootstrap: Bootstrap, admin: TopicAdmin, info: TopicInfo, committed: bool
    ) -> None:
        self._bootstrap, self._admin, self._topic = bootstrap, admin, info.name
        self._committed = committed
        self._isolation: Isolation = "read_committed" if committed else "read_uncommitted"
        self._places: list[Partition] = [(info.name, p) for p in range(info.partitions)]

    def first(self, count: int | None) -> list[Shown]:
        """The first `count` records up to the present end, or all, in order of time."""
        found = self._range(self._admin.starts(self._places), self._ends())
        return found[:count]

    def last(self, count: int) -> list[Shown]:
        """The last `count` records before the present end, in order of time."""
        starts, ends = self._admin.starts(self._places), self._ends()
        window = count
        while True:
            window *= _WINDOW_FACTOR
            lows = {p: max(starts[p], ends[p] - window) for p in self._places}
            found = self._range(lows, ends)
            # A partition that was not read to its start may hold later records than those found.
            if len(found) >= count * len(self._places) or lows == starts:
                return found[-count:]

    def follow(self, *, from_beginning: bool) -> Iterator[Shown]:
        """Every record from the start or from the present end on, until interrupted."""
        from confluent_kafka import KafkaError, TopicPartition

        starts = self._admin.starts(self._places) if from_beginning else self._ends()
        consumer = clients.reader(self._bootstrap, isolation=self._isolation)
        consumer.assign([TopicPartition(t, p, starts[t, p]) for t, p in self._places])
        try:
            while True:
                message = consumer.poll(_POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    yield shown(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise clients.as_error(error, f"reading {self._topic}")
        finally:
            consumer.close()

    def _ends(self) -> dict[Partition, int]:
        return self._admin.ends(self._places, committed=self._committed)

    def _range(self, starts: dict[Partition, int], ends: dict[Partition, int]) -> list[Shown]:
        from perseid.topics.ranges import RangeReader

        reader = RangeReader(self._bootstrap, isolation=self._isolation)
        found = [
            shown(message)
            for place in self._places
            for batch in reader.read(*place, starts[place], ends[place])
            for message in batch
        ]
        reader.close()
        return sorted(found, key=lambda r: (r.time_ms, r.partition, r.offset))


def shown(message: Message) -> Shown:
    """One message as text; bytes that are no text are escaped."""
    listed = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Shown(
        cast(int, message.partition()),
        cast(int, message.offset()),
        message.timestamp()[1],
        as_text(message.key()),
        _value(message.value()),
        {name: as_text(data) or "" for name, data in listed},
    )


def _value(data: Any) -> str | None:
    if isinstance(data, bytes) and data.startswith(b"\xc3\x01"):
        from perseid.topics import codec

        try:
            return repr(codec.decode(data))
        except PermanentError:
            return as_text(data)
    return as_text(data)


def as_text(data: Any) -> str | None:
    """Bytes as text; those that are none are escaped."""
    return data.decode(errors="backslashreplace") if isinstance(data, bytes) else data
