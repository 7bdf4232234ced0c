"""Planted defects: each is found by the simulation, with the seed that is written beside it.

When the engine or the code changes so that histories are others, a seed may find its defect no
longer: `python tests/simulation/test_mutants.py` looks for the first ones that do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from perseid.coordinator import checkpoints, watermark
from perseid.coordinator.model import JobState
from perseid.errors import DamagedFile, RetryableError
from perseid.registry import ConflictError, Registry
from perseid.state import blob, checkpoint
from perseid.state.log import StateLog
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation.network import SimulatedCoordination
from perseid.testing.simulation.planted import Mutant, expect_found, search
from perseid.testing.simulation.ports import SimulatedLogWriter, SimulatedTransaction
from perseid.testing.simulation.scenario import run
from perseid.topics.chain import Accepted, Chain, Void
from perseid.topics.records import Claim, LedgerRecord, Token
from perseid.worker import feedback, parts, resume, sink
from perseid.worker.context import EpochOrder
from perseid.worker.feed import EpochFeed
from perseid.worker.partition_state import PartitionState
from perseid.worker.restore import PartitionRestore
from perseid.worker.sink import SinkSession
from perseid.worker.sink_ports import PartitionBatch


def no_read_back() -> AbstractContextManager[Any]:
    """The sink writes without looking whether the ledger has the epoch."""
    return patch.object(sink, "judge", lambda *_, **__: "write")


def ledger_outside_the_transaction() -> AbstractContextManager[Any]:
    """Outputs and ledger record are committed one after the other."""
    write = SinkSession._write

    def mutant(self: SinkSession, transaction: Any, *rest: Any) -> tuple[LedgerRecord, bool]:
        class Two:
            """Commits before the ledger record, and then begins again."""

            begin, flush, close = transaction.begin, transaction.flush, transaction.close
            commit = transaction.commit

            def send(self, batch: PartitionBatch) -> None:
                if batch.topic.endswith(".ledger"):
                    transaction.commit(1.0)
                    transaction.begin()
                transaction.send(batch)

        return write(self, Two(), *rest)

    return patch.object(SinkSession, "_write", mutant)


def no_generation_check() -> AbstractContextManager[Any]:
    """A sink of an older generation goes on where a newer one has written."""
    judge = sink.judge

    def mutant(last: LedgerRecord | None, *rest: Any, generation: int, **more: Any) -> Any:
        low = None if last is None else replace(last, generation=0)
        return judge(low, *rest, generation=generation, **more)

    return patch.object(sink, "judge", mutant)


def one_producer_for_all_attempts() -> AbstractContextManager[Any]:
    """After an unknown outcome the sink goes on with the same producer."""
    acquire = SinkSession._acquire

    def mutant(self: SinkSession) -> Any:
        held: Any = self.__dict__.get("_mine")
        if held is None or _is_fenced(held):
            held = acquire(self)[0]
            self.__dict__["_mine"] = held
        held._inner._begun = False  # for the client the transaction before has ended somehow
        return held, _last(self)

    return patch.object(SinkSession, "_acquire", mutant)


def _last(session: SinkSession) -> LedgerRecord | None:
    place = session._ledger_topic, session.who.ledger
    return session._ledger.last_and_end(*place, timeout_s=1.0)[0]


def _is_fenced(held: Any) -> bool:
    try:
        held._broker.kafka._producer(held._id, held._epoch)
    except RetryableError:
        return True
    return False


def dirty_copy_is_kept() -> AbstractContextManager[Any]:
    """An epoch that failed in the middle leaves its changes in the resident state."""
    bring_to = PartitionState.bring_to

    def mutant(self: PartitionState, epoch: int) -> None:
        if self.epoch is None and self.__dict__.get("_last") == epoch:
            self.epoch = epoch
        bring_to(self, epoch)
        self.__dict__["_last"] = epoch

    return patch.object(PartitionState, "bring_to", mutant)


def resume_behind_the_highest() -> AbstractContextManager[Any]:
    """The fragment goes on behind the highest epoch instead of the lowest."""

    def mutant(restored: Any, ledgers: Any, base_epoch: int) -> resume.GoOn:
        reached = [r.epoch for r in restored.values()] + list(ledgers.values())
        return resume.GoOn(max(reached, default=base_epoch))

    return patch.object(resume, "decide", mutant)


def outputs_are_not_retained() -> AbstractContextManager[Any]:
    """A log that lacks the outputs which are needed again is kept all the same."""

    def mutant(self: PartitionRestore, last: int) -> int:
        return 0

    return patch.object(PartitionRestore, "_held_from", mutant)


def damaged_part_means_empty() -> AbstractContextManager[Any]:
    """A checkpoint part that cannot be read is taken as an empty state."""
    part = PartitionRestore._part

    def mutant(self: PartitionRestore, *rest: Any) -> Any:
        try:
            return part(self, *rest)
        except DamagedFile:
            return {}

    return patch.object(PartitionRestore, "_part", mutant)


def old_log_is_trusted() -> AbstractContextManager[Any]:
    """A log is not repaired before it is used."""
    return patch.object(StateLog, "repair", lambda self: [])


def claims_do_not_count() -> AbstractContextManager[Any]:
    """What a leader of before appends counts as long as it extends the chain."""
    feed = Chain.feed

    def mutant(self: Chain, offset: int, record: Any) -> Accepted | Void:
        if isinstance(record, Claim):
            return Accepted("claim", offset)
        self.coordinator_epoch = 0
        return feed(self, offset, record)

    return patch.object(Chain, "feed", mutant)


def void_tokens_run() -> AbstractContextManager[Any]:
    """A worker runs every token that it reads."""
    feed = EpochFeed.feed

    def mutant(self: EpochFeed, offset: int, record: Any, collect_epoch: int | None) -> Any:
        order = feed(self, offset, record, collect_epoch)
        if order is None and isinstance(record, Token) and record.epoch == self.done_epoch + 1:
            return EpochOrder(record, offset, collect_epoch)
        return order

    return patch.object(EpochFeed, "feed", mutant)


def checkpoint_before_all_parts() -> AbstractContextManager[Any]:
    """A checkpoint counts with the parts that have come so far."""
    complete = checkpoints.complete

    def mutant(job: Any) -> Any:
        layout = job.layout
        if job.collecting is None or layout is None or not job.collecting.parts:
            return complete(job)
        (generation, *_), *_ = sorted(job.collecting.parts)
        there = {key[1:] for key in job.collecting.parts if key[0] == generation}
        kept = tuple(t for t in layout.tasks if (t.operator, t.partition) in there)
        return complete(replace(job, layout=replace(layout, tasks=kept)))

    return patch.object(checkpoints, "complete", mutant)


def collecting_takes_the_base() -> AbstractContextManager[Any]:
    """Collecting a log removes the snapshot that the rest stands on."""

    def mutant(self: StateLog, checkpoint_epoch: int) -> None:
        for epoch in self.snapshots():
            if epoch <= checkpoint_epoch:
                self._files.delete(self._path("snapshot", epoch))

    return patch.object(StateLog, "collect", mutant)


def conflicts_are_swallowed() -> AbstractContextManager[Any]:
    """A write that ZooKeeper refused counts as done, as kazoo's transactions look at first."""
    write = SimulatedCoordination.write

    def mutant(self: SimulatedCoordination, *writes: Any) -> None:
        with suppress(ConflictError):
            write(self, *writes)

    return patch.object(SimulatedCoordination, "write", mutant)


