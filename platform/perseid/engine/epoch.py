"""One level of an epoch in one process: the steps of its operator partitions, in their order.

1. Damage that an upload found ends the fragment's life; orders of dead processes are taken over.
2. Of each partition: its rows become tables. A keyed operator runs, unless its state log has the
   epoch: the log is the commit point. Then what a complete checkpoint covers is dropped from it.
3. Its outputs, dead letters and ledger record begin to be committed in one transaction. The next
   partition runs meanwhile.
4. Of each partition, once its transaction is committed: the checkpoint's part is ordered, then its
   outputs become rows for the following levels, and it reports.

A muted order, a replica's, has no transaction and no checkpoint part: what step 3 would commit is
reported, to be compared with what the primary commits. In the place of a part, the state log is
folded: it grows without end if no snapshot of it is made.

A task that dies, or fails, runs again from step 1 in some process: log and ledger have the epoch or
not. Nothing of it reaches the next level before step 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple

from perseid.engine.ports import R
from perseid.engine.task_report import PartitionReport, StateSize, TaskReport
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.model.layout import DEAD_LETTERS, has_letters, written_streams
from perseid.jobs.model.spec import MAIN, output_of, producer
from perseid.jobs.operator import Emitter

if TYPE_CHECKING:
    import pyarrow as pa

    from perseid.engine.order import EpochOrder
    from perseid.engine.ports import Executor, Result, Sink, State, Submit
    from perseid.engine.resume import Restored
    from perseid.engine.task_report import Made
    from perseid.jobs.model.layout import Layout, Task
    from perseid.jobs.model.spec import JobSpec
    from perseid.topics.transactions import SinkBatch

Outputs = Mapping[str, "pa.Table"]


class Committed(NamedTuple):
    """The end of step 3. `made`: of a muted order, which has sent nothing."""

    sent: int = 0
    ms: int = 0
    made: tuple[Made, ...] | None = None


class Partitions(Generic[R]):
    """The operator partitions of one fragment that this process has run, with state and sinks."""

    def __init__(self, executor: Executor[R]) -> None:
        self.executor = executor
        self.states: dict[int, State] = {}  # by gid, as all below
        self.sinks: dict[int, Sink] = {}
        self._collected: dict[int, int] = {}  # the checkpoint's epoch

    def state(self, task: Task) -> State:
        """The resident state of `task`, empty until `bring_to` is called."""
        if task.gid not in self.states:
            self.states[task.gid] = self.executor.new_state(task)
        return self.states[task.gid]

    def sink(self, task: Task) -> Sink:
        if task.gid not in self.sinks:
            assert task.ledger is not None, f"{task.label} feeds no sink"
            self.sinks[task.gid] = self.executor.new_sink(task)
        return self.sinks[task.gid]

    def run(self, order: EpochOrder, rows: list[R], level: int) -> tuple[list[R], TaskReport]:
        """One task: takes rows of `level`, returns rows for the following levels.

        Rows for other levels are passed on.
        """
        executor = self.executor
        executor.begin(order)
        tasks = {task.gid: task for task in executor.layout.level(level)}
        found = [row for row in rows if row.target not in tasks]
        reports: dict[int, PartitionReport] = {}
        with executor.commits() as submit:
            committing = []
            for gid in sorted({row.target for row in rows if row.target in tasks}):
                mine = [row for row in rows if row.target == gid]
                committing.append((tasks[gid], self._run(order, tasks[gid], mine, submit)))
            for task, finish in committing:
                with executor.about(task, order):
                    made, reports[task.gid] = finish()
                found += made
        return found, TaskReport(order.token.epoch, partitions=reports)

    def load(self, task: Task, found: Restored, base_epoch: int) -> Restored:
        """Loads what a restore has put into the task's log; `found` with the state's size."""
        state = self.state(task)
        state.epoch = None
        state.bring_to(found.epoch)
        state.check_retained(base_epoch)
        return replace(found, rows=state.rows, bytes=state.size_bytes)

    def _run(
        self, order: EpochOrder, task: Task, rows: list[R], submit: Submit
    ) -> Callable[[], tuple[list[R], PartitionReport]]:
        """Steps 2 and 3 of one partition; the returned function is step 4."""
        executor = self.executor
        with executor.about(task, order):
            started_s = executor.now_s()
            outputs = executor.tables(task, order, input_names(executor.spec, task), rows)
            letters = outputs.pop(DEAD_LETTERS, None)  # not the operator's own, but it writes them
            size = None
            if task.stateful:
                outputs, letters, size = self._process(order, task, outputs, letters)
            elif task.operator == DEAD_LETTERS:
                letters = outputs.pop(MAIN)
            report = PartitionReport(
                process_ms=self._ms_since(started_s),
                dead_letters=executor.refusals(letters) if letters is not None else 0,
                state=size,
            )
            committed: Callable[[], Committed] = Committed
            if task.ledger is not None:
                sink = self.sink(task)  # made here, since making one is not thread safe
                committed = submit(partial(self._commit, order, task, outputs, letters, sink))
        return partial(self._finish, order, task, outputs, report, committed)

    def _process(
        self, order: EpochOrder, task: Task, tables: dict[str, pa.Table], others: pa.Table | None
    ) -> tuple[dict[str, pa.Table], pa.Table | None, StateSize]:
        """Outputs, dead letters and the size of the state."""
        state = self.state(task)
        result = process(state, task.operator, order, tables, others)
        self._collect(order, task, state)
        size = StateSize(state.size_bytes, state.rows, result.changed_bytes)
        return result.outputs, result.letters, size

    def _collect(self, order: EpochOrder, task: Task, state: State) -> None:
        """Once for each complete checkpoint."""
        epoch = order.collect_epoch
        if epoch is None or self._collected.get(task.gid) == epoch:
            return
        self.executor.collect(task, state.log, epoch)
        if epoch > self.executor.base_epoch:  # every kept checkpoint has this layout
            self.executor.forget_layouts()
        self._collected[task.gid] = epoch

    def _commit(
        self, order: EpochOrder, task: Task, outputs: Outputs, letters: pa.Table | None, sink: Sink
    ) -> Committed:
        """Runs one at a time for each operator partition."""
        started_s = self.executor.now_s()
        made = list(batches(self.executor, order, task, outputs, letters))
        epoch = order.token.epoch
        if order.muted:
            found = sink.compare(epoch, made)
            return Committed(ms=self._ms_since(started_s), made=found)
        sink.commit(
            epoch, order.token_offset, order.generation, made, checkpoint=order.token.checkpoint
        )
        return Committed(sum(len(batch.values) for batch in made), self._ms_since(started_s))

    def _finish(
        self, order: EpochOrder, task: Task, outputs: Outputs, report: PartitionReport,
        committed: Callable[[], Committed],
    ) -> tuple[list[R], PartitionReport]:  # fmt: skip
        sent, commit_ms, made = committed()
        if task.stateful and order.token.checkpoint:
            part, copy = self.state(task).ordered(
                self.executor.job, order.generation, order.token.epoch,
                order.token_offset, order.base,
            )  # fmt: skip
            # Last of all: the upload that it starts then delays no other partition.
            if order.muted:
                self.executor.fold(part, copy)
            else:
                self.executor.upload(replace(part, final=order.token.final), copy)
        rows = list(self.executor.downstream(task, order, outputs)) if task.stateful else []
        return rows, replace(report, sent=sent, commit_ms=commit_ms, made=made)

    def _ms_since(self, started_s: float) -> int:
        return round((self.executor.now_s() - started_s) * 1000)


def process(
    state: State,
    operator: str,
    order: EpochOrder,
    tables: dict[str, pa.Table],
    others: pa.Table | None = None,
) -> Result:
    """A keyed operator's epoch, processed now or retained from an earlier attempt.

    `others`: dead letters that come with the inputs.
    """
    kind = type(state.operator)
    out = Emitter(operator, kind.output, kind.outputs)
    return state.run(order.token, order.token_offset, order.logged_as, tables, out, others)


def input_names(spec: JobSpec, task: Task) -> tuple[str, ...]:
    """The inputs of `task`; those of a writer are the outputs that it writes.

    A keyed operator that bisects has a last input, for dead letters of rows that were to reach it.
    """
    if task.stateful:
        operator = spec.operators[task.operator]
        return (*operator.inputs, *([DEAD_LETTERS] if has_letters(operator) else []))
    return tuple(map(output_of, written_streams(spec, task.operator))) or (MAIN,)


def batches(
    executor: Executor[R],
    order: EpochOrder,
    task: Task,
    outputs: Outputs,
    letters: pa.Table | None,
) -> Iterator[SinkBatch]:
    """What `task` writes in the epoch's transaction: dead letters, then its outputs by sink.

    PermanentError when there are dead letters and no topic for them.
    """
    if letters is not None and letters.num_rows:
        topic = executor.spec.errors.deadletter_topic
        if topic is None:
            raise PermanentError(
                f"{task.label} has dead letters of epoch {order.token.epoch}, which an earlier "
                "revision kept, and this one has no topic for them; apply it with `errors: "
                "{deadletterqueue: {topic}}`"
            )
        yield executor.letter_batch(order, topic, letters)
    for sink in executor.spec.sinks.values():
        if producer(sink.input) == task.operator:
            rows = outputs[output_of(sink.input)]
            if rows.num_rows:
                yield executor.batch(task, order, sink, rows)


def complete(job: str, layout: Layout, epoch: int, found: TaskReport) -> TaskReport:
    """`found`; RetryableError unless every operator partition has reported the epoch.

    An epoch reported done without one of its commits would lose data silently.
    """
    reported = found.partitions if found.epoch == epoch else {}
    missing = [task.label for task in layout.tasks if task.gid not in reported]
    if missing:
        raise RetryableError(
            f"epoch {epoch} of job {job}: operator partitions {', '.join(missing)} did not "
            "report, so the epoch is run again"
        )
    return found
