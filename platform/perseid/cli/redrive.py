"""Sends dead letters back to the topics of their records, each once.

    1 acquire   The job's redrive id fences every other redrive and aborts what a killed one left
                open. The trail is read up to its high watermark; all of that is decided.
    2 check     Letters that the trail has are done.
    3 write     begin, records, flush (returns their offsets), trail record, commit.
That is the sinks' protocol (`perseid.worker.sink.transaction`) with the trail as its ledger, so a
redrive that is killed anywhere resumes when it is run again. Any end without a clear success is
followed by step 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from perseid.cli.dead_letters import Letter, Place, Target, letter_of
from perseid.clocks import Clock
from perseid.errors import PermanentError, RetryableError
from perseid.topics import codec, names
from perseid.topics.admin import Partition, TopicChanger, TopicInfo, TopicReader
from perseid.topics.log import LogReader
from perseid.topics.records import Redriven, RedrivenLetter
from perseid.topics.transactions import PartitionBatch, Transaction, Transactions, Written

BATCH_LETTERS = 500  # per transaction, whose trail record is then far below 1 MB
BATCH_BYTES = 16 << 20  # of their values: fits the client's queue and 30 s
ATTEMPT_S = 30.0  # one acquire, one flush or one commit
ATTEMPTS_MAX = 5
TRAIL_READ = 1_000  # offsets of the trail at a time
_BACKOFF_S = 0.2


class Topics(TopicReader, TopicChanger, Protocol):
    """Both ports of `perseid.topics.admin`."""


class Ranges(Protocol):
    """Reads exact ranges (`perseid.topics.ranges`)."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Any]]: ...


