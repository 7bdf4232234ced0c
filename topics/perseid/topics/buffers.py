"""Buffer topics: sets of rows from one fragment to the operator partitions of another.

A set is a sequence of blobs (the chunks of `perseid.worker.dataflow.edges`). It travels as one run
of bytes, cut into records, so that no record is too large for its topic. Nothing is written in
transactions: sets are counted (`sets`), so one that is incomplete, or sent twice, does no harm.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from perseid.clocks import Clock, SystemClock
from perseid.errors import (
    DamagedFile,
    LogTruncated,
    PermanentError,
    ReplayDataLost,
    RetryableError,
)
from perseid.records.access import Bootstrap
from perseid.topics import clients, codec
from perseid.topics.admin import Partition
from perseid.topics.buffer_topics import AGAIN
from perseid.topics.log import LogReader
from perseid.topics.records import BufferRecord
from perseid.topics.sets import Place, Sets, WholeSet

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

DATA_BYTES_MAX = 900_000  # of a record: with its other fields below `clients.BATCH_BYTES_MAX`
READ_RECORDS = 64  # at once: the client has prefetched no more
READ_S = 0.2  # at most, until a wait that is to end has ended
SEND_S = 20.0  # for room in the client's queue
FLUSH_STEP_S = 0.2
MISSING_SHOWN = 5

_LENGTH = struct.Struct("<Q")


class BufferWriter(Protocol):
    """Appends to partitions; records of one partition keep their order.

    After an error it may be used again, for other attempts: what was sent before is in the log, or
    not, or comes late.
    """

    def send(self, place: Partition, value: bytes) -> None:
        """Queues a record. RetryableError: the queue stays full."""
        ...

    def flush(self, timeout_s: float) -> None:
        """Returns once all that was sent is durable. RetryableError: some may be, some not."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Blobs:
    """A set that came: the blobs as they were sent, and the CRC that its sender computed."""

    blobs: tuple[memoryview, ...]
    rows_crc: int


def packed(head: BufferRecord, blobs: Sequence[Any]) -> Iterator[BufferRecord]:
    """The set of `blobs` (buffers) as records. `head` gives the fields that they share."""
    parts = [part for blob in blobs for part in (_LENGTH.pack(len(blob)), memoryview(blob))]
    data = b"".join(parts)
    starts = range(0, max(len(data), 1), DATA_BYTES_MAX)
    for chunk, start in enumerate(starts):
        piece = data[start : start + DATA_BYTES_MAX]
        yield replace(head, chunk=chunk, chunks=len(starts), data=piece)


def unpacked(pieces: Sequence[bytes]) -> tuple[memoryview, ...]:
    """The blobs of a set from the data of its records, in order. DamagedFile if they do not fit."""
    data, blobs, at = memoryview(b"".join(pieces)), [], 0
    while at < len(data):
        start = at + _LENGTH.size
        length = _LENGTH.unpack_from(data, at)[0] if start <= len(data) else len(data)
        at = start + length
        if at > len(data):
            raise DamagedFile(
                f"a set of {len(data)} bytes names a blob that ends at byte {at}: its records do "
                "not belong together"
            )
        blobs.append(data[start:at])
    return tuple(blobs)


class SetWriter:
    """Sends the sets of one sender's task; `attempt` gives a number that no other attempt has."""

    def __init__(self, writer: BufferWriter, attempt: Callable[[], int]) -> None:
        self._writer, self._attempt = writer, attempt

    def send(self, place: Partition, head: BufferRecord, blobs: Sequence[Any]) -> int:
        """Queues a set, whose attempt is a new one; the bytes of its records.

        RetryableError: it may be sent again.
        """
        size = 0
        for record in packed(replace(head, attempt=self._attempt()), blobs):
            value = codec.encode(record)
            self._writer.send(place, value)
            size += len(value)
        return size

    def flush(self, timeout_s: float) -> None:
        """As `BufferWriter.flush`; after an error the caller sends all sets of the epoch again."""
        self._writer.flush(timeout_s)


class SetsLate(RetryableError):
    """Sets did not come in time."""


class Trimmed(PermanentError):
    """Records that a reader had yet to read are gone: of its own, it trims only what it has read.

    A previous owner that was paused may have done it, within its rights: who begins to read again
    finds out whether a set is lost (`Sets.overtaken`).
    """