def checksums_are_not_checked() -> AbstractContextManager[Any]:
    """A file with a flipped byte counts as sound."""

    def mutant(view: memoryview, where: str) -> int:
        if len(view) < blob._PREFIX.size:
            raise DamagedFile(where)
        return int(blob._PREFIX.unpack_from(view)[3])

    return patch.object(blob, "_check", mutant)


def generations_start_again() -> AbstractContextManager[Any]:
    """A new leader does not know the generations that plans have had."""
    return patch.object(Registry, "generation", lambda self, job: 0)


def logs_are_collected_too_early() -> AbstractContextManager[Any]:
    """What the newest token makes needless is removed, not what a checkpoint does."""
    feed = EpochFeed.feed

    def mutant(self: EpochFeed, offset: int, record: Any, collect_epoch: int | None) -> Any:
        order = feed(self, offset, record, collect_epoch)
        return order and replace(order, collect_epoch=order.token.epoch)

    return patch.object(EpochFeed, "feed", mutant)


def ledger_is_read_before_the_fence() -> AbstractContextManager[Any]:
    """The sink looks into the ledger first, and fences other writers afterwards."""

    def mutant(self: SinkSession) -> Any:
        last = _last(self)
        return self._transactions.acquire(self.who.transactional_id, 1 << 20, 1.0), last

    return patch.object(SinkSession, "_acquire", mutant)


def unknown_commit_counts_as_done() -> AbstractContextManager[Any]:
    """A commit without an answer is taken for one that happened."""
    commit = SimulatedTransaction.commit

    def mutant(self: SimulatedTransaction, timeout_s: float) -> bool:
        with suppress(RetryableError):
            return commit(self, timeout_s)
        return False

    return patch.object(SimulatedTransaction, "commit", mutant)


def ledgers_do_not_count_in_a_restore() -> AbstractContextManager[Any]:
    """The fragment goes on where its states are, whatever the sinks have committed."""
    decide = resume.decide

    def mutant(restored: Any, ledgers: Any, base_epoch: int, complete_epoch: int) -> Any:
        return decide(restored, {}, base_epoch, complete_epoch)

    return patch.object(resume, "decide", mutant)


