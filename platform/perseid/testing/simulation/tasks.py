"""A simulated process as an executor of `perseid.engine.epoch`, and what source tasks read.

Below the engine are the worker's own modules: edges, partition state, state log, sink session,
checkpoint parts. Only Spark, threads and process globals are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from perseid.engine.acknowledged import report_until_acknowledged
from perseid.engine.epoch import Partitions
from perseid.engine.order import EpochOrder
from perseid.engine.ports import Submit
from perseid.engine.task_report import Made, ReadCount, TaskReport
from perseid.errors import PerseidError
from perseid.jobs.model.layout import Layout, Task, build
from perseid.jobs.model.spec import JobSpec, SinkSpec, output_of
from perseid.jobs.model.spread import spread_of
from perseid.jobs.operator import Emitter, Identity, Operator, combines, opened
from perseid.records import GATE, Plan
from perseid.records.marks import Mark
from perseid.state.durability import blob
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import (
    forget_layouts,
    log_directory,
    owner_directory,
    owner_name,
    replica_of,
)
from perseid.state.primitives.primitive import bind
from perseid.testing.files import MemoryFiles
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect, Process, SimulatedClock
from perseid.testing.simulation.ports import (
    SimulatedColumnReader,
    SimulatedLogReader,
    SimulatedLogWriter,
    SimulatedTransactions,
)
from perseid.testing.simulation.world import STATE, World
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import ProgressLog
from perseid.topics.records import PartDone, PartFailed, Token
from perseid.topics.transactions import SinkBatch
from perseid.worker.checkpoint import part_orders
from perseid.worker.checkpoint.parts import PartOrder, StateCopy, fold, make
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.barriers import counted, expected
from perseid.worker.dataflow.edges import Route, Row, deal, inputs
from perseid.worker.dataflow.graph import Graph
from perseid.worker.dataflow.operators import call, combine
from perseid.worker.dataflow.source import SourcePlan, SplitCount, compare, read_split
from perseid.worker.epoch import feedback
from perseid.worker.epoch.partition_state import EpochResult, PartitionState
from perseid.worker.recovery.resplit import Share, share_of
from perseid.worker.sink.kept_outputs import Kept
from perseid.worker.sink.transaction import CommitResult, SinkIdentity, SinkSession

REPORT_AGAIN_S = 0.5
CHUNK_BYTES = 20, 200  # of sets in buffers
T = TypeVar("T")
KeptByEpoch = dict[tuple[int, str, int], dict[tuple[str, int], Kept]]


@dataclass
class Context:
    """What all tasks of a fragment share. `whole`: the layout with all operator partitions.

    `plan`: changes when the fragment is promoted. `owner`: the name of its directory, which stays.
    """

    world: World
    files: MemoryFiles
    plan: Plan
    incarnation: str
    alive: set[Mark] = field(default_factory=set)  # live Python processes
    owner: str = field(init=False)
    kept: KeptByEpoch = field(default_factory=dict)  # of a gate with approved differences

    def __post_init__(self) -> None:
        self.owner = owner_name(self.plan.generation, self.incarnation)
        if self.world.judge is not None:
            totals = self.spec.operators["totals"].parallelism
            self.world.judge.parallelism[self.plan.layout] = totals

    @property
    def spec(self) -> JobSpec:
        own, archive = self.plan.only, self.plan.archive
        specs = self.world.specs | (self.world.gate_specs if own.role == GATE else {})
        return specs[archive]

    @cached_property
    def whole(self) -> Layout:
        return build(self.spec, self.plan.layout)

    @cached_property
    def layout(self) -> Layout:
        return self.whole.part(self.plan.only.gids)

    @property
    def job(self) -> str:
        return self.plan.job

    @property
    def job_uuid(self) -> str:
        return self.plan.job_uuid

    @property
    def generation(self) -> int:
        return self.plan.generation

    @property
    def revision(self) -> str:
        return self.plan.revision

    @property
    def split(self) -> int | None:
        """The only split that it reads; its rows come and go by buffer topics."""
        return self.plan.only.split

    @cached_property
    def graph(self) -> Graph:
        return graph.build(self.spec, self.whole)

    @property
    def chunk_bytes(self) -> int:
        """Each attempt at a set that crosses a buffer divides it in another way."""
        if self.split is None:
            return self.world.chunk_bytes
        return self.world.simulation.random.randrange(*CHUNK_BYTES)

    def share(self, task: Task) -> Share:
        operator = self.spec.operators[task.operator]
        return share_of(job.JOB, task.operator, operator, job.class_of(operator), task.partition)

    def instance(self, name: str, origin: int) -> Operator:
        """An operator without state, for one split: a combiner, or one without a key."""
        operator = self.spec.operators[name]
        identity = Identity(job.JOB, name, origin, operator.parallelism)
        return opened(job.class_of(operator), identity, operator.with_)

    @property
    def owned(self) -> str:
        number, uuid = self.layout.number, self.plan.job_uuid
        return owner_directory(STATE, uuid, number, self.owner, self.replica)

    @property
    def replica(self) -> str:
        return replica_of(self.plan.only.fragment, self.plan.only.log)

    def identity(self, task: Task) -> blob.Identity:
        return blob.Identity(self.plan.job_uuid, self.layout.number, task.operator, task.partition)

    def log(self, task: Task) -> StateLog:
        directory = log_directory(self.owned, task.operator, task.partition)
        return StateLog(self.files, directory, self.identity(task), retains=self.world.retains)

    @property
    def transactions(self) -> SimulatedTransactions:
        return SimulatedTransactions(self.world.broker, lambda: self.plan.only.muted)

    @property
    def clock(self) -> SimulatedClock:
        return SimulatedClock(self.world.simulation)

    def progress(self) -> ProgressLog:
        return ProgressLog(job.JOB, writer=SimulatedLogWriter(self.world.broker))


class ProcessCache:
    """One Python process: an executor of `perseid.engine.epoch` for one fragment."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.partitions: Partitions[Row] = Partitions(self)
        self.uploads: list[Process] = []
        self.newest = part_orders.Newest()
        self.mark = Mark(context.world.next_pid(), 0)
        context.alive.add(self.mark)
        reader = SimulatedLogReader(context.world.broker)
        self.ledger = LedgerReader(reader, context.world.topics, context.clock)
        self.job, self.spec, self.layout = job.JOB, context.spec, context.layout
        self.base_epoch = context.plan.base_epoch

    def die(self) -> None:
        """Dies with the running task; its pending uploads get a new owner."""
        self.context.alive.discard(self.mark)
        for process in self.uploads:
            process.killed = True

    def begin(self, order: EpochOrder) -> None:
        self.newest.refuse_damaged(self.context.owned)
        self.take_over_orders(order.generation)

    def take_over_orders(self, generation: int) -> None:
        """As `perseid.worker.checkpoint.checkpoints`."""
        context = self.context
        for part in part_orders.take_over(
            context.files, context.owned, generation, self.mark, context.alive.__contains__
        ):
            context.world.gates.hit("order taken over")
            self._upload_soon(part)

    def about(self, _task: Task, _order: EpochOrder) -> AbstractContextManager[None]:
        return nullcontext()

    def now_s(self) -> float:
        return 0.0  # durations are not simulated

    def new_state(self, task: Task) -> PartitionState:
        share = self.context.share(task)
        operator = share.make(share.partition, share.parallelism)
        return WatchedState(
            self.context, task, operator, bind(operator), self.context.log(task),
            feeds_back=self.context.graph.feeds_back(task.operator), at_once=self._at_once,
        )  # fmt: skip

    def _at_once(self, state_bytes: int, delta_bytes: int) -> bool:
        """Chooses one in three by the changed bytes: by size every small state would be copied."""
        chosen = self.context.world.at_once and delta_bytes // 64 % 3 == 0
        if chosen:
            self.context.world.gates.hit("state copied at once")
        return chosen

    def new_sink(self, task: Task) -> SinkSession:
        world, plan = self.context.world, self.context.plan
        assert task.ledger is not None
        who = SinkIdentity(
            job.JOB, plan.job_uuid, self.layout.number, task.operator, task.partition,
            task.ledger, after_epoch=plan.base_epoch,
        )  # fmt: skip
        transactions, clock = self.context.transactions, self.context.clock
        kept = self.context.kept if plan.only.approved else None
        return WatchedSink(
            world, kept, {"process": str(self.mark)}, who, transactions, self.ledger, world.topics,
            clock=clock,
        )  # fmt: skip

    def tables(
        self, task: Task, order: EpochOrder, names: tuple[str, ...], rows: list[Row]
    ) -> dict[str, pa.Table]:
        wanted = expected(self.context.graph, order.token, task.gid)
        who = f"{task.label}, epoch {order.token.epoch},"
        found = inputs(counted(rows, wanted, who), names)
        if self.context.split is not None:
            edges, whole = self.context.world.edges, self.context.whole
            edges.look_at(self.spec, whole, task, order, rows)
        if any(table.num_rows for table in found.values()):
            self.context.world.run_into(self.context.plan.archive, task.label)
        return found

    def downstream(
        self, task: Task, _order: EpochOrder, outputs: Mapping[str, pa.Table]
    ) -> Iterator[Row]:
        for stream in self.context.graph.streams(task.operator):
            for _, route in self.context.graph.outlets[stream].shuffles:
                yield from dealt(self.context, outputs[output_of(stream)], route, task.gid)

    def refusals(self, _letters: pa.Table) -> int:
        raise Defect("the simulated jobs refuse no record")

    def letter_batch(self, _order: EpochOrder, _topic: str, _letters: pa.Table) -> SinkBatch:
        raise Defect("the simulated jobs refuse no record")

    def batch(self, _task: Task, _order: EpochOrder, sink: SinkSpec, rows: pa.Table) -> SinkBatch:
        return SinkBatch(sink.topic, *job.encoded(rows, sink.key or "key"))

    def commits(self) -> AbstractContextManager[Submit]:
        return nullcontext(waited_for)

    def collect(self, task: Task, log: StateLog, epoch: int) -> None:
        def collected() -> None:
            try:
                log.collect(epoch)
                log.release(epoch)
            except PerseidError as error:
                self.context.world.simulation.note(
                    f"the log of {task.label} is not collected: {error}"
                )

        concurrently(self.context, f"collect {task.label}", collected)

    def forget_layouts(self) -> None:
        forget_layouts(self.context.files, STATE, self.context.plan.job_uuid, self.layout.number)

    def upload(self, part: PartOrder, copy: StateCopy | None) -> None:
        if self.context.plan.only.muted:
            raise Defect(f"a replica orders a part of a checkpoint: {part}")
        part_orders.note(self.context.files, part, self.mark)
        self._upload_soon(part, copy)

    def fold(self, part: PartOrder, copy: StateCopy | None) -> None:
        self.newest.ordered(part)
        name = f"fold {part.identity.operator}-{part.identity.partition}"
        concurrently(self.context, name, lambda: _fold(self, part, copy))

    def _upload_soon(self, part: PartOrder, copy: StateCopy | None = None) -> None:
        """Uploads after the epoch, as `perseid.worker.checkpoint.checkpoints`."""
        self.newest.ordered(part)
        name = f"upload {part.identity.operator}-{part.identity.partition}"
        self.uploads.append(concurrently(self.context, name, lambda: _upload(self, part, copy)))


