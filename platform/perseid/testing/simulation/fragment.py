"""A fragment on a simulated worker: Spark's part of its life, `perseid.engine.fragment`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from perseid.engine.agreement import RestoreOrder
from perseid.engine.feed import TokenHistory
from perseid.engine.fragment import FragmentLife, at_once
from perseid.engine.last_word import LastWord
from perseid.engine.levels import run_levels
from perseid.engine.order import EpochOrder
from perseid.engine.resume import Restored
from perseid.engine.task_report import Reads, TaskReport
from perseid.errors import FencedError, PerseidError, RetryableError
from perseid.jobs.model.layout import Task
from perseid.records import APART, GATE, CheckpointPointer, Deployment, Plan
from perseid.replay.approving import Approval
from perseid.replay.sink_columns import Revision, SinkColumns
from perseid.state.durability.owners import adopt
from perseid.testing.simulation import job, mishaps
from perseid.testing.simulation.engine import Defect, Group, Signal
from perseid.testing.simulation.levels import Levels
from perseid.testing.simulation.ports import (
    SimulatedColumnReader,
    SimulatedFiles,
    SimulatedLogReader,
)
from perseid.testing.simulation.tasks import (
    Context,
    ProcessCache,
    feedback_rows,
    source_plans,
    source_rows,
)
from perseid.testing.simulation.world import STATE, World
from perseid.topics import names
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import ProgressLog
from perseid.topics.records import FragmentState, ProgressRecord, Token
from perseid.worker.checkpoint import part_orders
from perseid.worker.checkpoint.parts import TO_RESTORE
from perseid.worker.dataflow import barriers
from perseid.worker.dataflow.edges import Row
from perseid.worker.dataflow.source import read_again
from perseid.worker.epoch import memory
from perseid.worker.recovery.restore import PartitionRestore
from perseid.worker.sink import audit
from perseid.worker.sink.audit import LedgerAudit
from perseid.worker.sink.committed import committed_epochs
from perseid.worker.sink.kept_outputs import Kept

ATTEMPTS_MAX = 4  # of one Spark task
TOKEN_POLL_S = 0.1
EPOCH_MS = 100  # reported of each
T = TypeVar("T")


class Fragment:
    """One plan on one worker: host and runtime of its life. `stopping` ends it at the next step."""

    def __init__(
        self, world: World, group: Group, files: SimulatedFiles, plan: Plan, incarnation: str
    ) -> None:
        self.world, self.group, self.plan, self.incarnation = world, group, plan, incarnation
        self.context = Context(world, files, plan, incarnation)
        self.layout = self.context.layout
        self.spec, self.topics = self.context.spec, world.topics
        self.tokens = SimulatedLogReader(world.broker)
        self.pointers: tuple[CheckpointPointer, ...] = ()
        self.stopping = self._follows = False
        self._primary: Plan | None = None  # what it is to become
        self.life = FragmentLife(plan, incarnation, Word(world, self.context.progress()), self)
        self._pool: list[ProcessCache] = []  # idle Python processes
        self._audit: LedgerAudit | None = None  # of a replica
        self._audited_s = 0.0
        self._replicated = 0  # the last epoch before the promotion
        self._levels = Levels(self) if self.context.split is not None else None

    def live(self) -> None:
        failure = self.life.run()
        if failure is not None:
            self.life.repeat(failure)

    def promote(self, plan: Plan) -> bool:
        """Lets the replica become the primary between two epochs; False when it has to restore."""
        if self._follows:
            self._primary = plan
        return self._follows

    # Host ---------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        self.world.simulation.sleep(seconds)
        return self.stopping

    meanwhile = staticmethod(at_once)

    def opened(self) -> AbstractContextManager[Fragment]:
        return nullcontext(self)

    def classified(self, error: BaseException) -> PerseidError:
        if not isinstance(error, PerseidError):
            raise error  # the process is killed, or the simulation has found a defect
        self.world.simulation.note(f"fragment ends: {type(error).__name__}: {error}")
        refuse_unharmed(self.world, error)
        if isinstance(error, FencedError) and "runs layout" in str(error):
            self.world.gates.hit("layout is over")
        if isinstance(error, FencedError) and self.world.roles.is_zombie(self.plan):
            self.world.gates.hit("zombie fenced")
        self.world.gates.hit("fragment stopped" if self.stopping else "fragment failed")
        return error

    # Runtime ------------------------------------------------------------------------------------

    def now_s(self) -> float:
        return self.world.simulation.now_s

    def fence(self) -> None:
        uuid, context = self.plan.job_uuid, self.context
        with self.world.roles.taking_over(context.files, STATE, self.plan):
            adopt(
                context.files, STATE, uuid, self.layout.number, context.owner, context.replica,
                kept=self.plan.only.log != APART,
            )  # fmt: skip

    def promoted(self, plan: Plan) -> None:
        self.plan = self.context.plan = plan

    def compare(self) -> Callable[[], None]:
        audit, self._audit = self._audit, None
        for warning in audit.last() if audit is not None else ():
            self.world.simulation.note(warning)
        return lambda: None

    def prepare(self, _base_offset: int) -> Callable[[], None]:
        return lambda: None

    def known(self, _now: bool) -> tuple[CheckpointPointer, ...]:
        return self.pointers

    def begin(self, past: TokenHistory, done_epoch: int) -> None:
        if self.plan.only.muted:
            reader = SimulatedColumnReader(self.world.broker)
            approval = self._approval(reader) if self.plan.only.approved else None
            self._audit = LedgerAudit(self.plan, self.layout, reader, self.topics, approval)
            self.world.roles.begins(self.plan.generation)
        if self._levels is not None:
            self._levels.inbox.begin(past, done_epoch)

    def _approval(self, reader: SimulatedColumnReader) -> Approval:
        kept = self.context.kept

        def made(epoch: int, operator: str, partition: int) -> Mapping[tuple[str, int], Kept]:
            return kept.get((epoch, operator, partition), {})

        def forget(before_epoch: int) -> None:
            for place in [place for place in kept if place[0] < before_epoch]:
                del kept[place]

        self.world.gates.hit("differences approved")
        columns = SinkColumns(Deployment.model_construct(), Revision(self.spec, Path()))
        return Approval(columns, reader, self.plan.only.approved, made, forget)

    def read_again(self, token: Token) -> Reads:
        reader = SimulatedColumnReader(self.world.broker)
        return read_again(reader, source_plans(self.context), token)

    def follow(self, life: FragmentLife) -> None:
        self._follows = True
        try:
            self._follow(life)
        finally:
            self._follows = False

    def _follow(self, life: FragmentLife) -> None:
        looked_s = self.world.simulation.now_s
        topic, tokens = names.tokens(job.JOB), self.tokens
        while not self.stopping:
            self._become_primary(life)
            self._compare(life)
            if not tokens.read_from(topic, 0, life.offset, max_records=1, timeout_s=0.0):
                self.world.simulation.sleep(TOKEN_POLL_S)
                if self.world.simulation.now_s - looked_s > part_orders.LOOK_S:
                    life.look()
                    looked_s = self.world.simulation.now_s
                continue
            looked_s = self.world.simulation.now_s
            at = life.offset
            (entry,) = tokens.read_range(topic, 0, at, at + 1, timeout_s=1.0)
            if self.stopping:
                break
            if life.take(at, entry.value) is None:
                self.world.gates.hit("void token")

    def _become_primary(self, life: FragmentLife) -> None:
        wanted, self._primary = self._primary, None
        if wanted is not None and wanted.generation > self.plan.generation:
            self._replicated, replica = life.epoch, self.plan.generation
            life.promote(wanted)
            self.world.roles.took_over(replica)
            self.world.gates.hit("promoted in place")

    def _compare(self, life: FragmentLife) -> None:
        """What a thread does on a worker (`LedgerAudit`)."""
        now_s = self.world.simulation.now_s
        is_due = self.world.roles.audits and now_s - self._audited_s > audit.LOOK_S
        if self._audit is not None and is_due:
            self._audited_s = now_s
            self._audit.look()
            for warning in self._audit.judged():
                self.world.simulation.note(warning)
            if self.plan.only.role == GATE:
                life.compared(self._audit.equal)
            self.world.gates.hit("outputs compared")

    def after(self, order: EpochOrder) -> None:
        """Raises what can end a job between two epochs: a limit, or the revision's own code."""
        self.world.gates.hit("epoch ran")
        if order.token.epoch <= self._replicated:
            self.world.gates.hit("ran again after a promotion")
        if order.token.watermark_ms is not None:
            self.world.gates.hit("epoch with a watermark")
        self.world.simulation.note(f"ran epoch {order.token.epoch}")
        if memory.is_judged(order.token):
            self.world.run_into(self.plan.archive, "limit")
        self.world.run_into(self.plan.archive, "after")

    # Epochs -------------------------------------------------------------------------------------

    def execute(self, order: EpochOrder, record: bytes) -> tuple[TaskReport, int]:
        if order.muted and self.world.roles.slow_s:
            self.world.simulation.sleep(self.world.roles.slow_s)
        done, took_ms = self._run(order, record)
        if self._audit is not None:
            for gid, report in done.partitions.items():
                if report.made is not None:
                    totals = {(m.topic, m.partition): (m.count, m.checksum) for m in report.made}
                    task = self.layout.task(gid)
                    self.world.roles.made(
                        self.plan.generation, task, order.token_offset, totals
                    )
            self._audit.ran(order, done)
        return done, took_ms

    def _run(self, order: EpochOrder, _record: bytes) -> tuple[TaskReport, int]:
        if self._levels is not None:
            return run_levels(order, self.layout, self._levels.inbox, self._levels), EPOCH_MS
        rows: list[Row] = []
        done = TaskReport(order.token.epoch)
        for split in range(max(1, len(order.token.splits))):
            more, report = source_rows(self.context, order, split)
            rows += more
            done = done.merged(report)
        rows += feedback_rows(self.context, order)
        for level in range(1, self.layout.levels + 1):
            downstream: list[Row] = []
            tasks = list(self.layout.level(level))
            self.world.simulation.random.shuffle(tasks)
            self.world.simulation.random.shuffle(rows)
            for task in tasks:
                mine = [row for row in rows if row.target == task.gid]
                more, report = self._run_task(order, task, mine)
                downstream += more
                done = done.merged(report)
            rows = downstream
        return done, EPOCH_MS

    def _run_task(
        self, order: EpochOrder, task: Task, rows: list[Row]
    ) -> tuple[list[Row], TaskReport]:
        def begun() -> Callable[[ProcessCache], tuple[list[Row], TaskReport]]:
            given = mishaps.shuffled(self.world, rows)
            return lambda cache: cache.partitions.run(order, given, task.level)

        return self.attempted(order, task.label, begun)

    def attempted(
        self, order: EpochOrder, label: str, begun: Callable[[], Callable[[ProcessCache], T]]
    ) -> T:
        """Spark's part: runs attempts at a task, each in an idle Python process."""
        for number in range(1, ATTEMPTS_MAX + 1):
            attempt = Attempt(self, f"{label}@{order.token.epoch}", begun())
            attempt.ended.wait()
            if attempt.error is None:
                assert attempt.result is not None, "it has ended"
                return attempt.result
            self.world.simulation.note(f"attempt {number} of {label}: {attempt.error}")
            if barriers.REFUSED in str(attempt.error):
                self.world.gates.hit("sets refused")
            if number == ATTEMPTS_MAX or self.stopping:
                if isinstance(attempt.error, PerseidError):
                    raise attempt.error
                raise RetryableError(f"{type(attempt.error).__name__}: {attempt.error}")
        raise Defect("not reached")

    def borrow(self) -> ProcessCache:
        """Returns an idle Python process, sometimes another one than last time."""
        if not self._pool or (len(self._pool) < 2 and self.world.simulation.random.random() < 0.1):
            return ProcessCache(self.context)
        return self._pool.pop(self.world.simulation.random.randrange(len(self._pool)))

    def give_back(self, cache: ProcessCache) -> None:
        self._pool.append(cache)

    def take_over_orders(self) -> None:
        cache = self.borrow()
        cache.take_over_orders(self.plan.generation)
        self.give_back(cache)

    # Restore ------------------------------------------------------------------------------------

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        found = committed_epochs(
            self.plan, self.layout, self.context.transactions,
            LedgerReader(self.tokens, self.topics, self.context.clock),
        )  # fmt: skip
        return lambda: found

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        """One partition after the other."""
        return (self._restore_one(order, self.layout.task(gid)) for gid in gids)

    def _count(self, found: Restored) -> None:
        gates, (source, _, epoch) = self.world.gates, found.source.partition(":")
        usable = self.plan.usable_checkpoints
        gates.hit(f"restored from {source}")
        if found.events:
            gates.hit("damage found")
        if source == "checkpoint" and any(
            p.epoch == int(epoch) and p.layout != self.plan.layout for p in usable
        ):
            gates.hit("state redistributed")
        for pointer in usable[:1] if epoch else ():
            if int(epoch) < pointer.epoch:
                gates.hit("older checkpoint")
            elif pointer.base_epoch < pointer.epoch:
                gates.hit("restored from a chain")

    def _restore_one(self, order: RestoreOrder, task: Task) -> Restored:
        context = self.context
        cache = self.borrow()
        work = PartitionRestore(
            context.files, self.world.store, cache.partitions.state(task).log, task,
            context.identity(task), context.share(task),
        )  # fmt: skip
        found = cache.partitions.load(task, work.run(order), order.base_epoch)
        self.give_back(cache)
        self._count(found)
        return found


