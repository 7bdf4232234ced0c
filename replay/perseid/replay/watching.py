"""What a run has made, compared while it runs, and with what its second run makes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.engine.comparison import Unequal, shown, total
from perseid.jobs.model import layout as layouts
from perseid.records.audits import AuditProgress
from perseid.replay.ledgers import PastLedgers
from perseid.replay.looking import Look
from perseid.replay.recorded import Environments
from perseid.replay.sink_columns import SinkColumns
from perseid.replay.sink_faults import SinkFaults
from perseid.replay.states import States, within

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import Made, TaskReport
    from perseid.records import CheckpointPointer, Deployment
    from perseid.replay.causes import Causes
    from perseid.replay.ranges import Range
    from perseid.replay.sink_columns import Revision
    from perseid.replay.tolerances import Tolerances
    from perseid.replay.verdict import Facts
    from perseid.state.durability.store import Store
    from perseid.topics.admin import TopicReader
    from perseid.topics.ranges import ColumnReader
    from perseid.worker.dataflow.context import FragmentContext

NOTE_S = 5.0  # between two notes about the progress of a run
CONTROLLED_MAX = 20  # epochs with differences that the recorded revision runs again


Note = Callable[[str | AuditProgress], None]


@dataclass(frozen=True)
class Ports:
    """What the comparison of a run needs of the process and folder that it is in (`progress`).

    `ledgers`, `sinks`: readers of their topics. `outputs`, `states`: folders of the run.
    """

    span: Range
    settings: Deployment
    topics: TopicReader
    store: Store
    note: Note
    ledgers: ColumnReader
    sinks: ColumnReader
    outputs: Path
    states: Path
    audited: Revision
    recorded: Revision | None

    @property
    def named(self) -> dict[str, object]:
        """By name, as a pickle names them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass
class Watched:
    """What one run has made, compared epoch by epoch with the ledgers.

    `look`: what differs is looked at record by record; None: not of a control. `sinks`: compares
    the topics; None: neither of a control nor where it was not asked for. `states`: compares its
    state at checkpoints. `environments`: of what was committed. `unequal`: what differs by more
    than a tolerance. `made`: what it made of the operator partitions' epochs that differ, by epoch
    and gid.
    """

    span: Range
    ledgers: PastLedgers
    outputs: Path
    note: Note
    look: Look | None
    sinks: SinkFaults | None
    states: States
    environments: Environments
    unequal: list[Unequal] = field(default_factory=list)
    made: dict[tuple[int, int], tuple[Made, ...]] = field(default_factory=dict)
    _noted_s: float = field(default_factory=time.monotonic)

    def ran(self, order: EpochOrder, done: TaskReport, context: FragmentContext) -> None:
        epoch = order.token.epoch
        if epoch >= self.span.first_epoch:
            found = self.ledgers.ran(order, done)
            if self.sinks is not None:
                self.sinks.ran(epoch, found)
            if found and self.look is not None:
                found = self.look.differing(found, self.ledgers.near(epoch))
            self.unequal += found
            differ = {(one.operator, one.partition) for one in found}
            for task in self.ledgers.layout.ledger_tasks:
                if (task.operator, task.partition) in differ:
                    self.made[epoch, task.gid] = done.partitions[task.gid].made or ()
        self.states.ran(order, context)
        if self.sinks is None or epoch < self.span.first_epoch:
            shutil.rmtree(self.outputs / str(epoch), ignore_errors=True)
        if time.monotonic() - self._noted_s > NOTE_S:
            self._noted_s = time.monotonic()
            count = len(self.unequal) + len(self.states.unlike)
            self.note(AuditProgress(epoch, self.span.last_epoch, count))

    def kept(self) -> None:
        """All of it is kept (`progress`)."""
        if self.sinks is not None:
            self.sinks.kept()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._noted_s = time.monotonic()  # a clock of this process

    @property
    def differs(self) -> bool:
        """Whether outputs or states do."""
        return bool(self.unequal or self.states.unlike)

    @property
    def controlled_to(self) -> int:
        """The last epoch that a control has to run."""
        epochs = sorted({e for e, _ in self.made} | {one.epoch for one in self.states.unlike})
        return epochs[:CONTROLLED_MAX][-1]

    def facts(self, facts: Facts) -> Facts:
        """With what this run has seen of ledgers and sinks."""
        unlike = {one.epoch for one in self.unequal} | {one.epoch for one in self.states.unlike}
        first = min(unlike, default=self.span.last_epoch)
        facts = replace(facts, recorded=self.environments.upto(first))
        if self.look is None:
            return facts
        facts = replace(facts, states=tuple(self.states.compared))
        compared = self.look.compared(self.ledgers.comparison)
        if self.sinks is None:
            return replace(facts, compared=compared)
        return replace(
            facts, compared=self.sinks.named(compared), sink_changed=tuple(self.sinks.changed)
        )


def watched(
    ports: Ports, job: str, kept: Iterable[CheckpointPointer], tolerances: Tolerances | None,
    causes: Causes | None, *, sinks: bool,
) -> Watched:  # fmt: skip
    """Of a run that begins. `kept`: the job's checkpoints. `causes`: None for a control.

    `sinks`: whether the topics are compared.
    """
    span, outputs = ports.span, ports.outputs
    faults = None
    if causes is not None and sinks:
        faults = SinkFaults(span.first_epoch, outputs, ports.sinks, ports.topics)
    environments = Environments(span.job_uuid, span.layout, span.base_epoch)
    seen = [environments.committed, *([faults.committed] if faults is not None else [])]
    ledgers = PastLedgers(
        job, span.job_uuid, layouts.build(ports.audited.spec, span.layout),
        first_offset(span), ports.ledgers, ports.topics, *seen,
    )  # fmt: skip
    columns = SinkColumns(ports.settings, ports.audited, ports.recorded)
    look = None
    if causes is not None:
        look = Look(columns, outputs, ports.ledgers, causes, tolerances)
    states = States(
        within(span, kept), ports.store, ports.states, causes, tolerances
    )  # fmt: skip
    return Watched(span, ledgers, outputs, ports.note, look, faults, states, environments)


def first_offset(span: Range) -> int:
    """Of the token of the first compared epoch."""
    return next(at for at, token in span.tokens.items() if token.epoch == span.first_epoch)


@dataclass
class Again:
    """A second run of the same files, compared with what the first one made where it differed."""

    first: Watched
    outputs: Path
    unsteady: list[str] = field(default_factory=list)

    def ran(self, order: EpochOrder, done: TaskReport, context: FragmentContext) -> None:
        epoch = order.token.epoch
        self.unsteady += self.first.states.unsteady(order, context)
        for task in self.first.ledgers.layout.ledger_tasks:
            before = self.first.made.get((epoch, task.gid))
            if before is None:
                continue
            one = {(m.topic, m.partition): m for m in before}
            two = {(m.topic, m.partition): m for m in done.partitions[task.gid].made or ()}
            self.unsteady += [
                f"operator {task.operator}, partition {task.partition}, epoch {epoch}, "
                f"{topic}[{number}]: {shown(one.get((topic, number)))} in the first run, and "
                f"{shown(two.get((topic, number)))} in the second"
                for topic, number in sorted(one.keys() | two.keys())
                if total(one.get((topic, number))) != total(two.get((topic, number)))
            ]
        shutil.rmtree(self.outputs / str(epoch), ignore_errors=True)

    def kept(self) -> None:
        """Nothing waits for it."""
