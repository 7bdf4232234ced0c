"""Past epochs again in this process, without Spark: seconds less to start, and all can be seen.

The life, the steps of an epoch and what runs in each are those of every audit (`running`). Tasks
run here one after another, and what passes between them stays at hand for the epoch that has run
last. Jobs with SQL operators need Spark, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from perseid.engine.epoch import Partitions
from perseid.engine.task_report import TaskReport
from perseid.errors import PermanentError, RefusedError
from perseid.replay.running import AuditRun, AuditRuntime
from perseid.replay.traces import SourceRows, Trace
from perseid.worker.epoch import flow
from perseid.worker.epoch.tasks import TaskExecutor
from perseid.worker.spark import restoring, stages
from perseid.worker.spark.frames import read_plan

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from perseid.engine.agreement import RestoreOrder
    from perseid.engine.order import EpochOrder
    from perseid.engine.resume import Restored
    from perseid.engine.task_report import Made
    from perseid.jobs.model.layout import Task
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import Deployment, Plan
    from perseid.topics.log import LogReader
    from perseid.topics.transactions import SinkBatch
    from perseid.worker.dataflow.context import FragmentContext
    from perseid.worker.dataflow.edges import Row
    from perseid.worker.dataflow.source import Ranges, SourcePlan


Seen = Callable[[Trace], None]


class _Unsent:
    """`perseid.engine.ports.Sink` that sends nothing: what it would send is made of the trace."""

    def prepare(self) -> None:
        """Nothing: no transactional id is used."""

    def close(self) -> None:
        """Nothing is open."""

    def commit(self, epoch: int, *_of: object, checkpoint: bool) -> object:
        del checkpoint
        raise PermanentError(f"epoch {epoch} is an audit's, which commits nothing")

    def compare(self, _epoch: int, _batches: Sequence[SinkBatch]) -> tuple[Made, ...]:
        return ()


class TracingExecutor(TaskExecutor):
    """`perseid.engine.ports.Executor` that keeps what passes through it. `trace`: the epoch's."""

    trace: Trace

    def new_sink(self, task: Task) -> _Unsent:
        del task
        return _Unsent()

    def tables(
        self, task: Task, order: EpochOrder, names: tuple[str, ...], rows: list[Row]
    ) -> dict[str, pa.Table]:
        self.trace.arrived[task.gid] = rows
        return super().tables(task, order, names, rows)

    def downstream(
        self, task: Task, order: EpochOrder, outputs: Mapping[str, pa.Table]
    ) -> Iterator[Row]:
        self.trace.outputs[task.gid] = outputs
        return super().downstream(task, order, outputs)


class OneProcess:
    """Runs epoch orders of one fragment in this process. `reader`: of the sources."""

    def __init__(self, context: FragmentContext, reader: Ranges) -> None:
        refuse_sql(flow.spec_of(context.job_folder))
        self.context, self._reader = context, reader
        self.executor = TracingExecutor(context)
        self.partitions: Partitions[Row] = Partitions(self.executor)
        self._plans: list[SourcePlan] = []

    def prepare(self) -> None:
        spec = flow.spec_of(self.context.job_folder)
        self._plans = [read_plan(self.context, name, None) for name in spec.sources]

    def run(self, order: EpochOrder, _record: bytes) -> TaskReport:
        context, trace = self.context, Trace(order)
        self.executor.trace = trace
        report = TaskReport(order.token.epoch)
        rows: list[Row] = []
        for split in range(max(1, len(order.token.splits))):
            for plan in (plan for plan in self._plans if plan.is_in(split)):
                table, count = stages.read_whole(self._reader, plan, order, split)
                trace.sources[plan.name, split] = SourceRows(table, count.runs, plan.metadata)
                read = {(split, plan.name): count.read()}
                report = report.merged(TaskReport(order.token.epoch, read))
                rows += stages.source_rows(context, order, plan, split, table, count)
        rows += stages.feedback_rows(context, order)
        for level in range(1, context.layout.levels + 1):
            flow.refuse_undelivered(context, rows)
            rows, found = self.partitions.run(order, rows, level)
            report = report.merged(found)
        return report

    def clean(self) -> None:
        """Nothing: there are no shuffles."""


class OneProcessRuntime(AuditRuntime):
    """`perseid.engine.fragment.Runtime` over `OneProcess`. `seen`: called after each epoch."""

    def __init__(
        self, runner: OneProcess, plan: Plan, tokens: LogReader, topics: object, last: int,
        seen: Seen,
    ) -> None:  # fmt: skip
        super().__init__(
            runner, plan, tokens, topics, last,  # type: ignore[arg-type]
            lambda _order, _done, _context: seen(runner.executor.trace),
        )  # fmt: skip
        self._local = runner

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> list[Restored]:
        context, partitions = self._local.context, self._local.partitions
        tasks = map(context.layout.task, gids)
        return [restoring.restore_one(context, partitions, order, task) for task in tasks]

    def execute(self, order: EpochOrder, record: bytes) -> tuple[TaskReport, int]:
        """The last epoch folds no state log, so that the state before it stays there."""
        if order.token.epoch == self._last:
            order = replace(order, token=replace(order.token, checkpoint=False))
        return super().execute(order, record)


class OneProcessRun(AuditRun):
    """One run of past epochs. `runner`: afterwards, with its state and the last epoch's trace."""

    def __init__(
        self, deployment: Deployment, plan: Plan, last: int, folder: Path, seen: Seen
    ) -> None:
        """`seen`: called after each epoch. The others as in `AuditRun`."""
        super().__init__(None, deployment, plan, last, folder, lambda *_: None)
        self._seen = seen
        self._runner: OneProcess | None = None

    @property
    def runner(self) -> OneProcess:
        assert self._runner is not None, "it has run"
        return self._runner

    def _runtime(
        self, context: FragmentContext, tokens: LogReader, _held: ExitStack
    ) -> AuditRuntime:
        from perseid.worker.dataflow.source import ranges

        self._runner = OneProcess(context, ranges(context.brokers))
        return OneProcessRuntime(
            self._runner, self._plan, tokens, self._topics, self.last, self._seen
        )


def refuse_sql(spec: JobSpec) -> None:
    """RefusedError for a job that only Spark can run."""
    sql = [name for name, operator in spec.operators.items() if operator.sql is not None]
    if sql:
        raise RefusedError(
            f"{spec.name} cannot be explained: operator {', '.join(sql)} is SQL, which hides from "
            "which rows its own come; `perseid replay` audits the epoch as a whole"
        )
