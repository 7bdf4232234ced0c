"""Compares what a muted fragment has made with what the ledgers have. Pure.

A replica is compared with its primary, an audit with the past. Both sides arrive by operator
partition in the order of their tokens, in any order relative to each other: a replica may be ahead
of the ledger, or late. What has the same token is compared by topic partition: the number of
records, and their checksum. What has no counterpart, since the other side is beyond its token, is
dropped.

An epoch that every ledger partition has compared, and that has outputs, is counted as equal: a gate
needs a number of them. An epoch without outputs shows nothing of a revision. A partition's epoch of
which all differences are approved counts as equal.

A claim (`coordinator.ledger_claims`) repeats a ledger's last record without its outputs. After that
record it does not count. Where the ledger may have been read too late for that record, a record
without outputs may be a claim, and shows nothing.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perseid.errors import Diverged

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import Made, TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.topics.records import LedgerRecord, SinkWindow

WAITING_MAX = 256  # epochs of one operator partition

OF_REPLICA = (
    "the replica has made {made}, and the primary has committed {committed}. The job gives other "
    "results on another worker: look in its code for clocks, random numbers, the order of sets and "
    "other services (`perseid jobs test`), or whether the topic got more partitions; then apply "
    "the job again, or start it again, to have a replica"
)
OF_GATE = (
    "the new revision has made {made}, and the running one has committed {committed}. The job "
    "stays as it is: correct the new revision and apply it again with `--gate audit`. If it is to "
    "give other results, look at them with `perseid replay JOB --rev REPO --report FOLDER` and "
    "apply it with `--approve FOLDER/audit.json`, or without a gate"
)

Side = TypeVar("Side", "Made", "SinkWindow")


@dataclass(frozen=True, slots=True)
class Unequal:
    """One topic partition for which an epoch of an operator partition has other outputs.

    `token_offset`: of the epoch's token. A side is None if it has nothing there.
    """

    operator: str
    partition: int
    epoch: int
    token_offset: int
    topic: str
    topic_partition: int
    made: Made | None
    committed: SinkWindow | None

    def __str__(self) -> str:
        return (
            f"operator {self.operator}, partition {self.partition}, epoch {self.epoch}, "
            f"{self.topic}[{self.topic_partition}]"
        )


@dataclass(frozen=True, slots=True)
class _Epoch(Generic[Side]):
    """One operator partition's epoch, as one side has it. `outputs`: by topic partition."""

    epoch: int
    token_offset: int
    outputs: Mapping[tuple[str, int], Side]


@dataclass(slots=True)
class _Partition:
    """What waits for the other side. `read_to`: the last token offset that its ledger has had."""

    made: deque[_Epoch[Made]] = field(default_factory=deque)
    committed: deque[_Epoch[SinkWindow]] = field(default_factory=deque)
    read_to: int = -1


