"""One operator partition's epoch in a simulated process, as `perseid.worker.epoch.tasks` runs it.

The steps are those of the worker, over the same modules: edges, partition state, state log, sink
session, checkpoint parts. Only Spark, threads and process globals are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from perseid.errors import PerseidError
from perseid.jobs.model.layout import Layout, Task
from perseid.jobs.model.spec import JobSpec, output_of, producer
from perseid.jobs.operator import Emitter
from perseid.records import Plan
from perseid.records.marks import Mark
from perseid.state.durability import blob
from perseid.state.durability.log import (
    StateLog,
    forget_layouts,
    log_directory,
    owner_directory,
    owner_name,
)
from perseid.state.primitives.primitive import bind
from perseid.testing.files import MemoryFiles
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Process, SimulatedClock
from perseid.testing.simulation.ports import (
    SimulatedColumnReader,
    SimulatedLogReader,
    SimulatedLogWriter,
    SimulatedTransactions,
)
from perseid.testing.simulation.world import STATE, World
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import ProgressLog
from perseid.topics.records import PartDone, PartFailed, ProgressRecord
from perseid.topics.transactions import SinkBatch
from perseid.worker.checkpoint import part_orders
from perseid.worker.checkpoint.parts import PartOrder, StateCopy, make
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.acknowledged import report_until_acknowledged
from perseid.worker.dataflow.context import EpochOrder
from perseid.worker.dataflow.edges import Route, Row, deal, inputs
from perseid.worker.dataflow.graph import Graph
from perseid.worker.dataflow.source import SourcePlan, SplitCount, compare, read_split
from perseid.worker.dataflow.task_report import PartitionReport, ReadCount, StateSize, TaskReport
from perseid.worker.epoch import feedback
from perseid.worker.epoch.last_word import Appender
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.recovery.resplit import Share, share_of
from perseid.worker.sink.transaction import SinkIdentity, SinkSession

REPORT_AGAIN_S = 0.5


@dataclass(frozen=True)
class Context:
    """What all tasks of a fragment share."""

    world: World
    files: MemoryFiles
    plan: Plan
    layout: Layout
    incarnation: str
    alive: set[Mark] = field(default_factory=set)  # live Python processes

    @property
    def spec(self) -> JobSpec:
        return self.world.specs[self.plan.archive]

    @cached_property
    def graph(self) -> Graph:
        return graph.build(self.spec, self.layout)

    def share(self, task: Task) -> Share:
        operator = self.spec.operators[task.operator]
        assert operator.use is not None
        kind = job.CLASSES[operator.use]
        return share_of(job.JOB, task.operator, operator, kind, task.partition)

    @property
    def owner(self) -> str:
        return owner_name(self.plan.generation, self.incarnation)

    @property
    def owned(self) -> str:
        return owner_directory(STATE, self.plan.job_uuid, self.layout.number, self.owner)

    def identity(self, task: Task) -> blob.Identity:
        return blob.Identity(self.plan.job_uuid, self.layout.number, task.operator, task.partition)

    def log(self, task: Task) -> StateLog:
        directory = log_directory(self.owned, task.operator, task.partition)
        return StateLog(self.files, directory, self.identity(task))

    @property
    def clock(self) -> SimulatedClock:
        return SimulatedClock(self.world.simulation)

    def progress(self) -> ProgressLog:
        return ProgressLog(job.JOB, writer=SimulatedLogWriter(self.world.broker))

    def report_until_acknowledged(self, record: ProgressRecord, by: Appender | None = None) -> None:
        """Repeats a report that only this process can make."""

        def unwanted(_: float) -> bool:
            self.world.simulation.sleep(REPORT_AGAIN_S)
            return False

        report_until_acknowledged((by or self.progress()).append, record, unwanted)


@dataclass
class ProcessCache:
    """The cache of one Python process for one fragment."""

    context: Context
    states: dict[int, PartitionState] = field(default_factory=dict)
    sinks: dict[int, SinkSession] = field(default_factory=dict)
    collected_epoch: dict[int, int] = field(default_factory=dict)
    uploads: list[Process] = field(default_factory=list)
    newest: part_orders.Newest = field(default_factory=part_orders.Newest)

    def __post_init__(self) -> None:
        self.mark = Mark(self.context.world.next_pid(), 0)
        self.context.alive.add(self.mark)
        reader = SimulatedLogReader(self.context.world.broker)
        self.ledger = LedgerReader(reader, self.context.world.topics, self.context.clock)

    def die(self) -> None:
        """Dies with the running task; its pending uploads get a new owner."""
        self.context.alive.discard(self.mark)
        for process in self.uploads:
            process.killed = True

    def upload(self, part: PartOrder, copy: StateCopy | None = None) -> None:
        """Uploads after the epoch, as `perseid.worker.checkpoint.checkpoints`."""
        self.newest.ordered(part)
        name = f"upload {part.identity.operator}-{part.identity.partition}"
        self.uploads.append(_concurrently(self.context, name, lambda: _upload(self, part, copy)))

    def state(self, task: Task) -> PartitionState:
        if task.gid not in self.states:
            share = self.context.share(task)
            operator = share.make(share.partition, share.parallelism)
            self.states[task.gid] = PartitionState(
                operator, bind(operator), self.context.log(task),
                feeds_back=self.context.graph.feeds_back(task.operator), at_once=self._at_once,
            )  # fmt: skip
        return self.states[task.gid]

    def _at_once(self, state_bytes: int, delta_bytes: int) -> bool:
        """Chooses one in three by the changed bytes: by size every small state would be copied."""
        chosen = self.context.world.at_once and delta_bytes // 64 % 3 == 0
        if chosen:
            self.context.world.gates.hit("state copied at once")
        return chosen

    def sink(self, task: Task) -> SinkSession:
        if task.gid not in self.sinks:
            world, plan = self.context.world, self.context.plan
            assert task.ledger is not None
            who = SinkIdentity(
                job.JOB, plan.job_uuid, self.context.layout.number, task.operator, task.partition,
                task.ledger, after_epoch=plan.base_epoch,
            )  # fmt: skip
            transactions = SimulatedTransactions(world.broker)
            self.sinks[task.gid] = SinkSession(
                who, transactions, self.ledger, world.topics, clock=self.context.clock
            )  # fmt: skip
        return self.sinks[task.gid]


def feedback_rows(context: Context, order: EpochOrder) -> list[Row]:
    """Returns the rows that the previous epoch fed back."""
    found = feedback.rows(
        context.graph, context.layout, order.token, context.log, lambda _: job.EMITTED
    )
    return list(found)


def source_rows(context: Context, order: EpochOrder, split: int) -> tuple[list[Row], TaskReport]:
    """Level 0: returns one split's records as rows for the totals, and what was read."""
    rows: list[Row] = []
    reads: dict[tuple[int, str], ReadCount] = {}
    reader = SimulatedColumnReader(context.world.broker)
    targets = tuple(t.gid for t in context.layout.of("totals"))
    if order.token.records:
        context.world.run_into(context.plan.archive, "source")
    for port, plan in enumerate(source_plans(context)):
        count = SplitCount()
        tables = list(read_split(reader, plan, order.token, split, count))
        compare(plan, order.token, split, count)
        reads[split, plan.name] = count.read()
        table = job.columns(tables)
        parts = job.consumers(table, len(targets))
        rows += deal(table, Route(targets, port, ("key",)), split, parts)
    return rows, TaskReport(order.token.epoch, reads)


