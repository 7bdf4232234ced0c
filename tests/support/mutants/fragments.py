"""Defects of jobs of several fragments: their restores, logs, sends and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.coordinator import buffer_bound, checkpoints, issue
from perseid.coordinator.actions import WriteManifest
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.engine import checkpoints as engine_checkpoints
from perseid.engine import reports, resume
from perseid.engine.order import EpochOrder
from perseid.errors import RetryableError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import MAIN, Plan
from perseid.testing.simulation import tasks
from perseid.topics import buffer_limits, sets
from perseid.topics.buffers import SetWriter
from perseid.topics.records import BufferRecord, Token
from perseid.topics.sets import Attempt, Sets
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.edges import Row
from perseid.worker.epoch.inbox import BufferInbox
from perseid.worker.epoch.outbox import BufferOutbox


def last_epochs_are_not_sent_again() -> AbstractContextManager[Any]:
    """A fragment resumes after the last epoch that it has committed, which it may not have sent."""
    decide = resume.decide

    def mutant(*given: Any, resends: bool = False) -> Any:
        return decide(*given)

    return patch.object(resume, "decide", mutant)


@contextmanager
def retained_outputs_are_not_sent() -> Iterator[None]:
    """A partition that has the epoch already sends nothing, as if it had been sent."""
    run = tasks.WatchedState.run

    def mutant(self: Any, *given: Any) -> Any:
        found = run(self, *given)
        if found.retained:
            raise_on_send.append(self)
        return found

    raise_on_send: list[Any] = []
    send = BufferOutbox.deliver

    def sent(self: Any, order: EpochOrder, rows: Sequence[Row]) -> Any:
        kept = list(rows) if not raise_on_send else []
        raise_on_send.clear()
        return send(self, order, kept)

    with (
        patch.object(tasks.WatchedState, "run", mutant),
        patch.object(BufferOutbox, "deliver", sent),
    ):
        yield


def fragments_share_their_logs() -> AbstractContextManager[Any]:
    """All fragments of a job on a host have one directory of logs, which each takes over."""
    return patch.object(tasks, "replica_of", lambda *_: MAIN)


def sends_are_not_awaited() -> AbstractContextManager[Any]:
    """An epoch is done although what it sends may not be durable."""
    flush = SetWriter.flush

    def mutant(self: SetWriter, timeout_s: float) -> None:
        with suppress(RetryableError):
            flush(self, timeout_s)

    return patch.object(SetWriter, "flush", mutant)


def fragments_trim_after_the_newest() -> AbstractContextManager[Any]:
    """A fragment trims up to the newest checkpoint, which may be damaged."""

    def mutant(checkpoints: Iterable[int], readers: Iterable[int]) -> int | None:
        newest = max(checkpoints, default=None)
        return None if newest is None else min([newest, *readers])

    return patch.object(buffer_limits, "floor", mutant)


def sent_bytes_are_not_reported() -> AbstractContextManager[Any]:
    """The end of an epoch does not report what went to buffers."""
    return patch.object(reports, "_buffered", lambda sent: {})


def buffers_are_counted_from_the_newest() -> AbstractContextManager[Any]:
    """What is kept for older checkpoints than the newest counts for no bound."""

    def mutant(job: JobState) -> int:
        return job.kept[0].epoch if job.kept else 0

    return patch.object(buffer_bound, "_oldest", mutant)


def full_buffers_wait_for_no_checkpoint() -> AbstractContextManager[Any]:
    """While a checkpoint that frees buffers is under way, tokens with input are issued."""
    freeing = issue._freeing_token

    def mutant(job: JobState, coordinator_epoch: int, now: Now) -> Token | None:
        token = freeing(job, coordinator_epoch, now)
        if token is not None:
            return token
        ranges = issue.cut_input(job, full=True)
        return issue.make_token(job, coordinator_epoch, ranges, now, checkpoint=False)

    return patch.object(issue, "_freeing_token", mutant)


def freeing_parts_build_on_older_ones() -> AbstractContextManager[Any]:
    """The checkpoint that frees buffers needs the files of those that are to be dropped."""
    base_of = engine_checkpoints.base_of

    def mutant(*given: Any, whole: bool) -> tuple[str, int] | None:
        return base_of(*given, whole=False)

    return patch.object(engine_checkpoints, "base_of", mutant)


def chunks_of_two_attempts_make_a_set() -> AbstractContextManager[Any]:
    """Chunks of several attempts of a fragment's task make up one set."""

    def mutant(record: BufferRecord) -> Attempt:
        return Attempt(0, 0, record.epoch, record.revision, record.chunks, record.rows_crc)

    return patch.object(sets, "_attempt", mutant)


def barriers_expect_one_origin_less() -> AbstractContextManager[Any]:
    """A partition runs without the set of the last task of each sender that has several."""
    found_tasks = graph._tasks

    def mutant(*given: Any) -> Any:
        gids, framed, splits = found_tasks(*given)
        return _less(gids), framed, _less(splits)

    return patch.object(graph, "_tasks", mutant)


def _less(found: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return found[:-1] if found is not None and len(found) > 1 else found


def sets_belong_to_epochs() -> AbstractContextManager[Any]:
    """A set counts for every token of its epoch, also for one that was issued after a rewind."""
    add, rows = Sets.add, BufferInbox.rows

    def noted(self: Any, order: EpochOrder, gids: Sequence[int]) -> Any:
        for reader in self._readers.values():
            vars(reader.sets).setdefault("tokens", {})[order.token.epoch] = order.token_offset
        return rows(self, order, gids)

    def mutant(self: Sets, offset: int, record: BufferRecord) -> None:
        tokens = vars(self).get("tokens", {})
        add(self, offset, replace(
            record, token_offset=tokens.get(record.epoch, record.token_offset)
        ))  # fmt: skip

    stack = ExitStack()
    stack.enter_context(patch.object(BufferInbox, "rows", noted))
    stack.enter_context(patch.object(Sets, "add", mutant))
    return stack


def checkpoints_lack_a_fragment() -> AbstractContextManager[Any]:
    """A checkpoint is complete once the fragments that have delivered parts are whole."""
    complete = checkpoints.complete

    def mutant(job: JobState) -> WriteManifest | None:
        found = complete(job)
        if found is not None or job.plan is None or job.checkpointing.collecting is None:
            return found
        whole = tuple(p for p in job.plan.primaries if checkpoints._parts(job, p) is not None)
        gids = {gid for primary in whole for gid in primary.gids or ()}

        def there(layout: Layout) -> tuple[Task, ...]:
            return tuple(t for t in layout.tasks if t.stateful and t.gid in gids)

        with (
            patch.object(Layout, "stateful_tasks", property(there)),
            patch.object(Plan, "primaries", property(lambda _: whole)),
        ):
            return complete(job) if gids else None

    return patch.object(checkpoints, "complete", mutant)
