"""One keyed operator partition in this process: its resident state and the steps of an epoch.

1. An epoch that the state log holds is not processed again: its retained output is returned.
2. The resident state is brought to the previous epoch by applying the deltas that it lacks.
3. The resident state is dirty from here on: a crash or an error drops it.
4. The operator processes the epoch's input. When it raises, the row at fault is searched: every
   further attempt begins with a rollback; a bisecting operator takes such rows out.
5. Delta, outputs and dead letters go into the state log; the delta's appearance is the task's
   commit point. Outputs that the next epoch reads are state, so they stay in the delta.
6. The resident state is clean, at this epoch.
7. For a checkpoint a small state that has changed much is copied whole.

State = f(log): any process of the host can do this; a copy that is ahead or dirty is rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perseid.errors import DamagedFile, RetryableError
from perseid.jobs.model.spec import MAIN, output_of
from perseid.jobs.operator import outputs_of
from perseid.state.durability.merging import OUT, STATE, emitted
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.worker.checkpoint.parts import TO_RESTORE, PartOrder, StateCopy, at_once
from perseid.worker.dataflow.edges import check_columns
from perseid.worker.dataflow.operators import call, who
from perseid.worker.dead_letters import refused
from perseid.worker.dead_letters.poison import guarded
from perseid.worker.recovery.migration import refuse_unlike, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perseid.jobs.operator import Emitter, Operator
    from perseid.state.durability.log import LogEntry, StateLog
    from perseid.state.primitives.primitive import Primitive
    from perseid.topics.records import Token
    from perseid.worker.dead_letters.poison import Sieve

LETTERS = "letters"


@dataclass(frozen=True)
class EpochResult:
    """The outputs of one epoch of one partition by name; without columns if nothing was emitted.

    `letters`: the rows on which a bisecting operator raised
    (`perseid.worker.dead_letters.refused`), and those that it writes for others.
    """

    outputs: dict[str, pa.Table]
    retained: bool
    letters: pa.Table | None = None
    changed_bytes: int = 0  # size of the state's delta

    @property
    def output(self) -> pa.Table:
        """The main output."""
        return self.outputs[MAIN]


class PartitionState:
    """See the module's docstring. Not thread safe: one task at a time in one process."""

    def __init__(
        self,
        operator: Operator,
        live: dict[str, Primitive],
        log: StateLog,
        sieve: Sieve | None = None,
        *,
        feeds_back: Collection[str] = (),
        accepts: Callable[[Emitter], None] | None = None,
        at_once: Callable[[int, int], bool] = at_once,
    ) -> None:
        self.operator = operator
        self.sieve = sieve
        self.feeds_back = feeds_back  # outputs that the next epoch reads (`feedback`)
        self.accepts = accepts  # raises for emitted rows that a sink cannot write
        self.at_once = at_once
        self.live = live
        self.log = log
        self.epoch: int | None = None  # epoch of the clean resident state; None: no state, or dirty
        self._delta_bytes = 0  # deltas since the last checkpoint, as far as this process knows

    @property
    def rows(self) -> int:
        """Rows of all primitives of the resident state."""
        return sum(primitive.rows for primitive in self.live.values())

    @property
    def size_bytes(self) -> int:
        """The size of the state, as its primitives estimate it."""
        return sum(primitive.size_bytes for primitive in self.live.values())

    def run(
        self,
        token: Token,
        token_offset: int,
        generation: int,
        inputs: dict[str, pa.Table],
        out: Emitter,
        others: pa.Table | None = None,
    ) -> EpochResult:
        """The outputs of the token's epoch, processed now or retained from an earlier attempt.

        `others`: dead letters that come with the inputs.
        """
        held = self._held(token.epoch, token_offset)
        if held is not None:
            return self._returned(held)
        letters = refused.joined(others, self._process(token, inputs, out))
        outputs = out.tables()
        sections: dict[str, Any] = {}
        retained: dict[str, Any] = {}
        for name, table in outputs.items():
            is_state = not table.num_rows or name in self.feeds_back
            (sections if is_state else retained)[section_of(name)] = ipc_bytes(table)
        if letters is not None:
            retained[LETTERS] = ipc_bytes(letters)
        for name, primitive in self.live.items():
            delta = primitive.delta()
            if delta is not None:
                sections[STATE + name] = ipc_bytes(delta)
        with mended_by_a_restore():
            entry = self.log.append(token.epoch, generation, token_offset, sections, retained)
        if entry.found:  # another attempt of this task was faster: its file is the epoch
            self.bring_to(token.epoch)
            return self._returned(entry)
        for primitive in self.live.values():
            primitive.commit()
        self.epoch = token.epoch
        changed_bytes = _changed_bytes(sections)
        self._delta_bytes += changed_bytes
        return EpochResult(outputs, False, letters, changed_bytes)

    def _process(self, token: Token, inputs: dict[str, pa.Table], out: Emitter) -> pa.Table | None:
        """Steps 2 to 4; returns the dead letters, None unless the operator bisects."""
        self.bring_to(token.epoch - 1)

        def attempt(rows: dict[str, pa.Table]) -> None:
            if self.epoch is None:  # not the first attempt
                out.tables()  # drops the rows of the earlier attempt
                for primitive in self.live.values():
                    primitive.rollback()
            self.epoch = None
            call(self.operator, token, rows, out, self.live)
            if self.accepts is not None:
                self.accepts(out)

        return guarded(attempt, inputs, self.sieve)

    def copy_at_once(self, epoch: int) -> StateCopy | None:
        """The state of `epoch` for a checkpoint, if copying costs less than merging its deltas.

        None also when this process does not have the state of `epoch`.
        """
        delta_bytes, self._delta_bytes = self._delta_bytes, 0
        if self.epoch != epoch or not self.at_once(self.size_bytes, delta_bytes):
            return None
        emitted: dict[str, Any] = {}
        if self.feeds_back:
            with mended_by_a_restore():
                last = self.log.entry(epoch).sections
            emitted = {name: last[name] for name in map(section_of, self.feeds_back)}
        return StateCopy({name: p.snapshot() for name, p in self.live.items()}, emitted)

    def ordered(
        self, job: str, generation: int, epoch: int, token_offset: int,
        base: tuple[str, int] | None,
    ) -> tuple[PartOrder, StateCopy | None]:  # fmt: skip
        """`part_order`, and a copy of the state if it is copied: then the part has no base."""
        copy = self.copy_at_once(epoch)
        part_base = base if copy is None else None
        return self.part_order(job, generation, epoch, token_offset, part_base), copy

    def part_order(
        self, job: str, generation: int, epoch: int, token_offset: int,
        base: tuple[str, int] | None,
    ) -> PartOrder:  # fmt: skip
        """The order for the checkpoint part of `epoch`."""
        return PartOrder(
            job, self.log.identity, self.log.directory, generation, epoch, token_offset, base,
            {name: primitive.schema() for name, primitive in self.live.items()},
            tuple(map(section_of, self.feeds_back)),
        )  # fmt: skip

    def check_retained(self, base_epoch: int) -> None:
        """PermanentError when the output of the last epoch does not match what the class declares.

        This happens when a revision with other columns must complete an epoch that this partition
        has done under the previous revision. Checked before any other partition logs rows of the
        new columns.
        """
        if self.epoch is None or self.epoch <= base_epoch:
            return  # epochs after a switch read no output of the old revision
        with mended_by_a_restore():
            entry = self.log.find(self.epoch)
            if entry is None:
                return
            sections = entry.sections | (self.log.outputs(entry) or {})
        declared = outputs_of(type(self.operator))
        for name, section in emitted(sections).items():
            columns, found = declared.get(output_of(name)), ipc_table(section).schema
            if columns is not None and len(found):
                check_columns(f"{who(self.operator)}, output {name}", columns, found)

    def bring_to(self, epoch: int) -> None:
        """Makes the resident state that of `epoch`; RetryableError when the log lacks it."""
        if self.epoch == epoch:
            return
        if self.epoch is not None and self.epoch < epoch and self._catch_up(self.epoch, epoch):
            return
        self.epoch = None
        with mended_by_a_restore():
            base, entries = self.log.load(epoch)
        reached = entries[-1].header.epoch if entries else base.header.epoch if base else None
        if base is None or reached != epoch:
            raise RetryableError(
                f"the state log of {type(self.operator).__name__} partition "
                f"{self.operator.partition} reaches epoch {reached}, and epoch {epoch} is "
                "needed: it has to be restored"
            )
        tables = tables_of(base.sections)
        refuse_unlike(self.operator, self.live, tables)
        for name, primitive in self.live.items():
            table = tables.get(name)  # None: a primitive that a newer revision has added
            primitive.restore(table if table is not None else primitive.fresh().snapshot())
        self._apply(entries)
        self.epoch = epoch

    def _catch_up(self, start: int, end: int) -> bool:
        """Applies the deltas (start, end]; False when one is gone and the log must be loaded."""
        try:
            entries = [self.log.entry(epoch) for epoch in range(start + 1, end + 1)]
        except DamagedFile:
            return False
        self.epoch = None
        self._apply(entries)
        self.epoch = end
        return True

    def _apply(self, entries: list[LogEntry]) -> None:
        self._delta_bytes += sum(_changed_bytes(entry.sections) for entry in entries)
        for name, primitive in self.live.items():
            sections = [entry.sections.get(STATE + name) for entry in entries]
            primitive.apply_all([ipc_table(s) for s in sections if s is not None])

    def _held(self, epoch: int, token_offset: int) -> LogEntry | None:
        """The log's entry of `epoch`; discards an entry of a rolled-back token."""
        with mended_by_a_restore():
            entry = self.log.find(epoch)
        if entry is None:
            return None
        if entry.header.token_offset != token_offset:
            self.log.discard_from(epoch)
            self.epoch = None
            return None
        return entry

    def _returned(self, entry: LogEntry) -> EpochResult:
        """The outputs of an epoch that the log holds."""
        with mended_by_a_restore():
            apart = self.log.outputs(entry)
        if apart is None:
            raise RetryableError(
                f"the state log {self.log.directory} has epoch {entry.header.epoch} without its "
                f"outputs{TO_RESTORE}"
            )
        sections = entry.sections | apart
        letters = sections.get(LETTERS)
        found = ipc_table(letters) if letters is not None else None
        outputs = {output_of(name): ipc_table(s) for name, s in emitted(sections).items()}
        return EpochResult(outputs, True, found, _changed_bytes(sections))


@contextmanager
def mended_by_a_restore() -> Iterator[None]:
    """Makes a damaged file of the log a transient error: the job restores and does not stop.

    The next life checks all files first and leaves out damaged ones (`StateLog.repair`).
    """
    try:
        yield
    except DamagedFile as error:
        raise RetryableError(f"{error}{TO_RESTORE}") from error


def section_of(output: str) -> str:
    """The log entry's section for rows emitted to `output`."""
    return OUT if output == MAIN else f"{OUT}.{output}"


def _changed_bytes(sections: Mapping[str, Any]) -> int:
    return sum(len(data) for name, data in sections.items() if name.startswith(STATE))