class Comparison:
    """See the module's docstring. `unchecked`: how many partitions' epochs were never compared.

    `counts_from`: a token offset, from which on the ledger is read in time. What is dropped of
    earlier tokens is not counted. `equal`: the epochs that were. `windows` and `records`: what
    ledgers had of what was compared, by topic.
    """

    def __init__(self, job_uuid: str, layout: Layout, counts_from: int) -> None:
        self._job_uuid, self._layout, self._counts_from = job_uuid, layout, counts_from
        self._open: dict[int, tuple[int, bool]] = {}  # by token: partitions compared, with outputs
        self._gids = {(t.operator, t.partition): t.gid for t in layout.ledger_tasks}
        self._partitions = {gid: _Partition() for gid in self._gids.values()}
        self.unchecked = self.equal = 0
        self.windows, self.records = Counter[str](), Counter[str]()

    @property
    def waiting(self) -> tuple[int, ...]:
        """The ledger partitions whose next records have something to be compared with."""
        wanted = (t for t in self._layout.ledger_tasks if self._waits(self._partitions[t.gid]))
        return tuple(t.ledger for t in wanted if t.ledger is not None)

    @property
    def compared_to(self) -> float:
        """A token offset: of all earlier ones nothing that was made waits for a ledger."""
        waiting = (mine.made[0].token_offset for mine in self._partitions.values() if mine.made)
        return min(waiting, default=math.inf)

    def approved(self, found: Iterable[Unequal]) -> None:
        """These differences count as none: all of one partition's epoch at once."""
        for token_offset, *_ in sorted({(u.token_offset, u.operator, u.partition) for u in found}):
            self._count(token_offset, some=True)

    def ran(self, order: EpochOrder, done: TaskReport) -> list[Unequal]:
        """What the tasks of a muted epoch have made; what is found to differ, in order."""
        found: list[Unequal] = []
        for gid, report in done.partitions.items():
            if report.made is not None:
                outputs = {(made.topic, made.partition): made for made in report.made}
                mine = self._partitions[gid]
                mine.made.append(_Epoch(order.token.epoch, order.token_offset, outputs))
                found += self._look(gid, mine)
        return found

    def committed(self, record: LedgerRecord) -> list[Unequal]:
        """A ledger's next record; of another job or layout it is skipped. As `ran`."""
        gid = self._gids.get((record.operator, record.partition))
        if (record.job_uuid, record.layout) != (self._job_uuid, self._layout.number) or gid is None:
            return []
        mine = self._partitions[gid]
        if record.token_offset <= mine.read_to:
            return []  # a claim of what was read
        mine.read_to = record.token_offset
        if record.token_offset < self._counts_from and not record.outputs:
            return []  # perhaps a claim
        outputs = {(window.topic, window.partition): window for window in record.outputs}
        mine.committed.append(_Epoch(record.epoch, record.token_offset, outputs))
        return self._look(gid, mine)

    def _look(self, gid: int, mine: _Partition) -> list[Unequal]:
        found: list[Unequal] = []
        while mine.made and mine.committed:
            made, committed = mine.made[0], mine.committed[0]
            if made.token_offset <= committed.token_offset:
                mine.made.popleft()
            if committed.token_offset <= made.token_offset:
                mine.committed.popleft()
            if made.token_offset == committed.token_offset:
                found += self._compare(gid, made, committed)
            elif made.token_offset < committed.token_offset:
                self._drop(made)
        while len(mine.made) > WAITING_MAX:
            self._drop(mine.made.popleft())
        while len(mine.committed) > WAITING_MAX:
            self._drop(mine.committed.popleft())
        return found

    def _drop(self, dropped: _Epoch[Any]) -> None:
        self.unchecked += dropped.token_offset >= self._counts_from

    @staticmethod
    def _waits(mine: _Partition) -> bool:
        return bool(mine.made) and not mine.committed

    def _count(self, token_offset: int, *, some: bool) -> None:
        """One partition's epoch is equal; `some`: it has outputs."""
        compared, before = self._open.pop(token_offset, (0, False))
        now = compared + 1, before or some
        if now[0] == len(self._partitions):
            self.equal += now[1]
            return
        self._open[token_offset] = now
        while len(self._open) > WAITING_MAX:  # a part of these was dropped
            del self._open[min(self._open)]

    def _compare(
        self, gid: int, made: _Epoch[Made], committed: _Epoch[SinkWindow]
    ) -> list[Unequal]:
        for (topic, _), window in committed.outputs.items():
            self.windows[topic] += 1
            self.records[topic] += window.count
        task = self._layout.task(gid)
        unequal = [
            Unequal(
                task.operator, task.partition, made.epoch, made.token_offset, *place,
                made.outputs.get(place), committed.outputs.get(place),
            )
            for place in sorted(made.outputs.keys() | committed.outputs.keys())
            if total(made.outputs.get(place)) != total(committed.outputs.get(place))
        ]  # fmt: skip
        if not unequal:
            self._count(made.token_offset, some=bool(made.outputs))
        return unequal


def total(side: Made | SinkWindow | None) -> tuple[int, int]:
    """Number of records and their checksum, 0 and 0 of nothing."""
    return (0, 0) if side is None else (side.count, side.checksum)


def diverged(found: Unequal, text: str = OF_REPLICA) -> Diverged:
    """The error that ends a replica or a gate."""
    return Diverged(
        f"{found}: " + text.format(made=shown(found.made), committed=shown(found.committed))
    )


def unapproved(found: Unequal, refused: str) -> Diverged:
    """The error that ends a gate with approved differences; `refused`: what is not approved."""
    return Diverged(
        f"{found}: {refused}, which is not approved. The job stays as it is: correct the new "
        "revision and apply it again, or look at what differs with `perseid replay JOB --rev REPO "
        "--report FOLDER` and approve that report with `--approve FOLDER/audit.json`"
    )


def shown(side: Made | SinkWindow | None) -> str:
    return "nothing" if side is None else f"{side.count} records with checksum {side.checksum:#x}"
