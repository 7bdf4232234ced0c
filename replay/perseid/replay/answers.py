"""The answers about an epoch that has run again: of a record, or of a key."""

from __future__ import annotations

import pdb
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.errors import RefusedError, UsageError
from perseid.jobs.model.layout import is_keyed, written_streams
from perseid.jobs.model.spec import output_of, producer
from perseid.kernels.library import one
from perseid.replay import origins
from perseid.replay.differences import Rows
from perseid.replay.explained import (
    Explained,
    Input,
    Record,
    Through,
    ranges_of,
    rows_of,
    text_of,
)
from perseid.replay.explaining import Lineage
from perseid.replay.narrowing import distinct, members, with_keys
from perseid.worker.dataflow import state_keys
from perseid.worker.dataflow.edges import one_table

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout, Task
    from perseid.jobs.model.spec import JobSpec, SinkSpec
    from perseid.replay.explained import Shown
    from perseid.replay.narrowing import Bools
    from perseid.replay.one_process import OneProcess
    from perseid.replay.origins import Origin, Written
    from perseid.replay.reruns import EpochReruns, State
    from perseid.replay.sink_records import Reader
    from perseid.replay.traces import Trace

STATE_ROWS_MAX = 20  # that are shown of one state
BY_VALUE = (
    "the ledger's checksum could not be compared, since the topic has not kept all records of this "
    "epoch or they are mixed with those of others: the epoch makes an equal record"
)


@dataclass
class Epoch:
    """An epoch that has run again, as it is explained."""

    runner: OneProcess
    spec: JobSpec
    reruns: EpochReruns
    lineage: Lineage

    @property
    def layout(self) -> Layout:
        return self.runner.context.layout

    @property
    def trace(self) -> Trace:
        return self.lineage.trace

    def task(self, operator: str, partition: int) -> Task:
        return next(t for t in self.layout.of(operator) if t.partition == partition)

    def inputs(self, task: Task) -> dict[str, pa.Table]:
        """All rows that a keyed operator partition read, by input."""
        return self.trace.inputs(task.gid, self.spec.operators[task.operator].inputs)

    def outputs(self, task: Task, sink: SinkSpec) -> pa.Table:
        """The rows that `sink` writes of a partition."""
        output = output_of(sink.input)
        if task.stateful:
            return self.trace.outputs[task.gid][output]
        streams = written_streams(self.spec, task.operator)
        found = self.trace.tables(task.gid, streams.index(sink.input)).values()
        return one_table(output, [table for table in found if table.num_columns])


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found of one epoch. `task`: that is explained; `keys`: its, None for all."""

    found: Explained
    task: Task
    keys: pa.Table | None


def of_record(
    epoch: Epoch, found: Written, among: Sequence[Origin], reader: Reader
) -> Answer | None:
    """None if none of these partitions makes the record now."""
    sure, open_ = origins.own(found, among, reader, {
        index: made_of(epoch, epoch.task(origin.operator, origin.partition), found.topic)
        for index, origin in enumerate(among)
    })  # fmt: skip
    notes = () if sure else (BY_VALUE,)
    for origin in sure or open_:
        task = epoch.task(origin.operator, origin.partition)
        for sink in sinks_of(epoch.spec, origin.operator, found.topic):
            rows = epoch.outputs(task, sink)
            mask = epoch.reruns.written_as(task, sink, rows, found.key, found.value)
            if mask.any():
                return _of_rows(epoch, found, task, sink, mask, notes)
    return None


def _of_rows(
    epoch: Epoch, found: Written, task: Task, sink: SinkSpec, mask: Bools,
    notes: tuple[str, ...],
) -> Answer:  # fmt: skip
    lineage, output = epoch.lineage, output_of(sink.input)
    if task.stateful:
        lineage.of_output(task, output, mask)
    else:
        as_record = partial(epoch.reruns.written_as, task, sink, key=found.key)
        lineage.of_written(task, output, partial(as_record, value=found.value))
    record = Record(
        found.topic, found.partition, found.offset, text_of(found.key), text_of(found.value),
        int(mask.sum()),
    )  # fmt: skip
    return _answer(epoch, task, record, notes)


def of_key(epoch: Epoch, text: str, operator: str | None) -> Answer:
    name = named_operator(epoch.spec, operator)
    spec = epoch.spec.operators[name]
    tasks = epoch.layout.of(name)
    tables = [t for task in tasks for t in epoch.inputs(task).values() if t.num_columns]
    types = {
        column: table.schema.field(column).type
        for column in spec.key for table in tables if column in table.column_names
    }  # fmt: skip
    if set(types) != set(spec.key):
        raise RefusedError(
            f"epoch {epoch.trace.order.token.epoch}: operator {name} read no rows, so it has "
            f"none with the key {text[:80]!r}; ask for another epoch"
        )
    key = state_keys.parse(text, types)
    partition = state_keys.partition_of(key, spec.key, len(tasks))
    if partition is None:
        raise UsageError(
            f"--key {text[:80]!r}: expected all key columns of operator {name}: "
            f"{', '.join(spec.key)}"
        )
    task = epoch.task(name, partition)
    keys = pa.table({c: pa.array([key[c].as_py()], key[c].type) for c in spec.key})
    epoch.lineage.of_key(task, keys)
    answer = _answer(epoch, task, None, ())
    found = answer.found
    if not any(found.through[0].rows.values()) and not is_kept(epoch, task, keys):
        raise RefusedError(
            f"epoch {found.epoch} of {found.job}: operator {name} read no row with the key "
            f"{text[:80]!r}, and its state has none: expected a key that it has (`perseid "
            f"state {found.job} {name} --limit 5` shows some), or another epoch"
        )
    return answer


def _answer(epoch: Epoch, task: Task, record: Record | None, notes: tuple[str, ...]) -> Answer:
    lineage, token = epoch.lineage, epoch.trace.order.token
    keys = lineage.steps[0].keys
    before = after = None
    if task.stateful:
        before, after = (
            states_of(epoch, task, epoch.reruns.state(task, after=when), keys)
            for when in (False, True)
        )
    notes += tuple(
        f"operator {name} of epoch {token.epoch - 1} has fed rows back; `--epoch "
        f"{token.epoch - 1}` explains them" for name in sorted(lineage.fed_back)
    )  # fmt: skip
    found = Explained(
        job=epoch.runner.context.job,
        job_uuid="",
        revision="",
        epoch=token.epoch,
        time_ms=token.time_ms,
        operator=task.operator,
        partition=task.partition,
        record=record,
        key=() if keys is None else rows_of(keys.slice(0, STATE_ROWS_MAX)),
        through=tuple(
            Through(s.operator, s.partition, None if s.keys is None else len(s.keys),
                    dict(s.rows), s.how)
            for s in lineage.steps
        ),
        inputs=tuple(
            Input(r.source, r.topic, r.partition, len(r.offsets), ranges_of(r.offsets),
                  rows_of(r.rows))
            for r in lineage.records()
        ),
        before=before,
        after=after,
        base="",
        epochs=0,
        seconds=0.0,
        notes=notes,
    )  # fmt: skip
    return Answer(found, task, keys)


def debug(epoch: Epoch, answer: Answer) -> None:
    """Runs the operator on the rows of the answer's keys, and stops in `process`."""
    task, keys = answer.task, answer.keys
    if not task.stateful:
        raise RefusedError(
            f"--debug: {task.operator} has no key and no state; run it in the harness "
            "(`perseid.testing.operators`) on the rows that are shown without --debug"
        )
    inputs = epoch.inputs(task)
    if keys is not None:
        inputs = {name: with_keys(table, keys) for name, table in inputs.items()}
    epoch.reruns.debug(task, inputs, pdb.Pdb(stdout=sys.stderr))


