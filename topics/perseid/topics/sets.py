"""Which sets in one partition of a buffer topic count. Pure.

A *set* is what one task of a sender sends one operator partition in an epoch; its place is (token
offset, input, origin). Producers die halfway, are replaced and send again, two of them at once, and
epochs are rewound. So in one partition:

1. A set is of one attempt. Chunks of different attempts are never combined.
2. Of a place the first attempt that is complete in the order of the offsets counts; the others are
   dropped. Every reader of the partition chooses the same one.
3. A set counts only if its token is on the reader's chain. The offset of a token that was taken
   back never comes back, so its sets never count again.
4. A later complete attempt of the same revision with other rows is *divergence*: the producer is
   not deterministic, or a state differs.

The chunks of what may still count are kept up to a limit. Beyond it those of the latest tokens are
dropped, and the reader reads them again when their epoch begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from perseid.errors import RetryableError
from perseid.topics.records import BufferRecord

BYTES_MAX = 64 << 20  # kept of one partition: two minutes of a partition at 500 kB/s
ATTEMPTS_MAX = 200_000  # known of one partition, some 100 MB; only trimming makes them fewer

Place = tuple[int, int]  # input, origin


class Attempt(NamedTuple):
    """What all records of one set have in common, besides its place."""

    generation: int
    attempt: int
    epoch: int
    revision: str
    chunks: int
    rows_crc: int


@dataclass(frozen=True, slots=True)
class WholeSet:
    """A set that counts. `offsets`: of its chunks, in their order. `data`: None if not kept."""

    token_offset: int
    input: int
    origin: int
    attempt: Attempt
    offsets: tuple[int, ...]
    data: tuple[bytes, ...] | None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Two complete sets of one place and revision with different rows; the first one counts."""

    token_offset: int
    input: int
    origin: int
    first: Attempt
    other: Attempt

    def __str__(self) -> str:
        one, two = self.first, self.other
        return (
            f"epoch {one.epoch}, input {self.input}, origin {self.origin}: generation "
            f"{one.generation} sent rows with CRC {one.rows_crc:08x}, and generation "
            f"{two.generation} others with {two.rows_crc:08x} for the same token (at offset "
            f"{self.token_offset}) of revision {one.revision}"
        )


@dataclass(slots=True)
class _Sent:
    """The attempts of one place: offsets by chunk. `first`: the one that counts."""

    attempts: dict[Attempt, dict[int, int]] = field(default_factory=dict)
    first: Attempt | None = None


@dataclass(slots=True)
class _OfToken:
    """All that was seen of one token. `begins`: its first offset. `data`: chunks by offset."""

    begins: int
    places: dict[Place, _Sent] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)


