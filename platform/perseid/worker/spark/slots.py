"""Spark jobs that run in the processes of a fragment's stateful tasks, outside its epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid import logs
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.failures import stage
from perseid.worker.spark.frames import STATE_POOL, in_pool

if TYPE_CHECKING:
    from pyspark.sql import Row

    from perseid.worker.spark.epochs import EpochRunner

COLUMN = "found"
Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def width(context: FragmentContext, level: int) -> int:
    """The width of single-task epochs: the first epoch is one unless there is a large backlog."""
    return context.width(level, single_task=context.lanes > 0)


def on_slots(runner: EpochRunner, count: int, work: Work) -> list[Row]:
    """Runs `work` for each slot in the process that has its state; the rows `found` it returns."""
    spark = runner.spark
    slots = spark.range(0, count, 1, count).selectExpr("cast(id as int) as slot")
    pool = (runner.frames.pools + STATE_POOL, runner.context.environment)
    if runner.anchor is None:
        with in_pool(spark, *pool):
            frame = slots.mapInArrow(work, f"{COLUMN} binary")
    else:
        groups = slots.groupBy("slot").cogroup(runner.anchor.frame(count).groupBy("slot"))
        with in_pool(spark, *pool):
            frame = groups.applyInArrow(partial(_anchored, work), f"{COLUMN} binary")
    return frame.collect()


def everywhere(runner: EpochRunner, call: Callable[[FragmentContext], None]) -> None:
    """Calls `call` in a process of every slot, level by level."""
    for level in sorted({task.level for task in runner.context.layout.stateful_tasks}):
        count = width(runner.context, level)
        on_slots(runner, count, partial(called, runner.context, call))


@stage
def called(
    context: FragmentContext,
    call: Callable[[FragmentContext], None],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The executor's part of `everywhere`."""
    logs.bind(job=context.job, generation=context.generation)
    for _ in batches:
        call(context)
    yield pa.RecordBatch.from_arrays([pa.array([], pa.binary())], names=[COLUMN])


def _anchored(work: Work, slots: pa.Table, _anchor: pa.Table) -> pa.Table:
    batches = list(work(slots.to_batches()))
    return pa.Table.from_batches(batches, schema=pa.schema([(COLUMN, pa.binary())]))