def waited_for(work: Callable[[], T]) -> Callable[[], T]:
    """A transaction is committed when its task waits for it."""
    return work


class WatchedState(PartitionState):
    """Marks a gate when an epoch was logged already, and compares the copies of a state."""

    def __init__(self, context: Context, task: Task, *of: Any, **more: Any) -> None:
        super().__init__(*of, **more)
        self._context, self._task = context, task

    def run(self, token: Token, token_offset: int, *of: Any) -> EpochResult:
        result = super().run(token, token_offset, *of)
        world = self._context.world
        if result.retained:
            world.gates.hit("output retained")
        if world.shape.replicas and self.epoch == token.epoch:
            state = {name: primitive.snapshot() for name, primitive in self.live.items()}
            log = self._context.plan.only.log
            world.roles.ran(self._task, token, token_offset, log, state, result.outputs)
        return result


class WatchedSink(SinkSession):
    """Marks a gate when an epoch was committed already; notes what it has committed.

    `kept`: gets what muted epochs make.
    """

    def __init__(
        self, world: World, kept: KeptByEpoch | None, process: dict[str, str], *of: Any, **more: Any
    ) -> None:
        super().__init__(*of, environment=lambda: process, **more)
        self._world, self._kept = world, kept

    def compare(self, epoch: int, outputs: Sequence[SinkBatch]) -> tuple[Made, ...]:
        if self._kept is not None:
            found = {
                (b.topic, b.partition): (b.keys, b.values) for b in self.divided(epoch, outputs)
            }
            self._kept[epoch, self.who.operator, self.who.partition] = found
        return super().compare(epoch, outputs)

    def commit(self, *of: Any, **more: Any) -> CommitResult:
        written = super().commit(*of, **more)
        if written.skipped:
            self._world.gates.hit("epoch was in the ledger")
        else:
            checker = self._world.checker
            checker.wrote(self.who.ledger, of[1], self._environment())
        return written


