"""The state that a run has at the job's kept checkpoints, compared with these.

At the token of such a checkpoint the run's state logs have the state of every operator partition at
that epoch, and the store has what the job had. Sections that are the same bytes are equal; all
others are decoded and compared entry by entry (`state_rows`). One partition is in memory at a time,
as it is in the process of its task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perseid.errors import DamagedFile
from perseid.jobs.model.spec import output_of
from perseid.replay.differences import Place
from perseid.replay.findings import ComparedState
from perseid.replay.state_rows import BAG, same_columns, state_differences
from perseid.state.durability.blob import Identity
from perseid.state.durability.checkpoint import Manifest, read_manifest, read_state
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.merging import STATE, emitted
from perseid.state.durability.owners import log_directory
from perseid.state.primitives.arrow import ipc_table
from perseid.state.primitives.primitive import schema_of
from perseid.worker.checkpoint.parts import PartOrder, state_of
from perseid.worker.epoch import flow

if TYPE_CHECKING:
    import pyarrow as pa

    from perseid.engine.order import EpochOrder
    from perseid.jobs.model.layout import Task
    from perseid.records import CheckpointPointer
    from perseid.replay.causes import Causes
    from perseid.replay.ranges import Range
    from perseid.replay.tolerances import Tolerances
    from perseid.state.durability.store import Store
    from perseid.worker.dataflow.context import FragmentContext

WHY_MAX = 5  # reasons that one checkpoint lists
Sections = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unlike:
    """The state `state` of an operator partition that differs from the checkpoint of `epoch`."""

    operator: str
    partition: int
    epoch: int
    state: str
    section: str
    entries: int

    def __str__(self) -> str:
        count = "1 entry" if self.entries == 1 else f"{self.entries} entries"
        return f"{_named(self)}: {count}"


def within(span: Range, kept: Iterable[CheckpointPointer]) -> dict[int, CheckpointPointer]:
    """The kept checkpoints of compared tokens, by epoch, ascending."""
    found = {}
    for pointer in sorted(kept, key=lambda p: p.epoch):
        token = span.tokens.get(pointer.token_offset)
        if token is not None and token.epoch == pointer.epoch >= span.first_epoch:
            found[pointer.epoch] = pointer
    return found


@dataclass
class States:
    """See the module's docstring. `kept`: the checkpoints by epoch (`within`).

    `causes`: gets what differs. `folder`: what differs is kept there, for `unsteady`.
    """

    kept: Mapping[int, CheckpointPointer]
    store: Store
    folder: Path
    causes: Causes | None = None
    tolerances: Tolerances | None = None
    compared: list[ComparedState] = field(default_factory=list)
    unlike: list[Unlike] = field(default_factory=list)

    def ran(self, order: EpochOrder, context: FragmentContext) -> None:
        """Compares the state after an epoch that has run, if there is a checkpoint of it."""
        pointer = self.kept.get(order.token.epoch)
        if pointer is None:
            return
        try:
            manifest = read_manifest(self.store, pointer.manifest, pointer.crc)
        except DamagedFile as error:
            self.compared.append(ComparedState(pointer.epoch, 0, 0, 0, f"{error}"))
            return
        one = _Comparison(self, manifest, order, context)
        for task in context.layout.stateful_tasks:
            one.compare(task)
        one.refuse_gone()
        differing = sum(u.entries for u in self.unlike if u.epoch == pointer.epoch)
        why = "; ".join(one.why[:WHY_MAX])
        more = len(one.why) - WHY_MAX
        self.compared.append(
            ComparedState(
                pointer.epoch, one.partitions, one.entries, differing,
                why + (f"; and {more} more" if more > 0 else ""),
            )
        )  # fmt: skip

    def unsteady(self, order: EpochOrder, context: FragmentContext) -> list[str]:
        """Where the state of a second run differs from that of this one, of what differed here."""
        found = []
        for one in self.unlike:
            if one.epoch != order.token.epoch:
                continue
            task = next(
                t for t in context.layout.stateful_tasks
                if (t.operator, t.partition) == (one.operator, one.partition)
            )  # fmt: skip
            again = made_by(context, task, order).get(one.section, b"")
            before = self._file(one).read_bytes()
            if not same_bytes(before, again) and _differ(context, task, one, before, again):
                found.append(f"{_named(one)}, differs between the two runs")
        return found

    def keep(self, one: Unlike, section: Any) -> None:
        """Keeps what a run has made, to compare it with a second run's."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file(one).write_bytes(_joined(section))

    def _file(self, one: Unlike) -> Path:
        return self.folder / f"{one.epoch}-{one.operator}-{one.partition}.{one.section}"


