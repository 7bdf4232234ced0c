"""Defects of leaders, of the token log, and of its readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from perseid.coordinator import core, issue, sources, token_time, watermark
from perseid.coordinator.actions import Action
from perseid.coordinator.job.chain import Issued
from perseid.coordinator.loading import Loader
from perseid.coordinator.model import JobState
from perseid.coordinator.outbox import Outbox
from perseid.coordinator.token_time import Now, Time
from perseid.coordinator.watching import ProgressWatcher
from perseid.engine.feed import EpochFeed, TokenHistory
from perseid.engine.last_word import LastWord
from perseid.engine.order import EpochOrder
from perseid.errors import LogTruncated, RetryableError
from perseid.registry import ConflictError
from perseid.state.durability.log import StateLog
from perseid.testing.simulation.network import SimulatedCoordination
from perseid.testing.simulation.ports import SimulatedLogWriter
from perseid.topics.chain import Accepted, Chain, Void
from perseid.topics.records import Claim, Token
from perseid.worker.epoch import feedback
from perseid.worker.sink.transaction import SinkSession
from support.mutants.planting import Mutant


def claims_do_not_count() -> AbstractContextManager[Any]:
    """A previous leader's record counts as long as it extends the chain."""
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
            return EpochOrder(record, offset, collect_epoch, generation=self._generation)
        return order

    return patch.object(EpochFeed, "feed", mutant)


def conflicts_are_swallowed() -> AbstractContextManager[Any]:
    """A write that ZooKeeper refused counts as done, as kazoo's transactions first appear."""
    write = SimulatedCoordination.write

    def mutant(self: SimulatedCoordination, *writes: Any) -> None:
        with suppress(ConflictError):
            write(self, *writes)

    return patch.object(SimulatedCoordination, "write", mutant)


def generations_start_again() -> AbstractContextManager[Any]:
    """A new leader does not know the generations of earlier plans."""
    return patch.object(Loader, "_generation", lambda self, job, *known: 0)


def watchers_pass_over_what_is_lost() -> AbstractContextManager[Any]:
    """A truncated progress topic is read from the old position once it has grown past it."""

    def mutant(self: ProgressWatcher) -> float:
        with suppress(LogTruncated):
            return self._read()
        return 0.0

    return patch.object(ProgressWatcher, "_look", mutant)


def sources_that_were_cut_are_read_on() -> AbstractContextManager[Any]:
    """An end below the position counts as an empty backlog."""
    return patch.object(sources, "truncated", lambda job, ends, asked_s: None)


def last_words_are_reported_once() -> AbstractContextManager[Any]:
    """A fragment reports its final state once, and does not check that the report is kept."""
    return patch.object(LastWord, "look", lambda self, again: False)


def append_of_unknown_outcome_is_repeated() -> AbstractContextManager[Any]:
    """A leader appends a token again until it gets an answer."""
    append = SimulatedLogWriter.append

    def mutant(self: SimulatedLogWriter, topic: str, partition: int, value: bytes) -> int:
        for _ in range(5):
            with suppress(RetryableError):
                return append(self, topic, partition, value)
        return append(self, topic, partition, value)

    return patch.object(SimulatedLogWriter, "append", mutant)


def actions_of_a_job_overtake_each_other() -> AbstractContextManager[Any]:
    """A leader performs each action at once, also while an append of the same job is under way."""

    def mutant(self: Outbox, actions: Iterable[Action]) -> None:
        for action in actions:
            self._spawn(partial(overtaking, self, action))

    def overtaking(box: Outbox, action: Action) -> None:
        if box._may_act() and (outcome := box._perform(action)) is not None:
            box._emit(outcome)

    return patch.object(Outbox, "put", mutant)


def what_follows_a_failed_action_is_done() -> AbstractContextManager[Any]:
    """A leader performs the actions of a job that follow one that failed."""
    return patch.object(Outbox, "_drop", lambda self, job, waiting: None)


def reports_before_the_answer_are_judged() -> AbstractContextManager[Any]:
    """A leader judges a report on a token although the token's append is not answered yet."""
    return patch.object(core, "_deferred", lambda job, event: None)


def watermark_falls() -> AbstractContextManager[Any]:
    """The watermark is the minimum of the partitions, even if the last token's is higher."""

    def mutant(job: JobState) -> int | None:
        return watermark._lowest(job, watermark._timed(job))

    return patch.object(watermark, "next_ms", mutant)


