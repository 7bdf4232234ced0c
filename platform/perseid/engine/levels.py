"""The steps of an epoch of a fragment whose rows come and go by buffer topics.

1. Its split is read, and what that sends is durable.
2. Level by level: the fragment waits until every set that its partitions expect is whole, they run,
   and what they send is durable. No task waits: the driver does.
3. The epoch is done: no set of it is needed again, but after a restore.

A partition sends after its commit point, so no reader has rows that a takeover may compute
otherwise. The epoch that a restore finds may lack its sends: it runs again (`resume.decide`), and
partitions that have it send their retained outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from perseid.engine.ports import R
from perseid.engine.task_report import TaskReport
from perseid.errors import RetryableError

if TYPE_CHECKING:
    from perseid.engine.epoch import Partitions
    from perseid.engine.feed import TokenHistory
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import Buffered
    from perseid.jobs.model.layout import Layout

X = TypeVar("X")  # the rows of a level on their way from the driver to its tasks
X_co = TypeVar("X_co", covariant=True)
X_contra = TypeVar("X_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


class Outbox(Protocol[R_contra]):
    """Sends rows to the buffer topics of their consumers."""

    def send(self, order: EpochOrder, rows: Sequence[R_contra], /) -> Buffered:
        """Returns once all sets of `rows` are durable. RetryableError: some may be."""
        ...


class Inbox(Protocol[X_co]):
    """The buffer partitions of a fragment's operator partitions, read where its driver runs."""

    def begin(self, past: TokenHistory, done_epoch: int, /) -> None:
        """Before the first epoch, which is above `done_epoch`: the tokens that count so far."""
        ...

    def rows(self, order: EpochOrder, gids: Sequence[int], /) -> X_co:
        """Waits until these partitions have every set of the order's token that they expect.

        FencedError at a stop. PermanentError when a set that is needed is in the topic no more.
        """
        ...

    def done(self, order: EpochOrder, /) -> None:
        """The epoch has run."""
        ...


class LevelTasks(Protocol[X_contra]):
    """Runs the tasks of one level; returns their merged report once what they send is durable."""

    def read(self, order: EpochOrder, /) -> TaskReport:
        """Level 0: the fragment's split."""
        ...

    def run(
        self, order: EpochOrder, level: int, gids: Sequence[int], rows: X_contra, /
    ) -> TaskReport: ...


def run_levels(
    order: EpochOrder, layout: Layout, inbox: Inbox[X], tasks: LevelTasks[X]
) -> TaskReport:
    """One epoch of the fragment that has the partitions of `layout`; the merged report."""
    report = tasks.read(order)
    for level in sorted({task.level for task in layout.tasks}):
        gids = tuple(task.gid for task in layout.level(level))
        found = tasks.run(order, level, gids, inbox.rows(order, gids))
        missing = sorted(set(gids) - found.partitions.keys())
        if missing:  # the next level would wait for what they did not send
            raise RetryableError(
                f"epoch {order.token.epoch}: of level {level} the operator partitions {missing} "
                "did not report, so the epoch is run again"
            )
        report = report.merged(found)
    inbox.done(order)
    return report


def run_and_send(
    partitions: Partitions[R], order: EpochOrder, rows: list[R], level: int, outbox: Outbox[R]
) -> TaskReport:
    """One task of a level: the partitions to which `rows` go run, commit, and send."""
    made, report = partitions.run(order, rows, level)
    return replace(report, buffered=outbox.send(order, made))
