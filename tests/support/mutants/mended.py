"""Defects that the simulation found once: each patch removes the fix. Numbers are seeds."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.coordinator import checkpoints, corrections, failing, ledger_claims
from perseid.coordinator.model import JobState
from perseid.engine.agreement import RestoreOrder
from perseid.state.durability import checkpoint
from perseid.testing.simulation.fragment import Fragment
from perseid.worker.checkpoint import part_orders, parts
from perseid.worker.dataflow import source
from perseid.worker.sink import sink_time
from perseid.worker.sink.transaction import SinkSession


def kinds_of_parts_share_a_name() -> AbstractContextManager[Any]:
    """8419: a late attempt whose base is gone overwrites the changes with the whole state."""

    def mutant(folder: str, operator: str, partition: int, _kind: str) -> str:
        return checkpoint.part_path(folder, operator, partition, checkpoint.PART)

    return patch.object(parts, "part_path", mutant)


def tokens_are_read_before_the_fence() -> AbstractContextManager[Any]:
    """15254: a new owner reads tokens and ledgers before it fences the state logs."""
    fence, restore_one = Fragment.fence, Fragment._restore_one

    def mutant(self: Fragment, *rest: Any) -> Any:
        fence(self)
        return restore_one(self, *rest)

    stack = ExitStack()
    stack.enter_context(patch.object(Fragment, "fence", lambda _: None))
    stack.enter_context(patch.object(Fragment, "_restore_one", mutant))
    return stack


def complete_checkpoints_prove_nothing() -> AbstractContextManager[Any]:
    """30769: a ledger that ends before a complete checkpoint is accepted."""
    return patch.object(RestoreOrder, "complete_epoch", property(lambda self: 0))


def markers_are_forgotten() -> AbstractContextManager[Any]:
    """58753: a sink remembers where its records are, but not that a marker follows them."""
    write = SinkSession._write

    def mutant(self: SinkSession, *rest: Any) -> Any:
        before = dict(self._ends)
        written = write(self, *rest)
        self._ends.update((p, end - 1) for p, end in self._ends.items() if before.get(p) != end)
        return written

    return patch.object(SinkSession, "_write", mutant)


def what_others_wrote_is_forgotten() -> AbstractContextManager[Any]:
    """21609: a sink remembers what it has written, but not what it has read in the ledger."""
    acquire = SinkSession._acquire

    def mutant(self: SinkSession) -> Any:
        before = dict(self._ends)
        acquired = acquire(self)
        self._ends = before
        return acquired

    return patch.object(SinkSession, "_acquire", mutant)


def checkpoints_of_a_restore_are_deleted() -> AbstractContextManager[Any]:
    """16107: the checkpoints that a restoring owner's plan names are deleted."""
    return patch.object(checkpoints, "_read_by_somebody", lambda _job, kept: kept)


def expired_bases_are_waited_for() -> AbstractContextManager[Any]:
    """1779: a checkpoint whose base is no longer kept is never aborted."""
    return patch.object(checkpoints, "_base_expired", lambda job, _parts: job)


def superseded_checkpoints_are_waited_for() -> AbstractContextManager[Any]:
    """1899: a checkpoint is never aborted though a new owner has resumed after its epoch."""
    return patch.object(checkpoints, "superseded", lambda job, _done: job)


def topics_are_not_identified() -> AbstractContextManager[Any]:
    """1165: records of a source topic that was created again are read as the old topic's."""
    return patch.object(source, "_check_identity", lambda *_: None)


def orders_die_with_their_process() -> AbstractContextManager[Any]:
    """A dead process's orders for a checkpoint get no new owner."""
    return patch.object(part_orders, "take_over", lambda *_: [])


def ledgers_are_not_claimed() -> AbstractContextManager[Any]:
    """Found by reading: tokens are rolled back that a failed owner's task may still commit."""
    return patch.object(ledger_claims, "claim", lambda *_: None)


def the_old_revision_ends_the_job() -> AbstractContextManager[Any]:
    """Observed: a revision that fails while its correction is pending ends the job.

    The correction never ran: a job that had stopped at its limit was stopped by the old limit
    again, after the final epoch that was to keep its state for the larger one.
    """
    return patch.object(corrections, "fail", failing.permanent)


def half_committed_epochs_are_taken_back() -> AbstractContextManager[Any]:
    """Whatever the ledgers hold, the changed revision recomputes the failed epoch."""
    correct = corrections.correct

    def mutant(job: JobState, *rest: Any) -> Any:
        nothing = replace(job.ownership, ledger_highest=0)
        return correct(replace(job, ownership=nothing), *rest)

    return patch.object(corrections, "correct", mutant)


def slowness_is_waited_out() -> AbstractContextManager[Any]:
    """A broker that takes records too slowly is retried without limit, as if unreachable."""
    return patch.object(sink_time, "too_slow", lambda *_: False)