class SetReader:
    """Waits for the sets of one partition of a buffer."""

    def __init__(
        self, operator: str, place: Partition, sets: Sets, reader: LogReader, start: int,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        """`operator`: the one that reads. `start`: as `buffer_topics.check_starts` gives it."""
        self.sets = sets
        self._who = f"operator {operator}, partition {place[1]}"
        self._place, self._reader = place, reader
        self._clock: Clock = clock or SystemClock()
        sets.position = start

    def wait(
        self, token_offset: int, wanted: Set[Place], timeout_s: float,
        look: Callable[[], None] = lambda: None,
    ) -> dict[Place, Blobs]:  # fmt: skip
        """The sets of this token from all `wanted` places.

        `look` is called before each read, so that what it raises ends the wait within READ_S.

        Raises:
            SetsLate: some are missing after that time; it names them.
            RetryableError: there are too many attempts to know (`Sets.add`).
            PermanentError: the topic was trimmed by others, or has lost records.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        while missing := self.sets.missing(token_offset, wanted):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise SetsLate(self._late(token_offset, missing, timeout_s))
            look()
            self.read(min(left_s, READ_S))
        found = {
            (one.input, one.origin): self._blobs(one) for one in self.sets.whole(token_offset)
            if (one.input, one.origin) in wanted
        }  # fmt: skip
        return found

    def read(self, timeout_s: float) -> int:
        """Takes the next records, as soon as there is one; how many. Raises as `wait` does."""
        try:
            entries = self._reader.read_from(
                *self._place, self.sets.position, max_records=READ_RECORDS, timeout_s=timeout_s
            )
        except (ReplayDataLost, LogTruncated) as error:
            raise lost(self._place, error) from error
        for entry in entries:
            record = codec.decode_buffer(self._place, entry.offset, entry.value)
            self.sets.add(entry.offset, record)
        return len(entries)

    def refuse_lost(self, token_offset: int, wanted: Set[Place], generation: int) -> None:
        """PermanentError when a set of this token was there and is no more (`Sets.overtaken`)."""
        missing = self.sets.missing(token_offset, wanted)
        gone = self.sets.overtaken(token_offset, missing, generation)
        if gone:
            raise PermanentError(
                f"{self._who}: {self._place[0]} lacks {_shown(gone)} of the token at offset "
                f"{token_offset}, and has later ones from there: records were deleted by hand. "
                f"{AGAIN}"
            )

    def divergences(self) -> list[str]:
        """What was found since the last call, for an event: operator, partition, epoch and CRCs."""
        return [f"{self._who}, {one}" for one in self.sets.divergences()]

    def _blobs(self, one: WholeSet) -> Blobs:
        pieces = one.data if one.data is not None else self._again(one)
        try:
            return Blobs(unpacked(pieces), one.attempt.rows_crc)
        except DamagedFile as error:
            where = f"{self._place[0]}[{self._place[1]}], offsets {one.offsets}"
            raise DamagedFile(f"{where}: {error}") from None

    def _again(self, one: WholeSet) -> list[bytes]:
        """Reads the records of a set again that were not kept."""
        first, last = min(one.offsets), max(one.offsets)
        try:
            entries = self._reader.read_range(*self._place, first, last + 1, timeout_s=SEND_S)
        except (ReplayDataLost, LogTruncated) as error:
            raise lost(self._place, error) from error
        values = {e.offset: e.value for e in entries}
        return [
            codec.decode_buffer(self._place, offset, values[offset]).data for offset in one.offsets
        ]

    def _late(self, token_offset: int, missing: Set[Place], timeout_s: float) -> str:
        return (
            f"{self._who}: {len(missing)} sets of the token at offset {token_offset} did not come "
            f"in {timeout_s:g} s through {self._place[0]}: {_shown(missing)}; the fragments that "
            "send them are late or down"
        )


def _shown(places: Set[Place]) -> str:
    shown = ", ".join(f"(input {i}, origin {o})" for i, o in sorted(places)[:MISSING_SHOWN])
    more = f" and {len(places) - MISSING_SHOWN} more" if len(places) > MISSING_SHOWN else ""
    return f"{shown}{more}"


def lost(place: Partition, error: ReplayDataLost | LogTruncated) -> PermanentError:
    """The error for records of a buffer that are gone before they were read."""
    what = (
        f"begins at offset {error.earliest}: its records were deleted by hand"
        if isinstance(error, ReplayDataLost)
        else f"ends at offset {error.end}: the broker has lost records, or it was created again"
    )
    kind = Trimmed if isinstance(error, ReplayDataLost) else PermanentError
    return kind(
        f"buffer topic {place[0]}[{place[1]}] {what}, and the reader needs offset "
        f"{error.needed}. Only the fragment that reads it may trim it. {AGAIN}"
    )


class KafkaBufferWriter:
    """BufferWriter on Kafka: one idempotent producer, replaced after an error."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._bootstrap = bootstrap
        self._producer: Producer | None = None
        self._failed: tuple[KafkaError, str] | None = None

    def send(self, place: Partition, value: bytes) -> None:
        from confluent_kafka import KafkaException

        if self._producer is None:
            self._producer, self._failed = clients.buffering(self._bootstrap), None
        deadline_s = time.monotonic() + SEND_S
        while True:
            try:
                self._producer.produce(place[0], value, partition=place[1], on_delivery=self._note)
            except BufferError as full:
                self._producer.poll(FLUSH_STEP_S)
                if time.monotonic() > deadline_s:
                    raise self._aborted(RetryableError(
                        f"sending to {place[0]}[{place[1]}]: the broker took nothing in {SEND_S} s"
                    )) from full  # fmt: skip
            except KafkaException as raised:
                what = f"sending to {place[0]}[{place[1]}]"
                raise self._aborted(clients.as_error(raised.args[0], what)) from raised
            else:
                self._producer.poll(0)
                self._check()
                return

    def flush(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self._producer is not None and self._producer.flush(FLUSH_STEP_S):
            self._check()
            if time.monotonic() > deadline_s:
                raise self._aborted(
                    RetryableError(f"buffer records were not acknowledged in {timeout_s:g} s")
                )
        self._check()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error, f"sending to {message.topic()}[{message.partition()}]"

    def _check(self) -> None:
        if self._failed is not None:
            raise self._aborted(clients.as_error(*self._failed))

    def _aborted(self, error: Exception) -> Exception:
        """`error`, after which the records that wait are not sent any more."""
        self.close()
        self._failed = None
        return error
