"""What must hold, checked without the engine's decisions: it looks at topics, and knows the input.

After every event, over what is new:
- per word, the committed outputs of a sink count 1, 2, 3, ... and their totals rise;
- a ledger partition's committed epochs follow each other within a layout, its generations never
  fall, and each is of the layout that its token names, and of no generation below the token's; a
  claim says its last epoch again; no token is taken back of which an epoch is committed or will be;
- the tokens that count have dense epochs, name every source offset once, and their coordinator
  epochs, times and watermarks never fall; a watermark is not above what was there to be read.
At the end the ledger's windows are what is in the sinks; after healing every word's total is the
input's.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf

from perseid.clocks import Clock
from perseid.coordinator.token_time import SLACK
from perseid.testing.kafka_model import ModelKafka, ModelLog, ModelRecord
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect
from perseid.topics import codec, names
from perseid.topics.records import Begin, Claim, LedgerRecord, Rewind, Token

TOKENS, LEDGER = names.tokens(job.JOB), names.ledger(job.JOB)
SKEW_MS = 300  # of clocks that are right
ROUNDED_MS = 2  # two tokens' times, and the moments of their issue


@dataclass
class Cursor:
    """How far one topic partition has been looked at; records before `offset` are decided."""

    offset: int = 0

    def newly_committed(self, log: ModelLog) -> list[ModelRecord]:
        found = []
        for record in log.between(self.offset, log.end):
            transaction = record.transaction
            state = transaction.state if transaction else "committed"
            if state == "open":
                break
            # What a broker shows that has forgotten the abort, no sink can help.
            forgotten = transaction is not None and transaction.was_aborted
            if state == "committed" and not record.marker and not forgotten:
                found.append(record)
            self.offset = record.offset + 1
        return found


@dataclass
class Words:
    """The last output of each word in one sink."""

    n: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)
    torn: bool = False  # the broker has lost a part of what was acknowledged

    def take(self, sink: str, value: bytes) -> None:
        word, n, total = job.output(value)
        if word == job.STRANGER:
            raise Defect(f"sink {sink}: {value!r} comes of records of a topic that was made anew")
        if self.torn:  # some are gone; of the epoch in flight its outputs stay and its ledger goes
            holds = n >= self.n[word]
        else:
            holds = n == self.n[word] + 1 and total > self.total[word]
        if not holds:
            raise Defect(
                f"sink {sink}, word {word}: output n={n} total={total} follows "
                f"n={self.n[word]} total={self.total[word]}: "
                + ("doubled or reordered" if n <= self.n[word] else "lost or wrong")
            )
        self.n[word], self.total[word] = n, total


@dataclass
class Tokens:
    """The chain again, written from the rules and not from the code.

    Token time: between two tokens no more than the time between their issues, unless that is what
    the time really is, and no less while one leader issues them. `clock`: of nobody's machine.
    """

    kafka: ModelKafka
    clock: Clock
    coordinator: int = 0
    epoch: int = 0
    offset: int = -1
    watermark_ms: int | None = None
    read_ms: float = 0.0  # of the latest record that a token names
    ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    plans: dict[int, tuple[int, int]] = field(default_factory=dict)  # layout, generation by offset
    ends_at: dict[int, Counter[tuple[str, int]]] = field(default_factory=dict)  # by epoch
    watermarks: dict[int, int | None] = field(default_factory=dict)  # likewise
    taken_back: set[int] = field(default_factory=set)  # offsets of tokens
    issued_ms: dict[tuple[int, int], int] = field(default_factory=dict)  # by leader and epoch
    last: tuple[int, int, int] | None = None  # leader, epoch and time of the tip, if it is a token
    off_ms: int = 0  # for so long all was switched off

    def take(self, offset: int, record: object) -> None:
        assert isinstance(record, Claim | Begin | Token | Rewind), record
        if record.coordinator_epoch < self.coordinator:
            return
        if isinstance(record, Rewind):
            self._take_back(record)
        if isinstance(record, Token) and self._begins_with(offset):
            self.ends.update({(r.topic, r.partition): r.end for s in record.splits for r in s})
            self.time_ms, self.watermark_ms = record.time_ms, record.watermark_ms
            self.plans[offset] = record.layout, record.generation
        elif isinstance(record, Token):
            if (record.epoch, record.previous_offset) != (self.epoch + 1, self.offset):
                return
            self._time(record)
            self._watermark(record)
            self._follow(record)
            self.plans[offset] = record.layout, record.generation
        if isinstance(record, Token | Begin):
            self.epoch, self.offset = record.epoch, offset
            self.ends_at[record.epoch] = self.ends.copy()
            self.watermarks[record.epoch] = self.watermark_ms
        self.coordinator = record.coordinator_epoch

    def issues(self, token: Token) -> None:
        """A leader has just decided on it."""
        self.issued_ms[token.coordinator_epoch, token.epoch] = self.clock.wall_ms()

    def _time(self, token: Token) -> None:
        leader, last = token.coordinator_epoch, self.last
        at_ms = self.issued_ms[leader, token.epoch]
        self.last = leader, token.epoch, token.time_ms
        if last is None:
            return
        passed_ms = at_ms - self.issued_ms[last[0], last[1]]
        since_ms, right_ms = token.time_ms - last[2], at_ms + self.off_ms
        told = f"{since_ms} ms behind the one before it, after {passed_ms} ms"
        if since_ms < 0:
            raise Defect(f"the token of epoch {token.epoch} goes back in time: {told}")
        if since_ms > passed_ms * (1 + SLACK) + ROUNDED_MS and token.time_ms > right_ms + SKEW_MS:
            raise Defect(f"the token of epoch {token.epoch} is ahead of time: {told}")
        if leader == last[0] and since_ms < passed_ms * (1 - SLACK) - ROUNDED_MS:
            raise Defect(f"time stands still at epoch {token.epoch}: {told}")

    def _take_back(self, record: Rewind) -> None:
        self.last = None
        if record.epoch not in self.ends_at or record.epoch > self.epoch:
            raise Defect(f"{record} does not go back to an epoch of the chain, at {self.epoch}")
        self.taken_back |= {at for at in self.plans if at > record.previous_offset}
        self.epoch, self.offset = record.epoch, record.previous_offset
        self.ends = self.ends_at[record.epoch].copy()
        self.watermark_ms = self.watermarks[record.epoch]

    def _begins_with(self, offset: int) -> bool:
        """Whether the log was trimmed up to a token there, that of a checkpoint: it names all."""
        return self.offset < 0 < offset == self.kafka.log(TOKENS, 0).start

    def _watermark(self, token: Token) -> None:
        before, now = self.watermark_ms, token.watermark_ms
        if now is not None and now > self.read_ms - job.DELAY_MS:
            raise Defect(f"epoch {token.epoch}: watermark {now}, and read was up to {self.read_ms}")
        if before is not None and (now is None or now < before):
            raise Defect(f"epoch {token.epoch}: the watermark falls from {before} to {now}")
        self.watermark_ms = now

    def _follow(self, token: Token) -> None:
        for found in (r for split in token.splits for r in split):
            place = (found.topic, found.partition)
            if found.start != self.ends[place]:
                raise Defect(
                    f"epoch {token.epoch} reads {place} from {found.start}, the epochs before it "
                    f"ended at {self.ends[place]}"
                )
            self.ends[place] = found.end
            if self.read_ms < inf:
                records = self.kafka.readable(*place, found.start, found.end)
                self.read_ms = max([self.read_ms, *(r.time_ms for r in records)])


class Checker:
    """Looks at one job's topics."""

    def __init__(self, kafka: ModelKafka, sinks: list[str], clock: Clock) -> None:
        self._kafka, self._clock = kafka, clock
        self.expected: Counter[str] = Counter()
        self.words = {topic: Words() for topic in sinks}
        self.tokens = Tokens(kafka, clock)
        self.ledger: dict[int, LedgerRecord] = {}
        self._windows: list[LedgerRecord] = []
        self._cursors: dict[tuple[str, int], Cursor] = {}

    def start_again(self) -> None:
        """The logs are others than before: looks at all of them anew, and less strictly."""
        self.words = {topic: Words(torn=True) for topic in self.words}
        # Records may be gone that were read.
        self.tokens = Tokens(
            self._kafka, self._clock, read_ms=inf, issued_ms=self.tokens.issued_ms,
            off_ms=self.tokens.off_ms,
        )  # fmt: skip
        self.ledger, self._windows, self._cursors = {}, [], {}
        self._kafka.changed |= {*self.words, TOKENS, LEDGER} & self._kafka.topics.keys()

    def input_is_lost(self) -> None:
        """Records may be gone that are yet to be read."""
        self.tokens.read_ms = inf

    def look(self) -> None:
        """Raises Defect."""
        if not self._kafka.changed:
            return
        changed, self._kafka.changed = self._kafka.changed, set()
        for topic in sorted(changed & self.words.keys()):
            for _, record in self._new(topic):
                self.words[topic].take(topic, record.value or b"")
        if TOKENS in changed:
            for _, record in self._new(TOKENS):
                self.tokens.take(record.offset, codec.decode(record.value or b""))
        if LEDGER in changed:
            for partition, record in self._new(LEDGER):
                entry = codec.decode(record.value or b"")
                assert isinstance(entry, LedgerRecord)
                self._follow(partition, entry)

    @property
    def complete(self) -> bool:
        """Whether every word's total is the input's. Asked after every event: as plain dicts."""
        expected = dict(self.expected)
        return all(dict(words.total) == expected for words in self.words.values())

    def check_totals(self) -> None:
        """After everything came to rest."""
        for topic, words in self.words.items():
            if words.total != self.expected:
                raise Defect(f"sink {topic} ends with {words.total}, expected {self.expected}")

    def finish(self) -> None:
        """At the end of any history: what the ledger says stands in the sinks.

        But for what the broker had acknowledged and lost, and what stands in its place.
        """
        cuts: dict[tuple[str, int], int] = {}
        for place, end in self._kafka.lost_tails:
            cuts[place] = min(end, cuts.get(place, end))
        for entry in self._windows:
            for window in entry.outputs:
                marker = window.last + 1  # without it readers wait for the next transaction
                if marker >= cuts.get((window.topic, window.partition), marker + 1):
                    continue
                records = self._kafka.readable(
                    window.topic, window.partition, window.first, window.last + 1
                )
                values = [r.value or b"" for r in records]
                run = b"".join(len(v).to_bytes(4, "little") for v in values)
                run += b"".join(r.key or b"" for r in records) + b"".join(values)
                if (len(values), 2**63 + zlib.crc32(run)) != (window.count, window.checksum):
                    raise Defect(f"the ledger says {window}, the topic has {len(values)} records")

    def _follow(self, partition: int, entry: LedgerRecord) -> None:
        last = self.ledger.get(partition)
        if last is not None and entry.generation > last.generation and entry == replace(
            last, generation=entry.generation, outputs=()
        ):  # fmt: skip
            self.ledger[partition] = entry
            return  # a claim
        if entry.token_offset in self.tokens.taken_back:
            raise Defect(f"ledger partition {partition}: {entry} is of a token that is taken back")
        if last is not None and (
            entry.epoch <= last.epoch or entry.generation < last.generation
            or (entry.layout == last.layout and entry.epoch != last.epoch + 1)
        ):
            raise Defect(f"ledger partition {partition}: {entry} follows {last}")
        layout, generation = self.tokens.plans.get(entry.token_offset, (entry.layout, 0))
        unused = last is None and self._claims_new_layout(entry, layout)
        if (entry.layout != layout and not unused) or entry.generation < generation:
            raise Defect(
                f"ledger partition {partition}: {entry}, its token is of layout {layout} and "
                f"generation {generation}"
            )
        self.ledger[partition] = entry
        self._windows.append(entry)

    def _claims_new_layout(self, entry: LedgerRecord, layout: int) -> bool:
        """Whether it says behind what its layout begins, in which the partition has no epoch yet.

        `layout`: that of its token.
        """
        tokens = self.tokens
        behind = [of_token for at, (of_token, _) in tokens.plans.items()
                  if at > entry.token_offset and at not in tokens.taken_back]  # fmt: skip
        return not entry.outputs and layout < entry.layout <= min(behind, default=entry.layout)

    def _new(self, topic: str) -> list[tuple[int, ModelRecord]]:
        found = []
        for partition, log in enumerate(self._kafka.topics[topic].logs):
            cursor = self._cursors.setdefault((topic, partition), Cursor())
            if cursor.offset < log.end:
                found += [(partition, r) for r in cursor.newly_committed(log)]
        return found
