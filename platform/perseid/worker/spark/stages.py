"""The functions that Spark runs in its Python workers: the stages of an epoch.

They are sent once per fragment (`functools.partial` over a FragmentContext). A Spark local property
carries the epoch to each task, so the same physical plan serves every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid import logs
from perseid.engine import levels
from perseid.engine.order import EpochOrder, decode_order
from perseid.engine.task_report import TaskReport
from perseid.worker.dataflow import level_rows
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import Row, check_columns, from_batches, size_bytes, to_batches
from perseid.worker.dataflow.failures import named, stage
from perseid.worker.dataflow.graph import stage_slots
from perseid.worker.dataflow.source import (
    Ranges,
    SourcePlan,
    SplitCount,
    compare,
    ranges,
    read_split,
)
from perseid.worker.dead_letters import refused
from perseid.worker.epoch import feedback, flow, tasks
from perseid.worker.epoch.outbox import outbox_of
from perseid.worker.process import spare_memory
from perseid.worker.spark import spark_types

if TYPE_CHECKING:
    from pyspark import Accumulator, TaskContext

EPOCH_PROPERTY = "perseid.epoch"  # Spark local property that carries an EpochOrder to the tasks
ROWS_PROPERTY = "perseid.rows"  # another one: the folder with the rows of a level
PLACES_MAX = 3  # of source partitions in one message
REFUSED = "__refused"  # column of a typed source frame: an IPC blob of refused records, else null

Batches = Iterable[pa.RecordBatch]


def begun(context: FragmentContext) -> EpochOrder:
    """The order of this task; the process's log entries carry its epoch from now on."""
    order = _current_order()
    logs.bind(job=context.job, generation=context.generation, epoch=order.token.epoch)
    return order


