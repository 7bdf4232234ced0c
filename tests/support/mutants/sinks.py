"""Defects of sinks and of their use of transactions."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.errors import RetryableError
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation.ports import SimulatedTransaction
from perseid.topics.records import LedgerRecord
from perseid.topics.transactions import PartitionBatch
from perseid.worker.sink import transaction
from perseid.worker.sink.transaction import SinkSession


def no_read_back() -> AbstractContextManager[Any]:
    """The sink writes without reading whether the ledger has the epoch."""
    return patch.object(transaction, "judge", lambda *_, **__: "write")


def ledger_outside_the_transaction() -> AbstractContextManager[Any]:
    """Outputs and ledger record are committed one after the other."""
    write = SinkSession._write

    def mutant(self: SinkSession, transaction: Any, *rest: Any) -> tuple[LedgerRecord, bool]:
        class Two:
            """Commits before the ledger record, and then begins again."""

            begin, flush, close = transaction.begin, transaction.flush, transaction.close
            commit, idle_s = transaction.commit, transaction.idle_s

            def send(self, batch: PartitionBatch) -> None:
                if batch.topic.endswith(".ledger"):
                    transaction.commit(1.0)
                    transaction.begin()
                transaction.send(batch)

        return write(self, Two(), *rest)

    return patch.object(SinkSession, "_write", mutant)


def new_owners_name_no_environment() -> AbstractContextManager[Any]:
    """A new writer names its environment only where the ledger has no record yet."""
    acquire = SinkSession._acquire

    def mutant(self: SinkSession) -> Any:
        is_new = not self._looked_back
        found = acquire(self)
        if is_new:
            self._names_it = found[1] is None
        return found

    return patch.object(SinkSession, "_acquire", mutant)


def environments_are_trimmed() -> AbstractContextManager[Any]:
    """A writer does not name its environment again after a checkpoint."""
    commit = SinkSession.commit

    def mutant(self: SinkSession, *of: Any, checkpoint: bool, **more: Any) -> Any:
        return commit(self, *of, **more)

    return patch.object(SinkSession, "commit", mutant)


def no_generation_check() -> AbstractContextManager[Any]:
    """A sink of an older generation writes after a newer one has written."""
    judge = transaction.judge

    def mutant(last: LedgerRecord | None, *rest: Any, generation: int, **more: Any) -> Any:
        low = None if last is None else replace(last, generation=0)
        return judge(low, *rest, generation=generation, **more)

    return patch.object(transaction, "judge", mutant)


def one_producer_for_all_attempts() -> AbstractContextManager[Any]:
    """After an unknown outcome the sink keeps the same producer."""
    acquire = SinkSession._acquire

    def mutant(self: SinkSession) -> Any:
        held: Any = self.__dict__.get("_mine")
        if held is None or _is_fenced(held):
            held = acquire(self)[0]
            self.__dict__["_mine"] = held
        held._inner._begun = False  # for the client the previous transaction has ended somehow
        return held, _last(self)

    return patch.object(SinkSession, "_acquire", mutant)


def _last(session: SinkSession) -> LedgerRecord | None:
    place = session._ledger_topic, session.who.ledger
    return session._ledger.last_and_written(*place, timeout_s=1.0, far=False)[0]


def _is_fenced(held: Any) -> bool:
    try:
        held._broker.kafka._producer(held._id, held._epoch)
    except RetryableError:
        return True
    return False


def ledger_is_read_before_the_fence() -> AbstractContextManager[Any]:
    """The sink reads the ledger first, and fences other writers afterwards."""

    def mutant(self: SinkSession) -> Any:
        last = _last(self)
        return self._transactions.acquire(self.who.transactional_id, 1 << 20, 1.0), last

    return patch.object(SinkSession, "_acquire", mutant)


def unknown_commit_counts_as_done() -> AbstractContextManager[Any]:
    """A commit without an answer counts as done."""
    commit = SimulatedTransaction.commit

    def mutant(self: SimulatedTransaction, timeout_s: float) -> bool:
        with suppress(RetryableError):
            return commit(self, timeout_s)
        return False

    return patch.object(SimulatedTransaction, "commit", mutant)


def open_transactions_are_read() -> AbstractContextManager[Any]:
    """Readers do not wait for undecided transactions, and see aborted records."""

    def mutant(self: ModelKafka, topic: str, partition: int, start: int, end: int) -> Any:
        log = self.log(topic, partition)
        return [r for r in log.between(start, end) if not r.marker]

    return patch.object(ModelKafka, "readable", mutant)
