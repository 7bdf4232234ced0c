"""Compares epochs that an audit has run with the ledgers, which have them already.

The ledgers are read in the order of the epochs, of a partition no further than the last compared
epoch needs, and from near the first one on: a horizon's ledgers are long. What a ledger lacks is
never taken for equal: the audit is refused.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

from perseid.engine.comparison import WAITING_MAX, Comparison, Unequal
from perseid.errors import LogTruncated, RefusedError, ReplayDataLost
from perseid.topics import names
from perseid.worker.sink.audit import ledger_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.topics.admin import Partition, TopicReader
    from perseid.topics.records import LedgerRecord, SinkWindow
    from perseid.worker.sink.audit import RangeReader

    Seen = Callable[[LedgerRecord], None]

PROBED = 16  # offsets of a ledger, enough for a record and markers


class PastLedgers:
    """See the module's docstring. `comparison`: what was compared, and how much of it.

    `close` closes the reader.
    """

    def __init__(
        self, job: str, job_uuid: str, layout: Layout, first_offset: int, reader: RangeReader,
        topics: TopicReader, *seen: Seen,
    ) -> None:  # fmt: skip
        """`first_offset`: of the token of the first epoch that is compared.

        `seen`: are called with every record that is read, of each ledger partition in order.
        """
        self.layout, self._seen = layout, seen
        self._ledger, self._reader = names.ledger(job), reader
        places = [(self._ledger, t.ledger) for t in layout.ledger_tasks if t.ledger is not None]
        self._read_to, self._ends = topics.starts(places), topics.ends(places)
        self._first = first_offset
        self._sought: set[Partition] = set()
        self.comparison = Comparison(job_uuid, layout, first_offset)
        self._windows: dict[int, list[SinkWindow]] = {}  # by epoch

    def ran(self, order: EpochOrder, done: TaskReport) -> list[Unequal]:
        """What differs of an epoch. RefusedError if a ledger does not have it."""
        epoch = order.token.epoch
        self._windows = {e: some for e, some in self._windows.items() if e >= epoch - 1}
        found = self.comparison.ran(order, done)
        while waiting := self.comparison.waiting:
            for number in waiting:
                found += self._read_on((self._ledger, number), order)
        if self.comparison.unchecked:
            raise self._lacking(order, "a later epoch follows")
        return found

    def near(self, epoch: int) -> list[SinkWindow]:
        """What is known of all ledger partitions' outputs of the epoch and its neighbours."""
        return [w for e in (epoch - 1, epoch, epoch + 1) for w in self._windows.get(e, ())]

    def read_ahead(self) -> None:
        """Shows what follows the compared epochs, as far as a read goes. Raises RetryableError."""
        for place, start in self._read_to.items():
            end = min(start + WAITING_MAX, self._ends[place])
            with suppress(ReplayDataLost, LogTruncated):  # then nothing follows
                self._show(ledger_records(self._reader, place, start, end))

    def close(self) -> None:
        self._reader.close()

    def _show(self, records: Iterable[LedgerRecord]) -> None:
        for record, seen in product(records, self._seen):
            seen(record)

    def _read_on(self, place: Partition, order: EpochOrder) -> list[Unequal]:
        try:
            self._seek(place)
            start = self._read_to[place]
            end = min(start + WAITING_MAX, self._ends[place])
            if start >= end:
                raise self._lacking(order, f"partition {place[1]} ends at offset {end}")
            records = ledger_records(self._reader, place, start, end)
        except ReplayDataLost as trimmed:  # meanwhile; if it was needed, the ledger lacks it
            self._read_to[place] = trimmed.earliest
            return []
        except LogTruncated as error:
            raise self._lacking(order, str(error)) from error
        self._read_to[place] = end
        self._show(records)
        for record in records:
            if record.epoch >= order.token.epoch - 1 and record.outputs:
                self._windows.setdefault(record.epoch, []).extend(record.outputs)
        return [found for record in records for found in self.comparison.committed(record)]

    def _seek(self, place: Partition) -> None:
        """Skips what precedes the epoch before the first one that is compared, at most."""
        if place in self._sought:
            return
        high = self._ends[place]
        while high - self._read_to[place] > WAITING_MAX:
            middle = (self._read_to[place] + high) // 2
            found = ledger_records(self._reader, place, middle, min(middle + PROBED, high))
            if found and found[0].token_offset < self._first:
                self._read_to[place] = middle
            else:
                high = middle
        self._sought.add(place)

    def _lacking(self, order: EpochOrder, why: str) -> RefusedError:
        return RefusedError(
            f"{self._ledger} does not have epoch {order.token.epoch} of every operator partition "
            f"({why}), so it is unknown what was committed: it is trimmed with checkpoints, or the "
            "job has not committed that epoch yet; audit another range with --epochs"
        )