def sinks_of(spec: JobSpec, operator: str, topic: str) -> list[SinkSpec]:
    """The sinks of a source or operator that write the topic."""
    return [s for s in spec.sinks.values() if s.topic == topic and producer(s.input) == operator]


def made_of(epoch: Epoch, task: Task, topic: str) -> Rows:
    """All records that a partition makes for a topic."""
    parts = []
    for sink in sinks_of(epoch.spec, task.operator, topic):
        rows = epoch.outputs(task, sink)
        if rows.num_rows:
            parts.append(epoch.reruns.written(task, sink, rows))
    keys, values = (
        one(pa.chunked_array([part[column] for part in parts], pa.binary())) for column in (0, 1)
    )
    return Rows(keys, values)


def named_operator(spec: JobSpec, wanted: str | None) -> str:
    """The keyed operator that is asked for; UsageError if there is none, or several to choose."""
    keyed = [name for name, operator in spec.operators.items() if is_keyed(operator)]
    if wanted is None and len(keyed) == 1:
        return keyed[0]
    if wanted in keyed:
        return str(wanted)
    found = "none is named" if wanted is None else f"found {wanted[:80]!r}"
    raise UsageError(
        f"--operator: expected a keyed operator of {spec.name}, "
        f"{' or '.join(keyed) or 'which has none'}; {found}"
    )


def states_of(
    epoch: Epoch, task: Task, state: State, keys: pa.Table | None
) -> dict[str, tuple[Shown, ...]]:
    """Rows of the keys by primitive; of one without such a key, some of all."""
    return {
        name: rows_of(state_rows(epoch, task, name, table, keys).slice(0, STATE_ROWS_MAX))
        for name, table in state.items()
    }


def state_rows(
    epoch: Epoch, task: Task, name: str, table: pa.Table, keys: pa.Table | None
) -> pa.Table:
    """The rows of a primitive that have one of the keys.

    A state key of one column corresponds to an operator key of one column, whatever their names.
    """
    if keys is None or not table.num_rows:
        return table
    own = list(epoch.reruns.state_key(task, name))
    named = keys
    if len(own) == len(keys.column_names) == 1:
        named = keys.rename_columns(own)
    shared = [column for column in named.column_names if column in own]
    if not shared:
        return table
    return table.filter(pa.array(members(table, distinct(named.select(shared)))))


def is_kept(epoch: Epoch, task: Task, keys: pa.Table) -> bool:
    """Whether the state before the epoch has the keys."""
    state = epoch.reruns.state(task, after=False)
    return any(
        epoch.reruns.state_key(task, name) and len(state_rows(epoch, task, name, table, keys))
        for name, table in state.items()
    )


def named_origins(among: Sequence[Origin]) -> str:
    """For messages."""
    return ", ".join(f"epoch {o.epoch} of {o.job}, operator {o.operator}" for o in among[:5])
