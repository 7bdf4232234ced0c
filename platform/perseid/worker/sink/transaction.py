"""Exactly once into Kafka: one transaction per epoch and operator partition, with a ledger record.

    1 acquire   a new producer under the partition's transactional id: fences every other holder and
                aborts its open transaction. Then read the last ledger record up to the current high
                watermark, once all transactions below it are decided. A session that has cleanly
                committed the previous epoch still holds both: a newer holder would have fenced it
    2 judge     a higher generation has written: stop, fenced. The ledger holds the epoch: skip.
                It lacks the previous epoch: stop, LedgerGap
    3 write     begin, outputs, flush (which returns their offsets), ledger record, commit

No other writer can commit under the id without fencing this producer: this is a compare-and-append.
After any outcome but a clear success step 1 runs again: the ledger then shows what happened.

A session names its environment in its first record after step 1, and in the first one after each
checkpoint: ledgers are trimmed up to there. So of every epoch in a ledger the environment is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from perseid.clocks import Clock, SystemClock
from perseid.engine.task_report import Made
from perseid.errors import (
    FencedError,
    LedgerGap,
    PermanentError,
    RetryableError,
    TransientAnswer,
    lost_by_broker,
    settling,
)
from perseid.errors.settling import Repeated
from perseid.records import crashpoints
from perseid.topics import codec, names
from perseid.topics.admin import Partition, TopicInfo, TopicReader
from perseid.topics.clients import BATCH_BYTES_MAX
from perseid.topics.records import LedgerRecord, SinkWindow
from perseid.topics.transactions import (
    PartitionBatch,
    SinkBatch,
    Transaction,
    Transactions,
    Written,
)
from perseid.worker.sink import sink_time
from perseid.worker.sink.pointers import fitted
from perseid.worker.sink.sink_outputs import divide, made, windows

__all__ = ["CommitResult", "SinkBatch", "SinkIdentity", "SinkSession", "judge"]

LOG = logging.getLogger(__name__)

ATTEMPT_S = 30.0  # one acquire or one commit; a flush has the transaction's time (`sink_time`)
COMMIT_S = 120.0  # all attempts of one epoch; then the task fails and Spark retries it
_BACKOFF_S = 0.1

Verdict = Literal["write", "skip"]


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """The writer. `ledger` is the partition of the job's ledger.

    `after_epoch`: the last epoch before this layout, so that its first record is dense too.
    """

    job: str
    job_uuid: str
    layout: int
    operator: str
    partition: int
    ledger: int
    after_epoch: int | None = None

    @property
    def transactional_id(self) -> str:
        return names.transactional_id(self.job, self.layout, self.operator, self.partition)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`skipped`: the ledger held the epoch already. `windows`: where its outputs are, if known.

    `acquire_ms`: time spent in step 1; `write_ms`: from begin to commit.
    """

    skipped: bool
    windows: tuple[SinkWindow, ...] = ()
    acquire_ms: float = 0.0
    write_ms: float = 0.0
    attempts: int = 1


class Ledger(Protocol):
    """Reads the ledger back (perseid.topics.ledger). Must not return an undecided record."""

    def last_and_written(
        self, topic: str, partition: int, *, timeout_s: float, far: bool
    ) -> tuple[LedgerRecord | None, LedgerRecord | None, int]: ...


def judge(
    last: LedgerRecord | None,
    who: SinkIdentity,
    *,
    generation: int,
    epoch: int,
    token_offset: int,
) -> Verdict:
    """Step 2: whether to write the epoch, given the last ledger record."""
    place = f"ledger partition {who.ledger} of job {who.job}"
    if last is not None and last.generation > generation:
        raise FencedError(
            f"{place} has generation {last.generation}, this writer {generation}: a newer owner "
            "has taken over"
        )
    if last is not None and last.job_uuid != who.job_uuid:
        LOG.warning("%s ends with a record of another job %s: ignored", place, last.job_uuid)
        last = None
    if last is not None and last.epoch >= epoch:
        if last.epoch == epoch and last.token_offset != token_offset:
            raise PermanentError(
                f"{place} holds epoch {epoch} of the token at offset {last.token_offset}, not of "
                f"the one at {token_offset}: a committed epoch was issued again"
            )
        return "skip"
    _check_dense(last, who, epoch, place)
    return "write"