def feedback_rows(context: Context, order: EpochOrder) -> list[Row]:
    """Returns the rows that the previous epoch fed back."""
    found = feedback.rows(
        context.graph, context.layout, order.token, context.log,
        lambda stream: job.columns_of(context.spec, stream),
    )
    return list(found)


def source_rows(context: Context, order: EpochOrder, split: int) -> tuple[list[Row], TaskReport]:
    """Level 0: returns one split's records as rows for the totals, and what was read."""
    rows: list[Row] = []
    reads: dict[tuple[int, str], ReadCount] = {}
    reader = SimulatedColumnReader(context.world.broker)
    if order.token.records:
        context.world.run_into(context.plan.archive, "source")
    for plan in source_plans(context):
        count = SplitCount()
        tables = list(read_split(reader, plan, order.token, split, count))
        compare(plan, order.token, split, count)
        reads[split, plan.name] = count.read()
        shape = context.world.shape
        table = job.columns(tables, placed=shape.written, widened=bool(shape.drawn))
        rows += sent(context, order.token, plan.name, table, split)
    return rows, TaskReport(order.token.epoch, reads)


def sent(
    context: Context, token: Token, stream: str, table: pa.Table, split: int
) -> Iterator[Row]:
    """What a source task sends of one stream: as `perseid.worker.epoch.flow.rows_of`."""
    outlets = context.graph.outlets[stream]
    for consumer, route in outlets.shuffles:
        operator = context.spec.operators.get(consumer)
        kind = job.class_of(operator) if operator is not None else Operator
        given = table
        if combines(kind):
            given, _ = combine(partial(context.instance, consumer, split), token, table)
        yield from dealt(context, given, route, split)
    for name in outlets.python:
        out = Emitter(name)
        call(context.instance(name, split), token, {"input": table}, out)
        found = out.tables()
        for node in context.graph.streams(name):
            yield from sent(context, token, node, found[output_of(node)], split)