def letters(
    ranges: Ranges, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> Iterator[Letter]:
    """The letters from `starts` up to `ends`, one partition after the other."""
    for (topic, partition), start in sorted(starts.items()):
        for messages in ranges.read(topic, partition, start, ends[topic, partition]):
            yield from (letter_of(topic, partition, message) for message in messages)


def batches(found: Iterable[Letter]) -> Iterator[list[Letter]]:
    """`found` in order, cut so that each piece fits one transaction."""
    batch: list[Letter] = []
    size = 0
    for letter in found:
        batch.append(letter)
        size += len(letter.value or b"")
        if len(batch) == BATCH_LETTERS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Trail:
    """Which letters of one dead-letter topic were redriven, and where to.

    After a topic is deleted and created again (another `topic_id`) its letters are different ones.
    """

    def __init__(self, job: str, topic_id: str, topics: TopicReader, logs: LogReader) -> None:
        self._place = names.redriven(job), 0
        self._topic_id, self._topics, self._logs = topic_id, topics, logs
        self._position: int | None = None
        self.found: dict[Place, RedrivenLetter] = {}

    def read(self, *, settled: bool) -> None:
        """Reads up to the present end.

        `settled`: to the high watermark, waiting until all transactions below it are decided.
        """
        if self._position is None:
            if not self._topics.describe([self._place[0]]):
                if settled:  # it was made before; without it all would be sent again
                    raise RetryableError(f"the broker does not know {self._place[0]} yet")
                return  # nothing was ever redriven
            self._position = self._topics.starts([self._place])[self._place]
        end = self._topics.ends([self._place], committed=not settled)[self._place]
        start = self._position
        for entry in self._logs.read_range(*self._place, start, end, timeout_s=ATTEMPT_S):
            record = codec.decode(entry.value)
            if isinstance(record, Redriven):
                self.take(record)
        self._position = max(start, end)

    def take(self, record: Redriven) -> None:
        if record.topic_id == self._topic_id:
            self.found.update({(one.partition, one.offset): one for one in record.letters})


def forget(job: str, topics: Topics, logs: LogReader) -> int:
    """Trims the trail up to the first letter that still exists; returns its new start.

    Letters that retention or a new dead-letter topic has removed cannot be sent a second time. A
    redrive that was suspended meanwhile and had not read so far is refused (ReplayDataLost), and
    does nothing.
    """
    place = names.redriven(job), 0
    low, end = topics.starts([place])[place], topics.ends([place])[place]
    cut = low
    for start in range(low, end, TRAIL_READ):
        until = min(end, start + TRAIL_READ)
        for entry in logs.read_range(*place, start, until, timeout_s=ATTEMPT_S):
            record = codec.decode(entry.value)
            if isinstance(record, Redriven) and _is_needed(record, topics, place[0]):
                topics.delete_records({place: cut} if cut > low else {})
                return cut
            cut = entry.offset + 1
    topics.delete_records({place: cut} if cut > low else {})
    return cut


def _is_needed(record: Redriven, topics: TopicReader, trail: str) -> bool:
    """Whether the dead-letter topic still has one of the letters.

    A starting broker does not know all topics yet: its answer counts only if it knows the trail,
    the younger of the two topics.
    """
    there = topics.describe([record.topic, trail])
    info = there.get(record.topic)
    if info is None or info.topic_id != record.topic_id:
        return trail not in there
    starts = topics.starts({(record.topic, one.partition) for one in record.letters})
    return any(one.offset >= starts[record.topic, one.partition] for one in record.letters)


@dataclass(slots=True)
class Outcome:
    """What happened to the letters: `already` in the trail; `skipped` by the transform."""

    redriven: list[RedrivenLetter] = field(default_factory=list)
    skipped: list[Place] = field(default_factory=list)
    already: int = 0


class Redrive:
    """One run of the command over one dead-letter topic."""

    def __init__(
        self, job: str, source: TopicInfo, trail: Trail, transactions: Transactions, clock: Clock,
        *, transform: str = "", batch_bytes: int,
    ) -> None:  # fmt: skip
        """`source`: the dead-letter topic. No batch is larger than `batch_bytes`, see `acquire`."""
        self._job, self._source, self._trail = job, source, trail
        self._transactions, self._clock = transactions, clock
        self._transform, self._batch_bytes = transform, batch_bytes

    def run(
        self, found: Iterable[Letter], made: Callable[[Letter], Target | None], *, dry_run: bool
    ) -> Outcome:
        """Redrives all of `found` that the trail does not have.

        `made` turns a letter into a target, None to leave it out; when it raises, nothing of its
        batch is sent. A dry run makes all targets and sends none.
        """
        outcome = Outcome()
        for batch in batches(found):
            left = [letter for letter in batch if letter.place not in self._trail.found]
            outcome.already += len(batch) - len(left)
            try:
                targets = [(letter, made(letter)) for letter in left]
            except PermanentError as error:
                count = len(outcome.redriven)
                raise PermanentError(
                    f"{error}. Nothing of its batch was sent; {count} letters before it "
                    f"{'would be' if dry_run else 'were'} redriven, and `perseid dlq redrive "
                    f"{self._job}` continues after them"
                ) from error
            outcome.skipped += [letter.place for letter, target in targets if target is None]
            wanted = [target for _, target in targets if target is not None]
            outcome.redriven += _planned(wanted) if dry_run else self._commit(wanted)
        return outcome

    def _commit(self, targets: Sequence[Target]) -> list[RedrivenLetter]:
        """Sends the targets exactly once; RetryableError: run the command again."""
        for tries_left in range(ATTEMPTS_MAX - 1, -1, -1):
            if not targets:
                break
            try:
                self._attempt(targets)
                break
            except RetryableError as error:
                if not tries_left:
                    raise RetryableError(
                        f"{error}; aborted after {ATTEMPTS_MAX} attempts. What was redriven is in "
                        f"{names.redriven(self._job)}: run the command again, it continues after it"
                    ) from error
            self._clock.sleep(_BACKOFF_S)
        return [self._trail.found[target.letter.place] for target in targets]

    def _attempt(self, targets: Sequence[Target]) -> None:
        """Steps 1 to 3."""
        with closing(
            self._transactions.acquire(names.redrive_id(self._job), self._batch_bytes, ATTEMPT_S)
        ) as transaction:
            self._trail.read(settled=True)
            left = [t for t in targets if t.letter.place not in self._trail.found]
            if left:
                self._trail.take(self._write(transaction, left))

    def _write(self, transaction: Transaction, targets: Sequence[Target]) -> Redriven:
        batches = _by_partition(targets)
        transaction.begin()
        for place, rows in batches.items():
            transaction.send(
                PartitionBatch(
                    *place, [t.key for t in rows], [t.value for t in rows],
                    [t.headers for t in rows],
                )
            )  # fmt: skip
        written = transaction.flush(ATTEMPT_S)
        sent = [one for place, rows in batches.items() for one in _sent(rows, written[place])]
        record = Redriven(
            self._source.name, self._source.topic_id, self._clock.wall_ms(), self._transform,
            tuple(sent),
        )  # fmt: skip
        entry = PartitionBatch(names.redriven(self._job), 0, [None], [codec.encode(record)])
        transaction.send(entry)
        transaction.flush(ATTEMPT_S)
        transaction.commit(ATTEMPT_S)
        return record


def _by_partition(targets: Iterable[Target]) -> dict[Partition, list[Target]]:
    """The targets of each topic partition, in order."""
    found: dict[Partition, list[Target]] = {}
    for target in targets:
        found.setdefault((target.topic, target.partition), []).append(target)
    return found


def _sent(rows: Sequence[Target], written: Written) -> Iterator[RedrivenLetter]:
    """The offset of each: exact, unless another producer wrote between the first and the last."""
    alone = written.last - written.first + 1 == len(rows)
    for index, target in enumerate(rows):
        first, last = written.first, written.last
        if alone:
            first = last = written.first + index
        yield _redriven(target, first, last)


def _planned(targets: Iterable[Target]) -> list[RedrivenLetter]:
    return [_redriven(target, -1, -1) for target in targets]


def _redriven(target: Target, first: int, last: int) -> RedrivenLetter:
    return RedrivenLetter(*target.letter.place, target.topic, target.partition, first, last)