def _check_dense(last: LedgerRecord | None, who: SinkIdentity, epoch: int, place: str) -> None:
    """The ledger must end with the previous epoch, or with the last one before this layout."""
    before = {last.epoch} if last is not None else set()
    if (last is None or last.layout != who.layout) and who.after_epoch is not None:
        before.add(who.after_epoch)
    if before and epoch - 1 not in before:
        raise LedgerGap(
            f"{place} ends with epoch {max(before)}, and epoch {epoch} was to be committed: the "
            "epochs between them are missing; resume the job from a checkpoint at or before epoch "
            f"{max(before)}"
        )


class _SlowError(RetryableError):
    """The transaction's time was used up while the broker accepted records."""


class SinkSession:
    """The sink of one operator partition in one process. Not thread safe."""

    def __init__(
        self,
        who: SinkIdentity,
        transactions: Transactions,
        ledger: Ledger,
        topics: TopicReader,
        *,
        clock: Clock | None = None,
        environment: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`environment`: of this process, for the ledger; asked for in `prepare` first."""
        self.who = who
        self._environment, self._names_it = environment, True
        self._transactions, self._ledger, self._topics = transactions, ledger, topics
        self._clock: Clock = clock or SystemClock()
        self._infos: dict[str, TopicInfo] = {}
        self._ledger_topic = names.ledger(who.job)
        self._batch_bytes = BATCH_BYTES_MAX
        self._held: tuple[Transaction, LedgerRecord] | None = None  # after a clean commit
        self._ends: dict[Partition, int] = {}  # last offset that is known to have been there
        self._before: dict[Partition, tuple[int, int]] = {}  # unchecked: epoch, last offset
        self._looked_back = False
        self._lost: PermanentError | None = None
        self._lasting_s = sink_time.FIRST_S  # time of the next transaction
        # By epoch, token offset and generation: Spark retries a failed task, and the answer stands.
        self._refused: tuple[tuple[int, int, int], PermanentError] | None = None

    def prepare(self) -> None:
        """Connects ahead of the first commit; fences no holder and does not wait."""
        self._environment()
        self._transactions.prepare(self.who.transactional_id, self._batch_bytes)

    def commit(
        self,
        epoch: int,
        token_offset: int,
        generation: int,
        outputs: Sequence[SinkBatch],
        *,
        checkpoint: bool = False,
        timeout_s: float = COMMIT_S,
    ) -> CommitResult:
        """Writes the epoch's outputs exactly once; returns when they are committed.

        `checkpoint`: the ledger may later begin after this epoch.

        Raises FencedError, LedgerGap and other permanent errors. RetryableError when `timeout_s` is
        over: then the epoch may be committed or not, and the next call finds out.
        """
        if self._lost is not None:
            raise self._lost
        call = epoch, token_offset, generation
        if self._refused is not None and self._refused[0] == call:
            raise self._refused[1]
        deadline_s = self._clock.monotonic_s() + timeout_s
        attempts = 0
        answer: Repeated | None = None
        while True:
            attempts += 1
            try:
                batches = self.divided(epoch, outputs)
                found = self._attempt(epoch, token_offset, generation, batches, attempts)
                self._names_it = self._names_it or checkpoint
                return found
            except _SlowError as error:
                self._give_longer(call, batches, error)
                deadline_s = max(deadline_s, self._clock.monotonic_s() + timeout_s)
            except RetryableError as error:
                LOG.warning("sink of %s epoch %d: %s", self.who.transactional_id, epoch, error)
                now_s = self._clock.monotonic_s()
                answer = settling.heard(answer, "sink", type(error).__name__, now_s)
                if isinstance(error, TransientAnswer) and answer and answer.is_final:
                    self._refused = call, settling.final(error, answer)
                    raise self._refused[1] from error
                if self._clock.monotonic_s() > deadline_s:
                    raise RetryableError(
                        f"epoch {epoch} of {self.who.transactional_id} could not be committed in "
                        f"{timeout_s} s and {attempts} attempts: {error}"
                    ) from error
            self._clock.sleep(_BACKOFF_S)

    def compare(self, epoch: int, outputs: Sequence[SinkBatch]) -> tuple[Made, ...]:
        """What `commit` would write, by topic partition; acquires and sends nothing."""
        return made(self.divided(epoch, outputs))

    def close(self) -> None:
        """Releases the producer."""
        held, self._held = self._held, None
        if held is not None:
            held[0].close()

    def _attempt(
        self,
        epoch: int,
        token_offset: int,
        generation: int,
        batches: Sequence[PartitionBatch],
        attempts: int,
    ) -> CommitResult:
        started_s = self._clock.monotonic_s()
        transaction, last = self._take(epoch)
        acquired_s = self._clock.monotonic_s()
        acquire_ms = (acquired_s - started_s) * 1000
        try:
            self._check_outputs()
            verdict = judge(
                last, self.who, generation=generation, epoch=epoch, token_offset=token_offset
            )
            if verdict == "skip":
                assert last is not None, "only what the ledger holds is skipped"
                self._held = transaction, last
                outputs = last.outputs if last.epoch == epoch else ()
                return CommitResult(True, outputs, acquire_ms, 0.0, attempts)
            record, clean = self._written(transaction, epoch, token_offset, generation, batches)
            if clean:
                self._held, self._names_it = (transaction, record), False
        finally:
            if self._held is None:
                transaction.close()
                self.prepare()
        write_ms = (self._clock.monotonic_s() - acquired_s) * 1000
        self._lasting_s = sink_time.after_s(self._lasting_s, write_ms / 1000)
        return CommitResult(False, record.outputs, acquire_ms, write_ms, attempts)

    def _take(self, epoch: int) -> tuple[Transaction, LedgerRecord | None]:
        """The held producer if it committed this epoch or the previous one, else step 1.

        After a larger gap another session has written the epochs between and fenced the held
        producer.
        """
        if self._held is not None and epoch <= self._held[1].epoch + 1:
            held, self._held = self._held, None
            return held
        self.close()
        self._names_it = True
        return self._acquire()

    def _acquire(self) -> tuple[Transaction, LedgerRecord | None]:
        """Step 1; the order of its two halves makes the ledger's answer final."""
        transaction = self._transactions.acquire(
            self.who.transactional_id, self._batch_bytes, ATTEMPT_S,
            None if self._lasting_s == sink_time.FIRST_S else self._lasting_s,
        )  # fmt: skip
        place = self._ledger_topic, self.who.ledger
        try:
            last, written, end = self._ledger.last_and_written(
                *place, timeout_s=ATTEMPT_S, far=not self._looked_back
            )
        except BaseException:
            transaction.close()
            raise
        self._looked_back = True
        if written is not None and written.job_uuid == self.who.job_uuid:
            epoch = written.epoch
            self._before |= {(w.topic, w.partition): (epoch, w.last) for w in written.outputs}
        # What another session wrote is remembered like what this one has: it may get lost, too.
        self._ends[place] = max(end - 1, self._ends.get(place, -1))
        return transaction, last

    def _check_outputs(self) -> None:
        """The outputs of others are where the ledger ends: their topic alone may have lost them.

        Not only of the last epoch, which has none where it is one of a checkpoint. Of the topics
        that this session writes: another revision may have had others.
        """
        known = {place: at for place, at in self._before.items() if place[0] in self._infos}
        ends = self._topics.ends(sorted(known), committed=False) if known else {}
        for (topic, partition), (epoch, written) in sorted(known.items()):
            end = ends[topic, partition]
            if end <= written:
                self._lost = lost_by_broker(
                    f"{topic}[{partition}] ends at {end}, and the ledger has outputs of epoch "
                    f"{epoch} up to {written}"
                )
                raise self._lost
        for place in known:
            del self._before[place]

    def _written(
        self,
        transaction: Transaction,
        epoch: int,
        token_offset: int,
        generation: int,
        batches: Sequence[PartitionBatch],
    ) -> tuple[LedgerRecord, bool]:
        """Step 3; distinguishes too little time from other failures."""
        begun_s = self._clock.monotonic_s()
        try:
            return self._write(transaction, epoch, token_offset, generation, batches)
        except RetryableError as error:
            elapsed_s = self._clock.monotonic_s() - begun_s
            if sink_time.too_slow(elapsed_s, transaction.idle_s(), self._lasting_s):
                raise _SlowError(str(error)) from error
            raise

    def _give_longer(
        self, call: tuple[int, int, int], batches: Sequence[PartitionBatch], error: RetryableError
    ) -> None:
        """Gives the next transaction more time; PermanentError when the broker allows no more."""
        lasting_s = self._lasting_s
        longer_s = sink_time.longer_s(lasting_s, self._longest_s())
        if longer_s is None:
            found = PermanentError(sink_time.message(self._place(call[0]), batches, lasting_s))
            self._refused = call, found
            raise found from error
        self._lasting_s = longer_s
        LOG.warning(
            "%s: Kafka did not take its output in %.0f s (%s); it is given %.0f s",
            self._place(call[0]), lasting_s, error, longer_s,
        )  # fmt: skip

    def _longest_s(self) -> float:
        """The broker's limit; Kafka's default if only administrators may read it."""
        try:
            return self._transactions.longest_s()
        except TransientAnswer as error:
            LOG.warning("%s; %.0f s are taken for what it allows", error, sink_time.BROKER_S)
            return sink_time.BROKER_S

    def _place(self, epoch: int) -> str:
        who = self.who
        return f"operator {who.operator}, partition {who.partition}, epoch {epoch} of {who.job}"

    def _write(
        self,
        transaction: Transaction,
        epoch: int,
        token_offset: int,
        generation: int,
        batches: Sequence[PartitionBatch],
    ) -> tuple[LedgerRecord, bool]:
        """Step 3: the ledger's new record, and whether the transaction may be used again."""
        who = self.who
        transaction.begin()
        for batch in batches:
            transaction.send(batch)
        written = transaction.flush(self._lasting_s) if batches else {}
        crashpoints.reach("sink.after-produce", who.operator)
        record = LedgerRecord(
            who.job_uuid, who.layout, who.operator, who.partition,
            generation, epoch, token_offset, windows(batches, written),
            dict(self._environment()) if self._names_it else {},
        )  # fmt: skip
        entry = PartitionBatch(self._ledger_topic, who.ledger, [None], [codec.encode(record)])
        transaction.send(entry)
        noted = transaction.flush(ATTEMPT_S)
        places = {**written, **noted}
        self._check_written(places)
        crashpoints.reach("sink.before-commit", who.operator)
        clean = transaction.commit(ATTEMPT_S)
        crashpoints.reach("sink.after-commit", who.operator)
        # The commit marker takes one offset after the records.
        self._ends.update((place, w.last + 1) for place, w in places.items())
        return record, clean

    def _check_written(self, written: Mapping[Partition, Written]) -> None:
        """Before the commit: a log that has become shorter has lost committed records.

        The error is permanent: the ledger records that this session relies on are gone.
        """
        for (topic, partition), place in sorted(written.items()):
            before = self._ends.get((topic, partition), -1)
            if place.first <= before:
                self._lost = lost_by_broker(
                    f"{topic}[{partition}] took a record at offset {place.first}, and had what "
                    f"this sink wrote up to {before} before"
                )
                raise self._lost

    def divided(self, epoch: int, outputs: Sequence[SinkBatch]) -> list[PartitionBatch]:
        """The records of each topic partition; pointers replace letters that are too large."""
        infos = self._describe(outputs)
        fitting = [
            fitted(batch, infos[batch.topic].message_bytes_max) if batch.letters else batch
            for batch in outputs
        ]
        return divide(fitting, infos, epoch + self.who.partition, self._place(epoch))

    def _describe(self, outputs: Sequence[SinkBatch]) -> dict[str, TopicInfo]:
        """The sink topics, each requested once."""
        missing = sorted({b.topic for b in outputs} - self._infos.keys())
        if missing:
            self._infos.update(self._topics.describe(missing))
        for topic in missing:
            if topic not in self._infos:
                raise TransientAnswer(
                    f"sink topic {topic} does not exist; create it with "
                    f"`perseid topics create {topic} --partitions N`"
                )
        limit = min((i.message_bytes_max for i in self._infos.values()), default=BATCH_BYTES_MAX)
        # the prepared producer would send batches that the topic rejects
        if limit < self._batch_bytes:
            self._batch_bytes = limit
            self.close()
        return self._infos
