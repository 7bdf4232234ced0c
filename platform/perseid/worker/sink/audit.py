"""A replica's audit: reads the ledger that its primary writes, and compares (`engine.comparison`).

It has a reader and a thread of its own, so no epoch waits for it, of the replica or of the primary.
It reads only while epochs wait to be compared, and of a partition no further than that needs. It
begins at the ledger's end: what was committed before is not compared. It ends with a last look when
the replica becomes the primary (`engine.promotion`).

A gate for which users have approved differences keeps the outputs of its epochs until they are
compared. The thread looks at those that differ record by record (`Approval`), once nothing of that
epoch or an earlier one waits for the ledger.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from perseid import logs
from perseid.engine.comparison import (
    OF_GATE,
    OF_REPLICA,
    WAITING_MAX,
    Comparison,
    diverged,
    unapproved,
)
from perseid.errors import LogTruncated, ReplayDataLost, RetryableError
from perseid.records import GATE
from perseid.topics import codec, names

if TYPE_CHECKING:
    from perseid.engine.comparison import Unequal
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.records import Plan
    from perseid.records.access import Bootstrap
    from perseid.topics.admin import Partition, TopicReader
    from perseid.topics.columns import Records
    from perseid.topics.ranges import ColumnReader
    from perseid.topics.records import LedgerRecord, SinkWindow

log = logging.getLogger("perseid.worker")

LOOK_S = 1.0  # between two looks at the ledger
AFTER_ERROR_S = 10.0
LAST_LOOKS_MAX = 8  # of WAITING_MAX offsets each; an epoch has two, and more after aborted attempts


class RangeReader(Protocol):
    """Reads ranges of committed records (`topics.ranges.ColumnReader`)."""

    def prepare(self, starts: Mapping[Partition, int]) -> None: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]: ...
    def close(self) -> None: ...


class Approval(Protocol):
    """Compares what a gate has made record by record (`perseid.replay.approving`)."""

    def refused(self, one: Unequal, near: Sequence[SinkWindow]) -> str:
        """What of a difference is not approved, for users; empty if all is.

        `near`: what is known of all ledgers' outputs of that epoch and its neighbours. Raises
        RetryableError.
        """
        ...

    def forget(self, before_epoch: int) -> None:
        """Outputs of epochs below that one are needed no more."""
        ...


class LedgerAudit:
    """See the module's docstring. `start` begins the thread, which calls `look`.

    `ran` and `judged` are called by the fragment, between two epochs.
    """

    def __init__(
        self, plan: Plan, layout: Layout, reader: RangeReader, topics: TopicReader,
        approval: Approval | None = None,
    ) -> None:  # fmt: skip
        """Asks where the ledger ends: RetryableError if a broker does not answer."""
        self._reader, self._topics = reader, topics
        self._ledger = names.ledger(plan.job)
        numbers = [task.ledger for task in layout.ledger_tasks if task.ledger is not None]
        self._read_to = topics.ends([(self._ledger, number) for number in numbers])
        # In this order: what tokens from here on commit is beyond those ends.
        token_log = names.tokens(plan.job), 0
        tokens_end = topics.ends([token_log])[token_log]
        self._comparison = Comparison(plan.job_uuid, layout, tokens_end)
        self._text = OF_GATE if plan.only.role == GATE else OF_REPLICA
        self._approval = approval
        self._differ: list[Unequal] = []  # to be looked at
        self._windows: dict[int, list[SinkWindow]] = {}  # of ledgers, by epoch
        self._epochs: dict[int, int] = {}  # of tokens whose outputs are kept
        self._comparing = threading.Lock()
        self._reading = threading.Lock()  # one look at a time
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._refused = ""  # the last reason why the ledger could not be read
        self._warned = False

    def start(self) -> None:
        work = logs.carried(self._look_again)
        threading.Thread(target=work, name="perseid-audit", daemon=True).start()

    def close(self) -> None:
        """The thread ends soon, and closes its reader."""
        self._ended.set()

    def ran(self, order: EpochOrder, done: TaskReport) -> None:
        """What the tasks of a muted epoch have made. Raises Diverged."""
        with self._comparing:
            if self._approval is not None:
                self._epochs[order.token_offset] = order.token.epoch
            self._refuse(self._comparison.ran(order, done))

    @property
    def equal(self) -> int:
        """How many epochs were equal (`Comparison`)."""
        return self._comparison.equal

    def judged(self) -> list[str]:
        """Warnings for users, each once. Raises what has ended the audit, such as Diverged."""
        if self._error is not None:
            raise self._error
        unchecked = self._comparison.unchecked
        if not unchecked or self._warned:
            return []
        self._warned = True
        return [self._not_compared(f"{unchecked} outputs")]

    def last(self) -> list[str]:
        """Compares all that the ledger has, and ends the audit; warnings for users.

        For a replica that runs no more epochs, once the owner of the ledger is fenced. Raises what
        has ended the audit before, or Diverged.
        """
        found: bool | None = None
        with self._reading:
            self._ended.set()
            if self._error is not None:
                raise self._error
            for _ in range(LAST_LOOKS_MAX):
                found = self._read_on()
                if not found:
                    break
        return self.judged() if found is False else [self._not_compared("the last outputs")]

    def look(self) -> bool:
        """Compares what the ledger has by now; whether it could be read."""
        return self._read_on() is not None

    def _read_on(self) -> bool | None:
        """Whether there was something to compare; None if it could not be read."""
        try:
            found = self._look()
        except RetryableError as error:
            if str(error) != self._refused:
                log.warning("the replica's outputs are not compared yet: %s", error)
            self._refused = str(error)
            return None
        self._refused = ""
        return found

    def _not_compared(self, what: str) -> str:
        why = f": {self._refused}" if self._refused else ""
        return (
            f"{what} of this replica were not compared with those of the primary, since "
            f"{self._ledger} did not show them in time{why}"
        )

    def _look_again(self) -> None:
        wait_s = LOOK_S
        while not self._ended.wait(wait_s):
            with self._reading:
                wait_s = self._look_once()
        with self._reading:
            self._reader.close()

    def _look_once(self) -> float:
        """Seconds until the next look. Whatever its error is, it ends the fragment."""
        try:
            found = self._ended.is_set() or self.look()
        except Exception as error:
            self._error = error
            self._ended.set()
            return 0.0
        return LOOK_S if found else AFTER_ERROR_S

    def _refuse(self, found: list[Unequal]) -> None:
        if found and self._approval is None:
            raise diverged(found[0], self._text)
        self._differ += found

    def _look(self) -> bool:
        found = self._read_ledgers()
        if self._approval is not None:
            self._approve(self._approval)
        return found

    def _approve(self, approval: Approval) -> None:
        """Looks at what differs. Raises Diverged; RetryableError where it cannot be read yet."""
        with self._comparing:
            # What runs meanwhile comes after the last epoch that is known now.
            upto = min(self._comparison.compared_to, max(self._epochs, default=-1) + 1)
            known = [one for one in self._differ if one.token_offset < upto]
        for one in known:
            near = [w for e in (-1, 0, 1) for w in self._windows.get(one.epoch + e, ())]
            if refused := approval.refused(one, near):
                raise unapproved(one, refused)
        with self._comparing:
            self._differ = [one for one in self._differ if one.token_offset >= upto]
            self._comparison.approved(known)
            self._epochs = {at: epoch for at, epoch in self._epochs.items() if at >= upto}
            kept = min(self._epochs.values(), default=None)
        if kept is not None:
            self._windows = {e: some for e, some in self._windows.items() if e >= kept - 1}
            approval.forget(kept)

    def _read_ledgers(self) -> bool:
        """Whether there was something to read."""
        with self._comparing:
            waiting = [(self._ledger, number) for number in self._comparison.waiting]
        if not waiting:
            return False
        ends = self._topics.ends(waiting)
        ranges = {
            place: (min(self._read_to[place], end), min(self._read_to[place] + WAITING_MAX, end))
            for place, end in ends.items()
        }
        self._reader.prepare({place: start for place, (start, _) in ranges.items()})
        for place, (start, end) in ranges.items():
            found = self._read(place, start, end)
            with self._comparing:
                for record in found:
                    if self._approval is not None:
                        self._windows.setdefault(record.epoch, []).extend(record.outputs)
                    self._refuse(self._comparison.committed(record))
        return any(start < end for start, end in ranges.values())

    def _read(self, place: Partition, start: int, end: int) -> list[LedgerRecord]:
        """What is lost of a ledger is not compared, and counted; its primary will fail of it."""
        try:
            found = ledger_records(self._reader, place, start, end)
        except ReplayDataLost as trimmed:
            self._read_to[place] = trimmed.earliest
            return []
        except LogTruncated:
            self._read_to[place] = end
            return []
        self._read_to[place] = end
        return found


def ledger_records(
    reader: RangeReader, place: Partition, start: int, end: int
) -> list[LedgerRecord]:
    """What a ledger's partition has in [start, end), in order."""
    return [
        codec.decode_ledger(place, int(offset), value.as_py())
        for records in reader.read(*place, start, end)
        for offset, value in zip(records.offsets, records.values, strict=True)
    ]


def kafka_audit(
    brokers: Bootstrap, plan: Plan, layout: Layout,
    approving: Callable[[ColumnReader], Approval] | None = None,
) -> LedgerAudit:  # fmt: skip
    """On Kafka; it has begun. `approving`: of a gate with approved differences."""
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.ranges import ColumnReader

    reader = ColumnReader(brokers)
    approval = approving(reader) if approving is not None else None
    audit = LedgerAudit(plan, layout, reader, TopicAdmin(brokers), approval)
    audit.start()
    return audit
