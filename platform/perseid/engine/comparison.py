"""Compares what a replica has made with what its primary has committed. Pure.

Both sides arrive by operator partition in the order of their tokens, in any order relative to each
other: a replica may be ahead of the ledger, or late. What has the same token is compared by topic
partition: the number of records, and their checksum. What has no counterpart, since the other side
is beyond its token, is dropped.

An epoch that every ledger partition has compared, and that has outputs, is counted as equal: a gate
needs a number of them. An epoch without outputs shows nothing of a revision.

A claim (`coordinator.ledger_claims`) repeats a ledger's last record without its outputs. After that
record it does not count. Where the ledger may have been read too late for that record, a record
without outputs may be a claim, and shows nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perseid.errors import Diverged

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.topics.records import LedgerRecord

WAITING_MAX = 256  # epochs of one operator partition

OF_REPLICA = (
    "the replica has made {made}, and the primary has committed {committed}. The job gives other "
    "results on another worker: look in its code for clocks, random numbers, the order of sets and "
    "other services (`perseid jobs test`), or whether the topic got more partitions; then apply "
    "the job again, or start it again, to have a replica"
)
OF_GATE = (
    "the new revision has made {made}, and the running one has committed {committed}. The job "
    "stays as it is: correct the new revision and apply it again with `--gate audit`, or, if it is "
    "to give other results, apply it without"
)

Totals = Mapping[tuple[str, int], tuple[int, int]]  # topic partition -> count and checksum


@dataclass(frozen=True, slots=True)
class _Epoch:
    """One operator partition's epoch, as one side has it."""

    epoch: int
    token_offset: int
    outputs: Totals


@dataclass(slots=True)
class _Partition:
    """What waits for the other side. `read_to`: the last token offset that its ledger has had."""

    made: deque[_Epoch] = field(default_factory=deque)
    committed: deque[_Epoch] = field(default_factory=deque)
    read_to: int = -1


class Comparison:
    """See the module's docstring. `unchecked`: how many partitions' epochs were never compared.

    `counts_from`: a token offset, from which on the ledger is read in time. What is dropped of
    earlier tokens is not counted. `equal`: the epochs that were. `text`: of what differs.
    """

    def __init__(
        self, job_uuid: str, layout: Layout, counts_from: int, text: str = OF_REPLICA
    ) -> None:
        self._job_uuid, self._layout, self._counts_from = job_uuid, layout, counts_from
        self._text = text
        self._open: dict[int, tuple[int, bool]] = {}  # by token: partitions compared, with outputs
        self._gids = {(t.operator, t.partition): t.gid for t in layout.ledger_tasks}
        self._partitions = {gid: _Partition() for gid in self._gids.values()}
        self.unchecked = self.equal = 0

    @property
    def waiting(self) -> tuple[int, ...]:
        """The ledger partitions whose next records have something to be compared with."""
        wanted = (t for t in self._layout.ledger_tasks if self._waits(self._partitions[t.gid]))
        return tuple(t.ledger for t in wanted if t.ledger is not None)

    def ran(self, order: EpochOrder, done: TaskReport) -> None:
        """What the tasks of a muted epoch have made. Raises Diverged."""
        for gid, report in done.partitions.items():
            if report.made is not None:
                totals = {(m.topic, m.partition): (m.count, m.checksum) for m in report.made}
                mine = self._partitions[gid]
                mine.made.append(_Epoch(order.token.epoch, order.token_offset, totals))
                self._look(gid, mine)

    def committed(self, record: LedgerRecord) -> None:
        """A ledger's next record; of another job or layout it is skipped. Raises Diverged."""
        gid = self._gids.get((record.operator, record.partition))
        if (record.job_uuid, record.layout) != (self._job_uuid, self._layout.number) or gid is None:
            return
        mine = self._partitions[gid]
        if record.token_offset <= mine.read_to:
            return  # a claim of what was read
        mine.read_to = record.token_offset
        if record.token_offset < self._counts_from and not record.outputs:
            return  # perhaps a claim
        totals = {(w.topic, w.partition): (w.count, w.checksum) for w in record.outputs}
        mine.committed.append(_Epoch(record.epoch, record.token_offset, totals))
        self._look(gid, mine)

    def _look(self, gid: int, mine: _Partition) -> None:
        while mine.made and mine.committed:
            made, committed = mine.made[0], mine.committed[0]
            if made.token_offset <= committed.token_offset:
                mine.made.popleft()
            if committed.token_offset <= made.token_offset:
                mine.committed.popleft()
            if made.token_offset == committed.token_offset:
                self._compare(gid, made, committed)
            elif made.token_offset < committed.token_offset:
                self._drop(made)
        for side in (mine.made, mine.committed):
            while len(side) > WAITING_MAX:
                self._drop(side.popleft())

    def _drop(self, dropped: _Epoch) -> None:
        self.unchecked += dropped.token_offset >= self._counts_from

    @staticmethod
    def _waits(mine: _Partition) -> bool:
        return bool(mine.made) and not mine.committed

    def _count(self, made: _Epoch) -> None:
        compared, some = self._open.pop(made.token_offset, (0, False))
        now = compared + 1, some or bool(made.outputs)
        if now[0] == len(self._partitions):
            self.equal += now[1]
            return
        self._open[made.token_offset] = now
        while len(self._open) > WAITING_MAX:  # a part of these was dropped
            del self._open[min(self._open)]

    def _compare(self, gid: int, made: _Epoch, committed: _Epoch) -> None:
        if made.outputs == committed.outputs:
            self._count(made)
            return
        topic, partition = place = min(
            p for p in made.outputs.keys() | committed.outputs.keys()
            if made.outputs.get(p) != committed.outputs.get(p)
        )  # fmt: skip
        task = self._layout.task(gid)
        raise Diverged(
            f"operator {task.operator}, partition {task.partition}, epoch {made.epoch}, "
            f"{topic}[{partition}]: "
            + self._text.format(
                made=_shown(made.outputs.get(place)), committed=_shown(committed.outputs.get(place))
            )
        )


def _shown(total: tuple[int, int] | None) -> str:
    return "nothing" if total is None else f"{total[0]} records with checksum {total[1]:#x}"