def net_deltas_lack_an_epoch() -> AbstractContextManager[Any]:
    """A checkpoint's changes begin one epoch behind the checkpoint that they are of."""
    net = parts._net

    def mutant(log: StateLog, order: Any, after: int) -> Any:
        return net(log, order, min(after + 1, order.epoch - 1))

    return patch.object(parts, "_net", mutant)


def links_are_collected() -> AbstractContextManager[Any]:
    """Of a complete checkpoint the store keeps its own files, and not those that it changes."""

    def mutant(live: Any) -> frozenset[str]:
        return frozenset(part.path for manifest in live for part in manifest.parts)

    return patch.object(checkpoint, "needed", mutant)


def open_transactions_are_read() -> AbstractContextManager[Any]:
    """Readers do not wait for transactions that are undecided, and see aborted records."""

    def mutant(self: ModelKafka, topic: str, partition: int, start: int, end: int) -> Any:
        log = self.log(topic, partition)
        return [r for r in log.between(start, end) if not r.marker]

    return patch.object(ModelKafka, "readable", mutant)


def append_of_unknown_outcome_is_repeated() -> AbstractContextManager[Any]:
    """A leader appends a token again until it gets an answer."""
    append = SimulatedLogWriter.append

    def mutant(self: SimulatedLogWriter, topic: str, partition: int, value: bytes) -> int:
        for _ in range(5):
            with suppress(RetryableError):
                return append(self, topic, partition, value)
        return append(self, topic, partition, value)

    return patch.object(SimulatedLogWriter, "append", mutant)


def watermark_falls() -> AbstractContextManager[Any]:
    """It is the lowest of the partitions, and not the last token's if that is higher."""
    def mutant(job: JobState, time_ms: int) -> int | None:
        return watermark._lowest(job, watermark._timed(job), time_ms)

    return patch.object(watermark, "next_ms", mutant)


def checkpoints_without_output() -> AbstractContextManager[Any]:
    """A checkpoint has the state of its epoch, and not what the next one hears of it."""
    part_order = PartitionState.part_order

    def mutant(self: PartitionState, *rest: Any) -> Any:
        return replace(part_order(self, *rest), emitted=())

    return patch.object(PartitionState, "part_order", mutant)


def the_main_output_is_fed_back() -> AbstractContextManager[Any]:
    """The next epoch hears the main output, whichever its edge names."""
    last_output = feedback.last_output

    def mutant(log: StateLog, token: Token, _output: str) -> pa.Table:
        return last_output(log, token)

    return patch.object(feedback, "last_output", mutant)


def tokens_of_other_layouts_run() -> AbstractContextManager[Any]:
    """A fragment of the old layout takes a token of the next one for its own."""
    feed = EpochFeed.feed

    def mutant(self: EpochFeed, offset: int, record: Any, collect: int | None) -> Any:
        self._layout = record.layout if isinstance(record, Token) else self._layout
        return feed(self, offset, record, collect)

    return patch.object(EpochFeed, "feed", mutant)


def kinds_of_parts_share_a_name() -> AbstractContextManager[Any]:
    """A late attempt whose base is gone puts the whole state where the changes were."""

    def mutant(folder: str, operator: str, partition: int, _kind: str) -> str:
        return checkpoint.part_path(folder, operator, partition, checkpoint.PART)

    return patch.object(parts, "part_path", mutant)


FOUND_BY: list[tuple[Mutant, int]] = [
    (no_read_back, 0),
    (ledger_outside_the_transaction, 0),
    (no_generation_check, 312),
    (one_producer_for_all_attempts, 0),
    (dirty_copy_is_kept, 1),
    (resume_behind_the_highest, 0),
    (outputs_are_not_retained, 100),
    (damaged_part_means_empty, 149),
    (old_log_is_trusted, 4),
    (claims_do_not_count, 354),
    (void_tokens_run, 290),
    (checkpoint_before_all_parts, 7),
    (collecting_takes_the_base, 2),
    (conflicts_are_swallowed, 11),
    (checksums_are_not_checked, 4),
    (generations_start_again, 30),
    (logs_are_collected_too_early, 447),
    (ledger_is_read_before_the_fence, 15),
    (unknown_commit_counts_as_done, 26),
    (ledgers_do_not_count_in_a_restore, 0),
    (net_deltas_lack_an_epoch, 139),
    (links_are_collected, 217),
    (open_transactions_are_read, 0),
    (append_of_unknown_outcome_is_repeated, 6),
    (watermark_falls, 43),
    (checkpoints_without_output, 202),
    (the_main_output_is_fed_back, 15),
    (tokens_of_other_layouts_run, 7),
    (kinds_of_parts_share_a_name, 8419),
]


@pytest.mark.parametrize(("mutant", "seed"), FOUND_BY, ids=lambda v: getattr(v, "__name__", ""))
def test_a_planted_defect_is_found(mutant: Mutant, seed: int) -> None:
    expect_found(run, mutant, seed)


if __name__ == "__main__":
    search(run, [mutant for mutant, _ in FOUND_BY])