def source_plans(context: Context) -> list[SourcePlan]:
    return [
        SourcePlan(n, "text", None, None, (), tolerate=False, event_time=source.event_time)
        for n, source in context.spec.sources.items()
    ]


def run_task(
    cache: ProcessCache, order: EpochOrder, task: Task, rows: list[Row]
) -> tuple[list[Row], TaskReport]:
    """Runs the epoch of one operator partition; returns its rows for the next level."""
    context, token = cache.context, order.token
    cache.newest.refuse_damaged(context.plan.job_uuid, context.plan.generation)
    take_over_orders(cache)
    names = tuple(context.spec.operators[task.operator].inputs)
    state = cache.state(task)
    out = Emitter(task.operator, outputs=type(state.operator).outputs)
    tables = inputs(rows, names)
    if any(table.num_rows for table in tables.values()):
        context.world.run_into(context.plan.archive, task.label)
    result = state.run(token, order.token_offset, context.plan.generation, tables, out)
    size, sent = StateSize(state.size_bytes, state.rows, result.changed_bytes), 0
    if result.retained:
        context.world.gates.hit("output retained")
    if order.collect_epoch not in (None, cache.collected_epoch.get(task.gid)):
        assert order.collect_epoch is not None
        _collect_soon(context, task, state.log, order.collect_epoch)
        if order.collect_epoch > context.plan.base_epoch:
            uuid = context.plan.job_uuid
            forget_layouts(context.files, STATE, uuid, context.layout.number)
        cache.collected_epoch[task.gid] = order.collect_epoch
    if task.ledger is not None:
        batches = list(_batches(context, task, result.outputs))
        sent = sum(len(batch.values) for batch in batches)
        written = cache.sink(task).commit(
            token.epoch, order.token_offset, context.plan.generation, batches
        )
        if written.skipped:
            context.world.gates.hit("epoch was in the ledger")
    if token.checkpoint:
        part, copy = state.ordered(
            job.JOB, context.plan.generation, token.epoch, order.token_offset, order.base
        )
        part_orders.note(context.files, part, cache.mark)
        cache.upload(part, copy)
    report = PartitionReport(sent=sent, state=size)
    return (
        list(_rows_downstream(context, task, result.outputs)),
        TaskReport(token.epoch, partitions={task.gid: report}),
    )