def wall_clocks_are_believed() -> AbstractContextManager[Any]:
    """A leader trusts its wall clock as long as it does not go back."""

    def mutant(time: Time, wanted_ms: float, now: Now) -> Time:
        return Time(max(wanted_ms, time.ms), now.monotonic_s)

    return patch.object(token_time, "passed", mutant)


def time_waits_for_the_clock() -> AbstractContextManager[Any]:
    """Token time stops until the clock that was set back has caught up."""
    passed = token_time.passed

    def mutant(time: Time, wanted_ms: float, now: Now) -> Time:
        return Time(max(min(passed(time, wanted_ms, now).ms, wanted_ms), time.ms), now.monotonic_s)

    return patch.object(token_time, "passed", mutant)


def new_leaders_believe_their_own_clock() -> AbstractContextManager[Any]:
    """A new leader ignores the time since the last token by the broker's clock."""

    def mutant(last: Issued | None, _log: Time, now: Now) -> Time:
        return Time(max(now.time_ms, last.token.time_ms if last else 0), now.monotonic_s)

    return patch.object(token_time, "resumed", mutant)


def new_leaders_believe_the_brokers_clock() -> AbstractContextManager[Any]:
    """A new leader ignores the time since the last token by its own clock."""
    resumed = token_time.resumed

    def mutant(last: Issued | None, log: Time, now: Now) -> Time:
        return resumed(last, log, replace(now, time_ms=float("inf")))

    return patch.object(token_time, "resumed", mutant)


def time_passes_only_under_a_leader() -> AbstractContextManager[Any]:
    """A new leader continues from the last token's time, however much time has passed since."""

    def mutant(last: Issued | None, _log: Time, now: Now) -> Time:
        return Time(last.token.time_ms if last else now.time_ms, now.monotonic_s)

    return patch.object(token_time, "resumed", mutant)


def the_main_output_is_fed_back() -> AbstractContextManager[Any]:
    """The next epoch receives the main output, whichever output the edge names."""
    last_output = feedback.last_output

    def mutant(log: StateLog, token: Token, _output: str) -> pa.Table:
        return last_output(log, token)

    return patch.object(feedback, "last_output", mutant)


def tokens_of_later_plans_run() -> AbstractContextManager[Any]:
    """The fragment of an old plan runs a token of the next plan."""
    feed = EpochFeed.feed

    def mutant(self: EpochFeed, offset: int, record: Any, collect: int | None) -> Any:
        own = self._generation
        if isinstance(record, Token):
            self._layout, self._generation = record.layout, record.generation
        order = feed(self, offset, record, collect)
        self._generation = own
        return replace(order, generation=own) if order is not None else None

    return patch.object(EpochFeed, "feed", mutant)


def of_protocol_2(mutant: Mutant) -> Mutant:
    """Returns `mutant` with tokens that carry no generation.

    With generations an old owner runs none of the next owner's tokens, which hides the other
    protections. A log with tokens of protocol 2 has only those.
    """
    make_token = issue.make_token

    def of_generation_0(*of: Any, **more: Any) -> Token:
        return replace(make_token(*of, **more), generation=0)

    @wraps(mutant)
    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(issue, "make_token", of_generation_0), mutant():
            yield

    return both


def batch_numbers_identify_epochs() -> AbstractContextManager[Any]:
    """Sinks identify an epoch by its batch, and a fragment counts its batches from 1 again."""
    feed, commit = EpochFeed.feed, SinkSession.commit
    numbers: dict[int, int] = {}  # by token offset

    def fed(self: EpochFeed, offset: int, record: Any, collect_epoch: int | None) -> Any:
        order = feed(self, offset, record, collect_epoch)
        if order is not None:
            numbers[offset] = self.__dict__["_batch"] = self.__dict__.get("_batch", 0) + 1
        return order

    def committed(self: SinkSession, _epoch: int, offset: int, *rest: Any, **more: Any) -> Any:
        return commit(self, numbers[offset], offset, *rest, **more)

    stack = ExitStack()
    stack.enter_context(patch.object(EpochFeed, "feed", fed))
    stack.enter_context(patch.object(SinkSession, "commit", committed))
    return stack


def batch_numbers_continue() -> AbstractContextManager[Any]:
    """A fragment's batch numbers continue those of its predecessor: Spark's log was kept."""
    init = EpochFeed.__init__

    def mutant(
        self: EpochFeed, past: TokenHistory, done_epoch: int, *of: Any, **role: Any
    ) -> None:
        init(self, past, done_epoch, *of, **role)
        self.start_offset = min(past.end, self.start_offset + done_epoch - past.base.epoch)

    return patch.object(EpochFeed, "__init__", mutant)
