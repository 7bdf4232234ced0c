"""Checks the invariants from the topics and the known input, without the engine's decisions.

After every event, over the new records:
- per word, the committed outputs of a sink count 1, 2, 3, ... and their totals rise;
- a ledger partition's epochs are dense within a layout and its generations never fall;
- a ledger names the environment of each record's writer, also once it is trimmed (`kept`);
- each ledger record has its token's layout and at least its generation; a claim repeats the last
  epoch; no token is rolled back of which an epoch is committed or will be;
- valid tokens have dense epochs and name every source offset once; their coordinator epochs, times
  and watermarks never fall; no watermark exceeds the times of the records read.
At the end the sinks hold the ledger's windows; after healing every word's total is the input's.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
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
SKEW_MS = 300  # between correct clocks
ROUNDED_MS = 2  # for the times of two tokens and of their issue


@dataclass
class Cursor:
    """How far one topic partition has been checked; records before `offset` are decided."""

    offset: int = 0

    def newly_committed(self, log: ModelLog) -> list[ModelRecord]:
        found = []
        for record in log.between(self.offset, log.end):
            transaction = record.transaction
            state = transaction.state if transaction else "committed"
            if state == "open":
                break
            # If the broker forgot the abort and shows the records, no sink can prevent it.
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
    torn: bool = False  # the broker has lost some acknowledged records
    _records: set[str] = field(default_factory=set)  # of a source, where a sink has them as such

    def take(self, sink: str, value: bytes) -> None:
        word, n, total = job.output(value)
        if word == job.STRANGER:
            raise Defect(f"sink {sink}: {value!r} comes of records of a topic that was recreated")
        if isinstance(n, str):
            if n in self._records and not self.torn:
                raise Defect(f"sink {sink} has the record {n} twice")
            self._records.add(n)
            self.total[word] += total
            return
        if self.torn:  # of the epoch in flight the outputs may stay while its ledger record is lost
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
    """The token chain, recomputed from the rules and not with the engine's code.

    Token time advances between two tokens by at most the time between their issues, unless it
    catches up with the correct time, and by no less under the same leader. `clock` is the
    simulation's, which is correct.
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
    watermarks: dict[int, int | None] = field(default_factory=dict)  # by epoch
    chain: dict[int, Token] = field(default_factory=dict)  # by epoch
    taken_back: set[int] = field(default_factory=set)  # offsets of tokens that were rolled back
    # By leader, epoch and token time: a log that lost its tail is read again from the start, and a
    # leader may have issued two tokens of one epoch.
    issued_ms: dict[tuple[int, int, int], int] = field(default_factory=dict)
    last: tuple[int, int, int] | None = None  # leader, epoch and time of the tip if it is a token
    off_ms: int = 0  # how long all machines were switched off

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
            self.chain[record.epoch] = record
        if isinstance(record, Token | Begin):
            self.epoch, self.offset = record.epoch, offset
            self.ends_at[record.epoch] = self.ends.copy()
            self.watermarks[record.epoch] = self.watermark_ms
        self.coordinator = record.coordinator_epoch

    def issues(self, token: Token) -> None:
        """Records when a leader issued `token`."""
        issued = token.coordinator_epoch, token.epoch, token.time_ms
        self.issued_ms[issued] = self.clock.wall_ms()

    def _time(self, token: Token) -> None:
        leader, last = token.coordinator_epoch, self.last
        self.last = leader, token.epoch, token.time_ms
        at_ms = self.issued_ms[self.last]
        if last is None:
            return
        passed_ms = at_ms - self.issued_ms[last]
        since_ms, right_ms = token.time_ms - last[2], at_ms + self.off_ms
        gap = f"{since_ms} ms after the one before it, after {passed_ms} ms"
        if since_ms < 0:
            raise Defect(f"the token of epoch {token.epoch} goes back in time: {gap}")
        if since_ms > passed_ms * (1 + SLACK) + ROUNDED_MS and token.time_ms > right_ms + SKEW_MS:
            raise Defect(f"the token of epoch {token.epoch} is ahead of time: {gap}")
        if leader == last[0] and since_ms < passed_ms * (1 - SLACK) - ROUNDED_MS:
            raise Defect(f"time does not advance at epoch {token.epoch}: {gap}")

    def _take_back(self, record: Rewind) -> None:
        self.last = None
        if record.epoch not in self.ends_at or record.epoch > self.epoch:
            raise Defect(f"{record} does not go back to an epoch of the chain, at {self.epoch}")
        self.taken_back |= {at for at in self.plans if at > record.previous_offset}
        self.chain = {e: token for e, token in self.chain.items() if e <= record.epoch}
        self.epoch, self.offset = record.epoch, record.previous_offset
        self.ends = self.ends_at[record.epoch].copy()
        self.watermark_ms = self.watermarks[record.epoch]

    def _begins_with(self, offset: int) -> bool:
        """Whether the log begins here with a checkpoint's token, which names all source offsets."""
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
    """Checks one job's topics.

    `sinks`: by topic, the sources whose words it gets, and of what. `commits`: gets the ledger's
    committed records.
    """

    def __init__(
        self, kafka: ModelKafka, sinks: Mapping[str, frozenset[str]], clock: Clock,
        commits: Callable[[LedgerRecord], None],
    ) -> None:  # fmt: skip
        self._kafka, self._clock, self._sources = kafka, clock, sinks
        self._commits = commits
        self.expected: dict[str, Counter[str]] = {topic: Counter() for topic in sinks}
        self.words = {topic: Words() for topic in sinks}
        self.tokens = Tokens(kafka, clock)
        self.ledger: dict[int, LedgerRecord] = {}
        self._windows: list[LedgerRecord] = []
        # By ledger partition, then by token too: what the ledger names as the writer's environment.
        self._in_force: dict[int, Mapping[str, str]] = {}
        self._named: dict[tuple[int, int], Mapping[str, str] | None] = {}
        self._wrote: dict[tuple[int, int], Mapping[str, str]] = {}
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._complete: bool | None = None  # None: not known

    def start_again(self) -> None:
        """Checks all logs again from their starts, less strictly: the broker has lost records."""
        self.words = {topic: Words(torn=True) for topic in self.words}
        # Records that were read may be lost.
        self.tokens = Tokens(
            self._kafka, self._clock, read_ms=inf, issued_ms=self.tokens.issued_ms,
            off_ms=self.tokens.off_ms,
        )  # fmt: skip
        self.ledger, self._windows, self._cursors = {}, [], {}
        self._kafka.changed |= {*self.words, TOKENS, LEDGER} & self._kafka.topics.keys()

    def produced(self, source: str, word: str, amount: int) -> None:
        """A record of the input."""
        self._complete = None
        for topic, sources in self._sources.items():
            if source in sources:
                self.expected[topic][word] += amount

    def wrote(self, partition: int, token_offset: int, environment: Mapping[str, str]) -> None:
        """A sink has committed that token's epoch, and knows it."""
        self._wrote[partition, token_offset] = environment

    def input_is_lost(self) -> None:
        """Drops the watermark check: records that are still to be read may be lost."""
        self.tokens.read_ms = inf

    def look(self) -> None:
        """Checks the new records. Raises Defect."""
        if not self._kafka.changed:
            return
        changed, self._kafka.changed = self._kafka.changed, set()
        self._complete = None
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

    def tokens_taken_back(self) -> set[int]:
        """The offsets of the tokens that were rolled back."""
        return self.tokens.taken_back

    @property
    def complete(self) -> bool:
        """Whether every word's total is the input's. This is asked after every event."""
        if self._complete is None:
            self._complete = all(
                dict(words.total) == dict(self.expected[topic])
                for topic, words in self.words.items()
            )
        return self._complete

    def check_totals(self) -> None:
        """Checks the totals after all input was processed."""
        for topic, words in self.words.items():
            wanted = self.expected[topic]
            if words.total != wanted:
                raise Defect(f"sink {topic} ends with {words.total}, expected {wanted}")

    def finish(self) -> None:
        """Checks that the sinks hold what the ledger names, after any history.

        Windows that reach into tails which the broker lost are skipped.
        """
        cuts: dict[tuple[str, int], int] = {}
        for place, end in self._kafka.lost_tails:
            cuts[place] = min(end, cuts.get(place, end))
        for entry in self._windows:
            for window in entry.outputs:
                marker = window.last + 1  # without it, readers wait for the next transaction
                if marker >= cuts.get((window.topic, window.partition), marker + 1):
                    continue
                records = self._kafka.readable(
                    window.topic, window.partition, window.first, window.last + 1
                )
                values = [r.value or b"" for r in records]
                run = b"".join(len(v).to_bytes(4, "little") for v in values)
                run += b"".join(r.key or b"" for r in records) + b"".join(values)
                if (len(values), 2**63 + zlib.crc32(run)) != (window.count, window.checksum):
                    raise Defect(f"the ledger has {window}, the topic has {len(values)} records")
        self._check_environments()

    def _check_environments(self) -> None:
        if self._kafka.lost_tails:
            return
        for place, environment in self._wrote.items():
            named = self._named.get(place, environment)
            if named != environment:
                raise Defect(
                    f"ledger partition {place[0]}, token {place[1]}: was written by {environment}, "
                    f"and the ledger names {named}"
                )

    def _follow(self, partition: int, entry: LedgerRecord) -> None:
        self._commits(entry)
        last = self.ledger.get(partition)
        if last is not None and entry.generation > last.generation and entry == replace(
            last, generation=entry.generation, outputs=(), environment={}
        ):  # fmt: skip
            self.ledger[partition] = entry
            return  # a claim
        if entry.token_offset in self.tokens.taken_back:
            raise Defect(f"ledger partition {partition}: {entry} is of a token that is taken back")
        if last is not None and (
            entry.epoch <= last.epoch
            or entry.generation < last.generation
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
        if entry.environment:
            self._in_force[partition] = entry.environment
        self._named[partition, entry.token_offset] = self._in_force.get(partition)

    def _claims_new_layout(self, entry: LedgerRecord, layout: int) -> bool:
        """Whether `entry` claims a new layout in which its partition has no epoch yet.

        Such a claim has no outputs and names the last token before the new layout. `layout` is that
        token's.
        """
        tokens = self.tokens
        later = [of_token for at, (of_token, _) in tokens.plans.items()
                  if at > entry.token_offset and at not in tokens.taken_back]  # fmt: skip
        return not entry.outputs and layout < entry.layout <= min(later, default=entry.layout)

    def _new(self, topic: str) -> list[tuple[int, ModelRecord]]:
        found = []
        for partition, log in enumerate(self._kafka.topics[topic].logs):
            cursor = self._cursors.setdefault((topic, partition), Cursor())
            if cursor.offset < log.end:
                found += [(partition, r) for r in cursor.newly_committed(log)]
        return found