class Sets:
    """The sets of one partition. Takes its records in the order of their offsets."""

    def __init__(
        self, job_uuid: str, layout: int, base: int, *, bytes_max: int = BYTES_MAX,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:  # fmt: skip
        """`base`: the offset of the token after which the reader resumes."""
        self._job_uuid, self._layout = job_uuid, layout
        self._bytes_max, self._attempts_max = bytes_max, attempts_max
        self._tokens: dict[int, _OfToken] = {}
        self._valid: Set[int] = frozenset()
        self._judged = 0  # tokens at offsets below this one are valid or not
        self._done = self._floor = base
        self._divergences: list[Divergence] = []
        self.position = 0  # the next offset
        self.kept_bytes = 0
        self.attempts = 0
        self.dropped: Counter[str] = Counter()  # records, by reason

    def add(self, offset: int, record: BufferRecord) -> None:
        """Takes the next record. RetryableError when there are too many attempts to know."""
        if offset < self.position:
            return  # the reader began again before its position
        self.position = offset + 1
        reason = self._not_wanted(record)
        if reason:
            self.dropped[reason] += 1
            return
        of_token = self._tokens.get(record.token_offset)
        if of_token is None:
            of_token = self._tokens[record.token_offset] = _OfToken(offset)
        sent = of_token.places.get((record.input, record.origin))
        if sent is None:
            sent = of_token.places[record.input, record.origin] = _Sent()
        attempt = _attempt(record)
        chunks = self._chunks_of(sent, attempt)
        if record.chunk in chunks:
            self.dropped["doubled"] += 1
            return
        chunks[record.chunk] = offset
        if record.token_offset > self._done and sent.first is None:
            of_token.data[offset] = record.data
            self.kept_bytes += len(record.data)
        else:
            self.dropped["of another attempt"] += 1
        if len(chunks) == record.chunks:
            self._complete(of_token, sent, record, attempt)
        self._shrink()

    def judge(self, valid: Set[int], end: int) -> None:
        """What the reader knows of the token log, which it has read up to the offset `end`.

        `valid`: the offsets of all tokens on its chain after the base, or after the last `trim`.
        """
        self._valid, self._judged = valid, end
        for offset in [o for o in self._tokens if not self._may_count(o)]:
            self._forget(offset, "of a token that was taken back")

    def done(self, token_offset: int) -> None:
        """The epoch of this token has run, and those of all earlier ones: its rows are dropped."""
        self._done = max(self._done, token_offset)
        for offset, of_token in self._tokens.items():
            if offset <= self._done:
                self._drop_data(of_token)

    def trim(self, floor: int) -> None:
        """Nothing will be needed of tokens up to the offset `floor`, nor compared with them."""
        self._floor = max(self._floor, floor)
        for offset in [o for o in self._tokens if o <= self._floor]:
            self._forget(offset)

    def needed_from(self, floor: int) -> int:
        """The first offset that has a record of a token after `floor`; else the position."""
        begins = (t.begins for offset, t in self._tokens.items() if offset > floor)
        return min(begins, default=self.position)

    def missing(self, token_offset: int, places: Set[Place]) -> Set[Place]:
        """The places that have no complete set of this token."""
        of_token = self._tokens.get(token_offset)
        if of_token is None:
            return places
        return {p for p in places if p not in of_token.places or not of_token.places[p].first}

    def overtaken(self, token_offset: int, places: Set[Place], generation: int) -> Set[Place]:
        """Those of `places`, which have no set of this token, whose set is lost.

        They have a complete one of a later token. A sender sends token by token, and one of this
        `generation` or a lower one ran the token too: it was not taken back before that.
        """
        return {
            place
            for offset, of_token in self._tokens.items() if offset > token_offset
            for place, sent in of_token.places.items()
            if place in places and sent.first is not None and sent.first.generation <= generation
        }  # fmt: skip

    def whole(self, token_offset: int) -> Iterator[WholeSet]:
        """The sets of this token that are complete, by input and origin."""
        of_token = self._tokens.get(token_offset)
        for (input_, origin), sent in sorted(of_token.places.items()) if of_token else ():
            if sent.first is not None and of_token is not None:
                chunks = sent.attempts[sent.first]
                offsets = tuple(chunks[number] for number in range(sent.first.chunks))
                kept = all(offset in of_token.data for offset in offsets)
                data = tuple(of_token.data[offset] for offset in offsets) if kept else None
                yield WholeSet(token_offset, input_, origin, sent.first, offsets, data)

    def divergences(self) -> list[Divergence]:
        """Those since the last call whose token is valid; later, those that are not judged yet."""
        found = [d for d in self._divergences if d.token_offset in self._valid]
        self._divergences = [d for d in self._divergences if d.token_offset >= self._judged]
        return found

    def _not_wanted(self, record: BufferRecord) -> str:
        """Why the record cannot count; empty if it may."""
        if (record.job_uuid, record.layout) != (self._job_uuid, self._layout):
            return "of another job or layout"
        if record.token_offset <= self._floor:
            return "of a token that is not needed any more"
        if not self._may_count(record.token_offset):
            return "of a token that was taken back"
        return "" if 0 <= record.chunk < record.chunks else "without a place in its set"

    def _may_count(self, token_offset: int) -> bool:
        return token_offset in self._valid or token_offset >= self._judged

    def _chunks_of(self, sent: _Sent, attempt: Attempt) -> dict[int, int]:
        if attempt not in sent.attempts:
            if self.attempts == self._attempts_max:
                raise RetryableError(
                    f"a buffer partition has more than {self._attempts_max} sets that are not "
                    "trimmed: checkpoints are overdue, or its senders send again and again; "
                    "`perseid jobs show` has the job's last checkpoint"
                )
            self.attempts += 1
            sent.attempts[attempt] = {}
        return sent.attempts[attempt]

    def _complete(
        self, of_token: _OfToken, sent: _Sent, record: BufferRecord, attempt: Attempt
    ) -> None:  # fmt: skip
        first = sent.first
        if first is None:
            sent.first = attempt
            for other, chunks in sent.attempts.items():
                if other != attempt:
                    self._drop(of_token, chunks.values(), "of another attempt")
        elif (first.revision, first.epoch) != (attempt.revision, attempt.epoch):
            return  # the rows may differ
        elif first.rows_crc != attempt.rows_crc:
            where = record.token_offset, record.input, record.origin
            self._divergences.append(Divergence(*where, first, attempt))

    def _shrink(self) -> None:
        """Drops the rows of the latest tokens until the others are within the limit."""
        if self.kept_bytes <= self._bytes_max:
            return
        for offset in sorted(self._tokens, reverse=True):
            self._drop_data(self._tokens[offset])
            if self.kept_bytes <= self._bytes_max:
                return

    def _forget(self, token_offset: int, reason: str = "") -> None:
        of_token = self._tokens.pop(token_offset)
        if reason:
            self.dropped[reason] += len(of_token.data)
        self._drop_data(of_token)
        self.attempts -= sum(len(sent.attempts) for sent in of_token.places.values())

    def _drop_data(self, of_token: _OfToken) -> None:
        self.kept_bytes -= sum(map(len, of_token.data.values()))
        of_token.data.clear()

    def _drop(self, of_token: _OfToken, offsets: Iterable[int], reason: str) -> None:
        for offset in offsets:
            data = of_token.data.pop(offset, None)
            if data is not None:
                self.kept_bytes -= len(data)
                self.dropped[reason] += 1


def _attempt(record: BufferRecord) -> Attempt:
    return Attempt(
        record.generation, record.attempt, record.epoch, record.revision, record.chunks,
        record.rows_crc,
    )  # fmt: skip