@stage
def read_sources(
    context: FragmentContext,
    plans: tuple[SourcePlan, ...],
    reports: Accumulator[TaskReport],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """Level 0 without SQL on a source: takes splits, yields rows for level 1."""
    order = begun(context)
    for split in _numbers(batches):
        rows = _split_rows(context, plans, reports, order, split)
        yield from _batches(context, order, rows, 1)


def _split_rows(
    context: FragmentContext,
    plans: tuple[SourcePlan, ...],
    reports: Accumulator[TaskReport],
    order: EpochOrder,
    split: int,
) -> list[Row]:
    rows: list[Row] = []
    reader = ranges(context.brokers)
    for plan in (plan for plan in plans if plan.is_in(split)):
        table, count = read_whole(reader, plan, order, split)
        reports.add(TaskReport(order.token.epoch, {(split, plan.name): count.read()}))
        rows += source_rows(context, order, plan, split, table, count)
    return rows


def read_whole(
    reader: Ranges, plan: SourcePlan, order: EpochOrder, split: int
) -> tuple[pa.Table, SplitCount]:
    """All that the split has of a source, compared with what was read of it before."""
    count = SplitCount()
    with named(_place(plan, order, split)):
        tables = list(read_split(reader, plan, order.token, split, count))
        compare(plan, order.token, split, count)
    return pa.concat_tables(tables) if tables else plan.schema().empty_table(), count


def source_rows(
    context: FragmentContext,
    order: EpochOrder,
    plan: SourcePlan,
    split: int,
    table: pa.Table,
    count: SplitCount,
) -> Iterator[Row]:
    """What `read_whole` has read, and its dead letters, as rows for level 1."""
    bad = refused.to_table(count.refused) if count.refused else refused.NONE
    yield from flow.letter_rows(context, bad, plan.name, split)
    yield from flow.rows_of(
        context, order.token, plan.name, table, split,
        places=count.places, metadata=plan.metadata,
    )  # fmt: skip


@stage
def read_feedback(context: FragmentContext, batches: Batches) -> Iterator[pa.RecordBatch]:
    """The output of the previous epoch, for the consumers of feedback edges."""
    order = begun(context)
    for _ in batches:
        yield from _batches(context, order, list(feedback_rows(context, order)), 1)


def feedback_rows(context: FragmentContext, order: EpochOrder) -> Iterator[Row]:
    """What the previous epoch fed back, as rows for the levels of its readers."""
    return feedback.rows(
        flow.graph_of(context), context.layout, order.token,
        lambda task: tasks.log_of(context, task), lambda name: flow.columns_of(context, name),
    )  # fmt: skip


@stage
def read_typed(
    context: FragmentContext, plan: SourcePlan, reports: Accumulator[TaskReport], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """A source that SQL reads: takes splits, yields its columns (refused records in a column)."""
    order = begun(context)
    schema = typed_schema(plan)
    for split in _numbers(batches):
        count = SplitCount()
        with named(_place(plan, order, split)):
            for table in read_split(ranges(context.brokers), plan, order.token, split, count):
                yield from _typed(table, schema).to_batches()
            _finish(plan, order, split, count, reports)
        if count.refused:
            yield _refused_batch(count.refused, schema)


@stage
def encode_typed(
    context: FragmentContext,
    node: str,
    columns: pa.Schema,
    metadata: tuple[str, ...],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """The output of an SQL operator, or of a source, as rows for the next stages.

    `columns`: the node's columns; undoes changes of their types by Spark.
    """
    order = begun(context)
    found = list(batches)
    table = _cast(pa.Table.from_batches(found), columns) if found else columns.empty_table()
    level = flow.graph_of(context).levels[node]
    rows = list(
        flow.rows_of(context, order.token, node, table, _index(), sql=False, metadata=metadata)
    )
    yield from _batches(context, order, rows, level + 1)


@stage
def encode_refused(
    context: FragmentContext, source: str, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """The refused records of a typed source frame as rows for the dead-letter writer."""
    from perseid.state.primitives.arrow import ipc_table

    tables = [ipc_table(v.as_buffer()) for b in batches for v in b.column(0)]
    rows = list(flow.letter_rows(context, refused.joined(*tables), source, _index()))
    yield from _batches(context, begun(context), rows, 1)


@stage
def decode_rows(
    _context: FragmentContext, name: str, columns: pa.Schema, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Decodes rows of a Python operator for the SQL operator `name`; it declared the columns."""
    from perseid.state.primitives.arrow import ipc_table

    ordered = sorted(from_batches(batches), key=lambda r: (r.input, r.origin, r.chunk))
    for row in ordered:
        if len(row.blob):
            table = ipc_table(row.blob)
            check_columns(name, columns, table.schema)
            yield from _cast(table, spark_types.into(columns, name)).to_batches()


@stage
def run_level(
    context: FragmentContext, level: int, reports: Accumulator[TaskReport], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """One task of level 1 or above."""
    order = begun(context)
    rows = from_batches(batches)
    spare_memory.of_process().used(size_bytes(rows))
    done, report = tasks.run_rows(context, order, rows, level)
    reports.add(report)
    yield from _batches(context, order, done, level + 1)


@stage
def run_whole(
    context: FragmentContext,
    plans: tuple[SourcePlan, ...],
    reports: Accumulator[TaskReport],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """A single-task epoch without SQL: its rows go from level to level within this process."""
    order = begun(context)
    for _ in batches:
        rows = [
            row
            for split in range(max(1, len(order.token.splits)))
            for row in _split_rows(context, plans, reports, order, split)
        ]
        rows += feedback_rows(context, order)
        for level in range(1, context.layout.levels + 1):
            spare_memory.of_process().used(size_bytes(rows))
            rows, report = tasks.run_rows(context, order, rows, level)
            reports.add(report)
    yield from ()


@stage
def read_and_send(
    context: FragmentContext,
    plans: tuple[SourcePlan, ...],
    reports: Accumulator[TaskReport],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """Level 0 of a fragment with a split: what the split has goes to buffer topics."""
    order = begun(context)
    assert context.split is not None, "the fragment is one of several"
    for _ in batches:
        rows = _split_rows(context, plans, reports, order, context.split)
        spare_memory.of_process().used(size_bytes(rows))
        sent = outbox_of(context).deliver(order, rows)
        reports.add(TaskReport(order.token.epoch, buffered=sent))
    yield from ()


@stage
def run_and_send(
    context: FragmentContext, level: int, reports: Accumulator[TaskReport], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """One task of level 1 or above of such a fragment; the driver has its rows in a file."""
    order = begun(context)
    folder = Path(_property(ROWS_PROPERTY))
    for slot in _numbers(batches):
        rows = level_rows.read(folder, slot)
        spare_memory.of_process().used(size_bytes(rows))
        partitions = tasks.process_of(context).partitions
        reports.add(levels.run_and_send(partitions, order, rows, level, outbox_of(context)))
    yield from ()


def run_anchored(
    context: FragmentContext,
    level: int,
    reports: Accumulator[TaskReport],
    rows: pa.Table,
    _anchor: pa.Table,
) -> pa.Table:
    """Like `run_level`, for a co-group with the anchor, which keeps tasks on their executors."""
    return pa.Table.from_batches(list(run_level(context, level, reports, rows.to_batches())))


def typed_schema(plan: SourcePlan) -> pa.Schema:
    """The columns of a source as Spark takes them."""
    schema = spark_types.into(plan.schema(), f"source {plan.name}")
    return schema.append(pa.field(REFUSED, pa.binary())) if plan.has_letters else schema


def _place(plan: SourcePlan, order: EpochOrder, split: int) -> str:
    """A source and what a task reads of it, for messages."""
    found = order.token.splits[split] if split < len(order.token.splits) else ()
    ranges = [
        f"{r.topic}[{r.partition}] offsets {r.start} to {r.end - 1}"
        for r in found if r.source == plan.name
    ]  # fmt: skip
    more = f" and {len(ranges) - PLACES_MAX} more" if len(ranges) > PLACES_MAX else ""
    read = ", ".join(ranges[:PLACES_MAX]) or "nothing"
    return f"source {plan.name}, epoch {order.token.epoch}, of {read}{more},"


def _finish(
    plan: SourcePlan,
    order: EpochOrder,
    split: int,
    count: SplitCount,
    reports: Accumulator[TaskReport],
) -> None:
    compare(plan, order.token, split, count)
    reports.add(TaskReport(order.token.epoch, {(split, plan.name): count.read()}))


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if REFUSED in schema.names:
        table = table.append_column(REFUSED, pa.nulls(table.num_rows, pa.binary()))
    return _cast(table, schema)


def _cast(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Restores units of time and widths of offsets that Spark does not have."""
    return table if table.schema.equals(columns) else table.cast(columns, safe=False)


def _refused_batch(bad: list[refused.Refused], schema: pa.Schema) -> pa.RecordBatch:
    from perseid.state.primitives.arrow import ipc_bytes

    blob = ipc_bytes(refused.to_table(bad)).to_pybytes()
    columns = [pa.nulls(1, f.type) for f in schema if f.name != REFUSED]
    return pa.RecordBatch.from_arrays([*columns, pa.array([blob], pa.binary())], schema=schema)


def _batches(
    context: FragmentContext, order: EpochOrder, rows: list[Row], level: int
) -> Iterator[pa.RecordBatch]:
    """`rows` as batches for the stage of `level`, which may not exist."""
    width = context.width(level, single_task=context.is_single_task(order.token))
    spare_memory.of_process().used(size_bytes(rows))
    return to_batches(rows, stage_slots(context.layout, level, width), width)


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _index() -> int:
    return _task().partitionId()


def _current_order() -> EpochOrder:
    """The EpochOrder of the Spark task that this process runs."""
    return decode_order(_property(EPOCH_PROPERTY))


def _property(name: str) -> str:
    text = _task().getLocalProperty(name)
    assert text is not None, f"the driver sets the local property {name}"
    return text


def _task() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "stages run in Spark tasks only"
    return context