@dataclass
class _Comparison:
    """The comparison with one checkpoint."""

    states: States
    manifest: Manifest
    order: EpochOrder
    context: FragmentContext
    partitions: int = 0
    entries: int = 0
    why: list[str] = field(default_factory=list)

    def compare(self, task: Task) -> None:
        who = f"operator {task.operator}, partition {task.partition}"
        if not self.manifest.parallelism(task.operator):
            self.why.append(f"{who}: the checkpoint has no such operator")
            return
        try:
            theirs = read_state(self.states.store, self.manifest, task.operator, task.partition)
        except DamagedFile as error:
            self.why.append(f"{who}: {error}")
            return
        mine = made_by(self.context, task, self.order, emitted(theirs))
        self.partitions += 1
        for section in sorted(_states(theirs).keys() | _states(mine).keys()):
            self._section(task, section, theirs.get(section), mine.get(section))

    def refuse_gone(self) -> None:
        """Names the operators of the checkpoint that this revision does not have."""
        here = {task.operator for task in self.context.layout.stateful_tasks}
        gone = sorted({part.operator for part in self.manifest.parts} - here)
        self.why += [f"operator {name}: the audited revision has no such state" for name in gone]

    def _section(self, task: Task, section: str, theirs: Any, mine: Any) -> None:
        name = named(section)
        who = f"operator {task.operator}, partition {task.partition}, {name}"
        if theirs is None or mine is None:
            where = "the checkpoint" if theirs is None else "the audited revision"
            self.why.append(f"{who}: {where} has no such state")
            return
        committed = ipc_table(theirs)
        self.entries += len(committed)
        causes = self.states.causes
        if causes is not None:
            causes.compared_state(task.operator, name, self.manifest.epoch, len(committed))
        if same_bytes(theirs, mine):
            return
        committed, made = _fitted(committed, ipc_table(_joined(mine)))
        if not same_columns(committed, made):
            self.why.append(f"{who}: the audited revision declares other columns")
            return
        place = Place(task.operator, task.partition, self.manifest.epoch, "", 0, name)
        schema = _schema(self.context, task, section)
        found = state_differences(place, schema, committed, made, self.states.tolerances)
        if not len(found):
            return
        one = Unlike(task.operator, task.partition, self.manifest.epoch, name, section, len(found))
        self.states.unlike.append(one)
        self.states.keep(one, mine)
        if causes is not None:
            causes.add(found)


def made_by(
    context: FragmentContext, task: Task, order: EpochOrder, outputs: Iterable[str] = ()
) -> Sections:
    """The sections of the state that a run has after an epoch, from its state log.

    `outputs`: those that count as state, if the log has them.
    """
    identity = Identity(context.job_uuid, context.layout.number, task.operator, task.partition)
    directory = log_directory(context.owned, task.operator, task.partition)
    log = StateLog(LocalFiles(mapped=True), directory, identity)
    last = log.find(order.token.epoch)
    held = tuple(name for name in outputs if last is not None and name in last.sections)
    wanted = PartOrder(
        context.job, identity, directory, context.generation, order.token.epoch,
        order.token_offset, None, schema_of(_operator(context, task)), held,
    )  # fmt: skip
    return state_of(log, wanted)


def named(section: str) -> str:
    """A section of a snapshot, for users: the primitive's name, or `output NAME` of a feedback."""
    if section.startswith(STATE):
        return section.removeprefix(STATE)
    return f"output {output_of(section)}"


def same_bytes(one: Any, other: Any) -> bool:
    """Whether two sections, each bytes-like or a list of such, hold the same bytes."""
    left, right = _chunks(one), _chunks(other)
    if sum(map(len, left)) != sum(map(len, right)):
        return False
    return all(np.array_equal(a, b) for a, b in _side_by_side(left, right))


def _side_by_side(left: list[Any], right: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Neighbouring parts of both of equal lengths."""
    a, b = (np.zeros(0, np.uint8),) * 2
    ours, theirs = iter(left), iter(right)
    while True:
        while not len(a):
            found = next(ours, None)
            if found is None:
                return
            a = found
        while not len(b):
            b = next(theirs)
        size = min(len(a), len(b))
        yield a[:size], b[:size]
        a, b = a[size:], b[size:]


def _chunks(section: Any) -> list[Any]:
    parts = section if isinstance(section, list) else [section]
    return [np.frombuffer(part, np.uint8) for part in parts]


def _joined(section: Any) -> Any:
    return b"".join(section) if isinstance(section, list) else section


def _states(sections: Sections) -> dict[str, Any]:
    """The sections that are state: primitives, and outputs that the next epoch reads."""
    state = {name: data for name, data in sections.items() if name.startswith(STATE)}
    return state | emitted(sections)


def _operator(context: FragmentContext, task: Task) -> type:
    return flow.operator_class(context.job_folder, task.operator)


def _schema(context: FragmentContext, task: Task, section: str) -> Mapping[str, Any]:
    schemas = schema_of(_operator(context, task))
    return schemas.get(section.removeprefix(STATE)) or {"kind": BAG, "key": ()}


def _fitted(committed: pa.Table, made: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both; one without rows gets the columns of the other: outputs without rows have none."""
    if not len(committed):
        committed = made.schema.empty_table()
    if not len(made):
        made = committed.schema.empty_table()
    return committed, made


def _differ(
    context: FragmentContext, task: Task, one: Unlike, before: Any, again: Any
) -> bool:  # fmt: skip
    first, second = _fitted(ipc_table(before), ipc_table(_joined(again)))
    place = Place(one.operator, one.partition, one.epoch, "", 0, one.state)
    return bool(state_differences(place, _schema(context, task, one.section), first, second))


def _named(one: Unlike) -> str:
    return (
        f"operator {one.operator}, partition {one.partition}, state {one.state} at the checkpoint "
        f"of epoch {one.epoch}"
    )