def dealt(context: Context, table: pa.Table, route: Route, origin: int) -> Iterator[Row]:
    """The sets of one task of a sender."""
    count = len(route.targets)
    every = np.full(len(table), origin % count, np.int64)
    parts = job.consumers(table, count) if route.key else every
    return deal(table, route, origin, parts, context.chunk_bytes)


def source_plans(context: Context) -> list[SourcePlan]:
    """Those of the sources that the fragment reads."""
    spread = spread_of(context.spec, context.whole)
    own = context.spec.sources if spread is None else spread.shares[context.split or 0].among
    metadata: tuple[str, ...] = ("partition", "offset") if context.world.shape.written else ()
    metadata += ("timestamp",) if context.world.shape.drawn else ()
    return [
        SourcePlan(n, "text", None, None, metadata, tolerate=False, event_time=source.event_time)
        for n, source in context.spec.sources.items() if n in own
    ]  # fmt: skip


def concurrently(context: Context, name: str, work: Callable[[], None]) -> Process:
    """Starts work that follows the epoch in a process of its own."""
    simulation = context.world.simulation
    group = simulation.running().group
    process = simulation.spawn(group, f"{context.incarnation} {name}", work)
    process.marks.update(simulation.running().marks, kind="worker")
    return process


def _fold(cache: ProcessCache, order: PartOrder, copy: StateCopy | None) -> None:
    """As `perseid.worker.checkpoint.checkpoints`."""
    try:
        if copy is not None:
            copy.write(cache.context.files, order)
        else:
            fold(order, cache.context.files)
    except PerseidError as error:
        cache.newest.failed(order, error)


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

    def unwanted(_: float) -> bool:
        world.simulation.sleep(REPORT_AGAIN_S)
        return False

    report_until_acknowledged(context.progress().append, report, unwanted)
    part_orders.forget(context.files, order, cache.mark)
