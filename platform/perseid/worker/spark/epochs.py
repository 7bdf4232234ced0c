"""Runs epochs on Spark: one physical plan, made once, for every epoch of a fragment.

Analysing and planning an epoch's DataFrame costs as much as running a small epoch. So the physical
plan is kept for each number of source tasks. An epoch with shuffles runs a clone of it: a clone has
new shuffles, while the plan itself would reuse those of its first run. Another one runs the plan's
own RDD, again and again, which saves 5 ms. A Spark local property carries
what differs between epochs to the tasks, and an accumulator brings their reports back: Spark takes
those of successful attempts only, and of several attempts of one task the last one's counts.

A fragment that is one of several runs each level as a Spark job (`levels`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import AccumulatorParam

from perseid.engine.levels import Inbox, run_levels
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import TaskReport
from perseid.errors.texts import text_of
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import Row
from perseid.worker.epoch import flow
from perseid.worker.epoch.memory import MemoryWatch
from perseid.worker.spark import pools, shuffles, sql_errors
from perseid.worker.spark.anchor import Anchor
from perseid.worker.spark.frames import EpochFrames
from perseid.worker.spark.levels import SparkLevels, refuse_unfit
from perseid.worker.spark.stages import EPOCH_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

NO_EPOCH = -1


class Merging(AccumulatorParam[TaskReport]):
    """Merges the reports of tasks, in a Python process of Spark and in the driver."""

    def zero(self, value: TaskReport) -> TaskReport:
        return TaskReport(NO_EPOCH)

    def addInPlace(self, value1: TaskReport, value2: TaskReport) -> TaskReport:
        return value1.merged(value2)


@dataclass(frozen=True, slots=True)
class _Plan:
    jvm: Any
    shuffles: list[shuffles.Path]


class EpochRunner:
    """Runs epoch orders of one fragment, one at a time, in the calling thread."""

    def __init__(self, spark: SparkSession, context: FragmentContext) -> None:
        refuse_unfit(context)
        self.spark = spark
        self.context = context
        self.memory = MemoryWatch(flow.spec_of(context.job_folder), context.layout)
        self.reports = spark.sparkContext.accumulator(TaskReport(NO_EPOCH), Merging())
        self.anchor = None if context.lanes else Anchor(spark)
        anchored = self.anchor.frame if self.anchor is not None else None
        self.frames = EpochFrames(spark, context, self.reports, anchored)
        self._plans: dict[tuple[int, bool], _Plan] = {}
        self._ran: tuple[Any, list[shuffles.Path]] | None = None
        self._levels = SparkLevels(self.frames)
        self._inbox: Inbox[list[Row]] | None = None
        if context.split is not None:
            self.frames.pools = pools.of_worker.take()

    def begin(self, inbox: Inbox[list[Row]], folder: Path) -> None:
        """Before the first epoch of a fragment with a split. `folder`: for the rows of a level."""
        self._inbox, self._levels.folder = inbox, folder

    def prepare(self) -> None:
        """On a local master, makes the plan of a small epoch, which is usually the first to run."""
        if self.context.split is not None:
            self._levels.prepare()
        elif self.context.lanes:
            self._plan(1, not self.context.one_task_each)
            self.frames.release()

    def run(self, order: EpochOrder, record: bytes) -> TaskReport:
        """Runs one epoch to completion; the merged reports of its tasks.

        `record`: the order's token, as the token log has it. Call `clean` afterwards, which deletes
        the shuffle files.
        """
        if self.context.split is not None:
            assert self._inbox is not None, "`begin` was called"
            self.spark.sparkContext.setLocalProperty(EPOCH_PROPERTY, order.encode(record))
            return run_levels(order, self.context.layout, self._inbox, self._levels)
        single_task = self.context.is_single_task(order.token)
        whole = single_task and self.frames.is_whole
        splits = 1 if whole else max(1, len(order.token.splits))
        self.spark.sparkContext.setLocalProperty(EPOCH_PROPERTY, order.encode(record))
        self.reports.value = TaskReport(order.token.epoch)  # an earlier run proves nothing
        try:
            plan = self._plan(splits, single_task)
            self._execute(plan, order.token.epoch)
        finally:
            self.frames.release()
        return self.reports.value

    def clean(self) -> None:
        """Deletes the last epoch's shuffle files; its results are unreadable afterwards."""
        if self._ran is not None:
            shuffles.delete(self.spark, *self._ran)
            self._ran = None

    def close(self) -> None:
        """Deletes the files of an epoch that failed or was aborted; raises nothing."""
        if self.context.split is not None:
            pools.of_worker.release(self.frames.pools)
        self.reports.value = TaskReport(NO_EPOCH)  # Spark keeps accumulators until it ends
        try:
            self.clean()
        except Exception as error:  # Spark itself may have ended
            log.warning("shuffle files stay until this worker's end: %s", error)

    def _execute(self, plan: _Plan, epoch: int) -> None:
        try:
            if plan.shuffles:
                clone = plan.jvm.clone()
                self._ran = (clone, plan.shuffles)
                clone.executeCollectPublic()
            else:  # nothing is left of an earlier run
                plan.jvm.execute().count()
        except Exception as error:
            operators = self.frames.spec.operators
            queries = {name: o.sql for name, o in operators.items() if o.sql is not None}
            raised = sql_errors.on_data(text_of(error), queries, epoch, self.context.token)
            if raised is None:
                raise
            raise raised from None  # Spark's message quotes the record

    def _plan(self, splits: int, single_task: bool) -> _Plan:
        """The physical plan for `splits` source tasks; not reused when it persists frames."""
        if (splits, single_task) not in self._plans:
            frame = self.frames.build(splits, single_task=single_task)
            jvm = frame._jdf.queryExecution().executedPlan()
            plan = _Plan(jvm, shuffles.paths(jvm, cached=self.anchor is None))
            if self.frames.persisted:
                return plan
            self._plans[splits, single_task] = plan
        return self._plans[splits, single_task]
