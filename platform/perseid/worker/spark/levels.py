"""The levels of an epoch on Spark, for a fragment whose rows come and go by buffer topics.

Each level is a Spark job without a shuffle. Its physical plan is made once for each number of
tasks, and its RDD runs again for every epoch. Task i of a level is in the process of index i, which
has the state of the operator partitions of slot i, as in the stages of other fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.engine.task_report import TaskReport
from perseid.errors import PermanentError
from perseid.worker.dataflow import level_rows
from perseid.worker.dataflow.graph import stage_slots
from perseid.worker.epoch import flow
from perseid.worker.spark.stages import ROWS_PROPERTY

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.worker.dataflow.context import FragmentContext
    from perseid.worker.dataflow.edges import Row
    from perseid.worker.spark.frames import EpochFrames


def refuse_unfit(context: FragmentContext) -> None:
    """PermanentError when a job with fragments has what only one fragment can run."""
    if context.split is None:
        return
    what = f"job {context.job} has `placement: {{spread: N}}`"
    queries = [n for n, o in flow.spec_of(context.job_folder).operators.items() if o.sql]
    if queries:
        raise PermanentError(
            f"{what} and the SQL operator {queries[0]}, whose tasks Spark numbers, so that what "
            "they send cannot be counted: write it in Python, or write `spread: 1`"
        )
    if flow.graph_of(context).feedback:
        raise PermanentError(f"{what} and feedback, which is not built: write `spread: 1`")


class SparkLevels:
    """`perseid.engine.levels.LevelTasks`. `folder`: for the rows of a level, on this host."""

    def __init__(self, frames: EpochFrames) -> None:
        self._frames, self._context = frames, frames.context
        self.folder = Path()
        self._plans: dict[tuple[int, int], Any] = {}  # Spark's, by level and number of tasks

    def prepare(self) -> None:
        """Makes the plans of a small epoch."""
        for level in {0, *(task.level for task in self._context.layout.tasks)}:
            self._plan(level, 1)

    def read(self, order: EpochOrder) -> TaskReport:
        if not self._frames.plans:  # all sources are of other fragments
            return TaskReport(order.token.epoch)
        return self._run(order, 0, 1)

    def run(
        self, order: EpochOrder, level: int, gids: Sequence[int], rows: Sequence[Row]
    ) -> TaskReport:
        context = self._context
        width = context.width(level, single_task=context.is_single_task(order.token))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._frames.spark.sparkContext.setLocalProperty(ROWS_PROPERTY, str(self.folder))
        try:
            level_rows.write(self.folder, rows, stage_slots(context.layout, level, width), width)
            return self._run(order, level, width)
        finally:
            level_rows.delete(self.folder, width)

    def _run(self, order: EpochOrder, level: int, width: int) -> TaskReport:
        reports = self._frames.reports
        reports.value = TaskReport(order.token.epoch)  # an earlier run proves nothing
        self._plan(level, width).execute().count()
        return reports.value

    def _plan(self, level: int, width: int) -> Any:
        if (level, width) not in self._plans:
            frame = self._frames.of_level(level, width)
            self._plans[level, width] = frame._jdf.queryExecution().executedPlan()
        return self._plans[level, width]