def _batches(context: Context, task: Task, outputs: dict[str, pa.Table]) -> Iterator[SinkBatch]:
    for sink in context.spec.sinks.values():
        if producer(sink.input) == task.operator and outputs[output_of(sink.input)].num_rows:
            yield SinkBatch(sink.topic, *job.encoded(outputs[output_of(sink.input)]))


def _rows_downstream(context: Context, task: Task, outputs: dict[str, pa.Table]) -> Iterator[Row]:
    for stream in context.graph.streams(task.operator):
        for _, route in context.graph.outlets[stream].shuffles:
            table = outputs[output_of(stream)]
            parts = job.consumers(table, len(route.targets))
            yield from deal(table, route, task.gid, parts)


def take_over_orders(cache: ProcessCache) -> None:
    """As `perseid.worker.checkpoint.checkpoints`."""
    context = cache.context
    for part in part_orders.take_over(
        context.files, context.owned, context.plan.generation, cache.mark,
        context.alive.__contains__,
    ):  # fmt: skip
        context.world.gates.hit("order taken over")
        cache.upload(part)


def _concurrently(context: Context, name: str, work: Callable[[], None]) -> Process:
    """Starts work that follows the epoch in a process of its own."""
    simulation = context.world.simulation
    group = simulation.running().group
    process = simulation.spawn(group, f"{context.incarnation} {name}", work)
    process.marks.update(simulation.running().marks, kind="worker")
    return process


def _collect_soon(context: Context, task: Task, log: StateLog, epoch: int) -> None:
    def collect() -> None:
        try:
            log.collect(epoch)
        except PerseidError as error:
            context.world.simulation.note(f"the log of {task.label} is not collected: {error}")

    _concurrently(context, f"collect {task.label}", collect)


def _upload(cache: ProcessCache, order: PartOrder, copy: StateCopy | None) -> None:
    context, world, identity = cache.context, cache.context.world, order.identity
    world.simulation.sleep(world.simulation.random.uniform(0.0, 0.5))
    report: PartDone | PartFailed
    try:
        if copy is not None:
            copy.write(context.files, order)
        report = make(order, context.files, world.store, context.clock)
        world.gates.hit("part of changes" if report.chain else "part of the whole state")
    except PerseidError as error:
        world.gates.hit("part failed")
        cache.newest.failed(order, error)
        report = PartFailed(
            identity.job_uuid, order.generation, order.epoch, identity.operator,
            identity.partition, str(error),
        )  # fmt: skip
    context.report_until_acknowledged(report)
    part_orders.forget(context.files, order, cache.mark)