class Word(LastWord):
    """Notes the reports, and marks a gate when a lost one is repeated."""

    def __init__(self, world: World, progress: ProgressLog) -> None:
        reader = partial(SimulatedLogReader, world.broker)
        super().__init__(job.JOB, progress, world.topics, reader)
        self._world = world

    def append(self, record: ProgressRecord) -> int:
        if isinstance(record, FragmentState):
            source, events = record.restored_from, list(record.events)
            self._world.simulation.note(f"reports {record.state} {record.epoch} {source} {events}")
        return super().append(record)

    def look(self, again: FragmentState) -> bool:
        found = super().look(again)
        if found:
            self._world.gates.hit("last word repeated")
        return found


def refuse_unharmed(world: World, error: PerseidError) -> None:
    """Raises Defect for damage that no fault caused: a restore would hide such an engine error."""
    if TO_RESTORE in str(error) and not world.logs_harmed:
        raise Defect(f"nothing has harmed the state logs: {error}")


class Attempt(Generic[T]):
    """One attempt of one task. `ended` is set once; later results are a zombie's."""

    def __init__(self, fragment: Fragment, name: str, work: Callable[[ProcessCache], T]) -> None:
        self._fragment, self._what = fragment, work
        simulation = fragment.world.simulation
        self.ended = Signal(simulation)
        self.result: T | None = None
        self.error: Exception | None = None
        marks = simulation.running().marks
        process = simulation.spawn(fragment.group, f"{fragment.incarnation} {name}", self._work)
        process.marks.update(marks, kind="task", abandon=self._abandon)

    def _abandon(self, error: Exception) -> None:
        if not self.ended.is_set:
            self.error = error
            self.ended.set()

    def _work(self) -> None:
        cache = self._fragment.borrow()
        self._fragment.world.simulation.running().marks["die"] = cache.die
        try:
            result = self._what(cache)
        except PerseidError as error:
            if not self.ended.is_set:  # a zombie may find that its epoch's log has been collected
                refuse_unharmed(self._fragment.world, error)
                self._fragment.give_back(cache)
            self._abandon(error)
            return
        if not self.ended.is_set:
            self._fragment.give_back(cache)
            self.result = result
            self.ended.set()
