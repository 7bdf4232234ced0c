"""What a fragment does with each record of the token log.

1. A record that was taken before is skipped; a gap ends the fragment.
2. The feed decides whether the record's epoch runs here.
3. The epoch runs: it is logged and committed when `execute` returns a report of each partition.
4. Its event times are reported, then its end. The next owner of the fragment may run it again.

Of a muted epoch, a replica's, only the end is reported, and no checkpoint is ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from perseid.engine import checkpoints, reports
from perseid.engine.epoch import complete
from perseid.engine.feed import READ_TIMEOUT_S
from perseid.engine.order import EpochOrder
from perseid.errors import RetryableError
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.spread import spread_of
from perseid.topics import names
from perseid.topics.codec import decode_token
from perseid.topics.records import Token

if TYPE_CHECKING:
    from perseid.engine.feed import EpochFeed
    from perseid.engine.last_word import Appender
    from perseid.engine.task_report import Reads, TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import CheckpointPointer, Plan
    from perseid.topics.log import LogReader
    from perseid.topics.records import SourceRange

# The order and the token as the log has it -> the merged report of the tasks, and milliseconds.
Execute = Callable[[EpochOrder, bytes], tuple["TaskReport", int]]
# Complete checkpoints, newest first, as known; as of now if True.
Pointers = Callable[[bool], "tuple[CheckpointPointer, ...]"]


class TokenLoop:
    """See the module's docstring. `take` is called with one record at a time."""

    def __init__(
        self,
        plan: Plan,
        incarnation: str,
        layout: Layout,
        feed: EpochFeed,
        progress: Appender,
        execute: Execute,
        pointers: Pointers,
    ) -> None:
        self._plan, self._incarnation, self._layout = plan, incarnation, layout
        self._feed, self._progress = feed, progress
        self._execute, self._pointers = execute, pointers
        self._topic = names.tokens(plan.job)
        self.offset = feed.start_offset  # of the next record
        self.epoch = feed.done_epoch  # the last one that has run
        self.epoch_offset = feed.start_offset  # of that one's token
        self.checkpoint_epoch = 0  # the last one whose parts this loop has ordered

    def take(self, offset: int, record: bytes) -> EpochOrder | None:
        """The order that has run, if the record led to one. RetryableError: a gap in the log."""
        if offset < self.offset:
            return None
        if offset != self.offset:
            raise RetryableError(
                f"{self._topic} has no record at offset {self.offset}; the next is {offset}"
            )
        order = self._feed.feed(
            offset, decode_token(self._topic, offset, record),
            checkpoints.collectable(self._pointers(False)),
        )  # fmt: skip
        if order is not None:
            self._run(order, record)
        self.offset = offset + 1
        return order

    def _run(self, order: EpochOrder, record: bytes) -> None:
        token, checkpoint = order.token, order.token.checkpoint and not order.muted
        # A checkpoint that has just completed counts: upon its predecessor the same parts would be
        # written again.
        known = self._pointers(checkpoint)
        base = checkpoints.base_of(known, self._plan.generation, whole=token.final or token.whole)
        order = replace(order, base=base)
        found, took_ms = self._execute(order, record)
        done = complete(self._plan.job, self._layout, token.epoch, found)
        self._feed.done(token.epoch)
        self.epoch, self.epoch_offset = token.epoch, order.token_offset
        if checkpoint:
            self.checkpoint_epoch = token.epoch
        if not order.muted:
            self._report_event_times(order, done.reads)
        self._progress.append(reports.epoch_done(
            self._plan, self._incarnation, self._layout, order, done, took_ms
        ))  # fmt: skip

    def report_last_event_times(
        self, tokens: LogReader, read_again: Callable[[Token], Reads]
    ) -> None:
        """Reports the event times of the restored epoch: its owner may have died before it did.

        Without this report the watermark would wait for the next rows. `read_again` counts the
        fragment's input of one epoch.
        """
        at = self.offset
        (entry,) = tokens.read_range(self._topic, 0, at, at + 1, timeout_s=READ_TIMEOUT_S)
        token = decode_token(self._topic, at, entry.value)
        if isinstance(token, Token):
            self._report_event_times(EpochOrder(token, at, None), read_again(token))

    def _report_event_times(self, order: EpochOrder, reads: Reads) -> None:
        report = reports.event_times(self._plan, order, reads)
        if report.times:
            self._progress.append(report)


def own_input(spec: JobSpec, plan: Plan, token: Token) -> Token:
    """The token with those source ranges only that the plan's fragment reads, in their splits.

    The token of a layout's base epoch has the splits of the previous layout.
    """
    own, spread = plan.only.split, spread_of(spec, layouts.build(spec, plan.layout))
    if own is None or spread is None:
        return token
    among = spread.shares[own].among

    def mine(found: SourceRange) -> bool:
        return found.source in among and spread.split_of(found.source, found.partition) == own

    return replace(token, splits=tuple(tuple(filter(mine, split)) for split in token.splits))
