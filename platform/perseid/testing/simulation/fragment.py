"""One fragment on a simulated worker: restores, then runs its epochs as `perseid.worker` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from perseid.engine.order import EpochOrder
from perseid.engine.task_report import TaskReport
from perseid.errors import FencedError, PermanentError, PerseidError, RetryableError
from perseid.jobs.model.layout import Task, build
from perseid.records import CheckpointPointer, Plan
from perseid.state.durability.log import adopt
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect, Group, Signal
from perseid.testing.simulation.ports import (
    SimulatedColumnReader,
    SimulatedFiles,
    SimulatedLogReader,
    SimulatedTransactions,
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
from perseid.topics.codec import decode_token
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import FragmentState, Token
from perseid.worker.checkpoint import part_orders
from perseid.worker.checkpoint.parts import TO_RESTORE
from perseid.worker.dataflow.edges import Row
from perseid.worker.dataflow.feed import EpochFeed, TokenHistory, base_of, history
from perseid.worker.epoch import last_word, memory
from perseid.worker.epoch.last_word import LastWord
from perseid.worker.epoch.token_loop import TokenLoop
from perseid.worker.recovery import resume
from perseid.worker.recovery.agreement import agree
from perseid.worker.recovery.restore import PartitionRestore, RestoreOrder
from perseid.worker.recovery.resume import Restored
from perseid.worker.sink.committed import committed_epochs

ATTEMPTS_MAX = 4  # of one Spark task
TOKEN_POLL_S = 0.1
EPOCH_MS = 100  # reported of each


class Fragment:
    """One plan's execution on one worker. `stopping` ends it at the next step."""

    def __init__(
        self, world: World, group: Group, files: SimulatedFiles, plan: Plan, incarnation: str
    ) -> None:
        self.world, self.group, self.plan, self.incarnation = world, group, plan, incarnation
        layout = build(world.specs[plan.archive], plan.layout)
        self.context = Context(world, files, plan, layout, incarnation)
        self.pointers: tuple[CheckpointPointer, ...] = ()
        self.stopping = False
        self._loop: TokenLoop | None = None
        self._word = LastWord(
            job.JOB, self.context.progress(), world.topics,
            lambda: SimulatedLogReader(world.broker),
        )  # fmt: skip
        self._pool: list[ProcessCache] = []  # idle Python processes

    @property
    def epoch(self) -> int:
        """The last completed epoch."""
        return self.plan.base_epoch if self._loop is None else self._loop.epoch

    def live(self) -> None:
        try:
            self._report("restoring")
            self._run()
            self._report_for_sure("stopped")
        except PerseidError as error:
            self._end_with(error)

    def _run(self) -> None:
        context = self.context
        # Before the tokens are read, as `perseid.worker.spark.restoring.fence`.
        adopt(context.files, STATE, self.plan.job_uuid, context.layout.number, context.owner)
        past = self._history()
        done, source, events = self._restore_all(past)
        feed = EpochFeed(past, done, self.plan.layout, self.plan.generation)
        self.world.simulation.note(f"restored to {done} from {source} {list(events)}")
        loop = self._loop = TokenLoop(
            self.plan, self.incarnation, context.layout, feed, self._word,
            lambda order, _: (self._run_epoch(order), EPOCH_MS), lambda _: self.pointers,
        )  # fmt: skip
        if context.spec.event_times:
            loop.report_last_event_times(
                SimulatedLogReader(self.world.broker), SimulatedColumnReader(self.world.broker),
                source_plans(context),
            )  # fmt: skip
        self._report("running", source, events)
        looked_s = self.world.simulation.now_s
        topic, tokens = names.tokens(job.JOB), SimulatedLogReader(self.world.broker)
        while not self.stopping:
            if not tokens.read_from(topic, 0, loop.offset, max_records=1, timeout_s=0.0):
                self.world.simulation.sleep(TOKEN_POLL_S)
                if self.world.simulation.now_s - looked_s > part_orders.LOOK_S:
                    self._take_over_orders()
                    if self._word.look(self._state(last_word.REPEATED)):
                        self.world.gates.hit("last word repeated")
                    looked_s = self.world.simulation.now_s
                continue
            looked_s = self.world.simulation.now_s
            at = loop.offset
            (entry,) = tokens.read_range(topic, 0, at, at + 1, timeout_s=1.0)
            if self.stopping:
                break
            order = loop.take(at, entry.value)
            if order is None:
                self.world.gates.hit("void token")
                continue
            self.world.gates.hit("epoch ran")
            if order.token.watermark_ms is not None:
                self.world.gates.hit("epoch with a watermark")
            self.world.simulation.note(f"ran epoch {loop.epoch}")
            self._look_downstream(order.token)

    def _look_downstream(self, token: Token) -> None:
        """Raises what can end a job between two epochs: a limit, or the revision's own code."""
        if memory.is_judged(token):
            self.world.run_into(self.plan.archive, "limit")
        self.world.run_into(self.plan.archive, "after")

    # Epochs -------------------------------------------------------------------------------------

    def _run_epoch(self, order: EpochOrder) -> TaskReport:
        rows: list[Row] = []
        done = TaskReport(order.token.epoch)
        for split in range(max(1, len(order.token.splits))):
            more, report = source_rows(self.context, order, split)
            rows += more
            done = done.merged(report)
        rows += feedback_rows(self.context, order)
        for level in range(1, self.context.layout.levels + 1):
            downstream: list[Row] = []
            tasks = list(self.context.layout.level(level))
            self.world.simulation.random.shuffle(tasks)
            self.world.simulation.random.shuffle(rows)
            for task in tasks:
                mine = [row for row in rows if row.target == task.gid]
                more, report = self._run_task(order, task, mine)
                downstream += more
                done = done.merged(report)
            rows = downstream
        return done

    def _run_task(
        self, order: EpochOrder, task: Task, rows: list[Row]
    ) -> tuple[list[Row], TaskReport]:
        """Spark's part: runs attempts, each in an idle Python process."""
        for number in range(1, ATTEMPTS_MAX + 1):
            attempt = Attempt(self, order, task, rows)
            attempt.ended.wait()
            if attempt.error is None:
                return attempt.result
            self.world.simulation.note(f"attempt {number} of {task.label}: {attempt.error}")
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

    def _take_over_orders(self) -> None:
        """Takes orders of dead processes over while no epoch runs."""
        ordered = 0 if self._loop is None else self._loop.checkpoint_epoch
        if part_orders.outstanding(ordered, self.pointers):
            cache = self.borrow()
            cache.take_over_orders()
            self.give_back(cache)

    # Restore ------------------------------------------------------------------------------------

    def _history(self) -> TokenHistory:
        base = base_of(self.plan)
        topic = names.tokens(job.JOB)
        end = self.world.topics.ends([(topic, 0)])[topic, 0]
        reader = SimulatedLogReader(self.world.broker)
        found = reader.read_range(topic, 0, base.offset, end, timeout_s=30.0)
        return history(base, ((e.offset, decode_token(topic, e.offset, e.value)) for e in found))

    def _restore_all(self, past: TokenHistory) -> tuple[int, str, tuple[str, ...]]:
        """As `perseid.worker.spark.restoring.restore_all`, one partition after the other."""
        ledgers = committed_epochs(
            self.plan, self.context.layout, SimulatedTransactions(self.world.broker),
            LedgerReader(
                SimulatedLogReader(self.world.broker), self.world.topics, self.context.clock
            ),
        )  # fmt: skip

        def restore(order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
            return (self._restore_one(order, self.context.layout.tasks[gid]) for gid in gids)

        gids = [t.gid for t in self.context.layout.stateful_tasks]
        found = agree(self.plan, past, gids, restore, lambda: ledgers)
        return found.epoch, resume.summary(found.restored, 1.0), found.events

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
        state = cache.partitions.state(task)
        work = PartitionRestore(
            context.files, self.world.store, state.log, task, context.identity(task),
            context.share(task),
        )  # fmt: skip
        found = work.run(order)
        state.epoch = None
        state.bring_to(found.epoch)
        self.give_back(cache)
        self._count(found)
        return found

    # Reports --------------------------------------------------------------------------------------

    def _state(self, state: str, source: str = "", events: tuple[str, ...] = ()) -> FragmentState:
        return FragmentState(
            self.plan.job_uuid, self.plan.generation, self.incarnation, state, self.epoch,
            restored_from=source, events=events, fragment=self.plan.only.fragment,
        )  # fmt: skip

    def _report(self, state: str, source: str = "", events: tuple[str, ...] = ()) -> None:
        self._word.append(self._state(state, source, events))

    def _report_for_sure(self, state: str, error: PerseidError | None = None) -> None:
        """Reports the final state until it is acknowledged: no other process knows of it.

        A failure is reported again whenever the report is lost, until a newer plan arrives.
        """
        record = self._state(state)
        if error is not None:
            record = replace(
                record, error_kind=type(error).__name__, error=str(error),
                permanent=isinstance(error, PermanentError),
            )  # fmt: skip
        self.context.report_until_acknowledged(record, self._word)
        while error is not None and not self.stopping:
            self.world.simulation.sleep(last_word.LOOK_S)
            if self._word.look(record):
                self.world.gates.hit("last word repeated")

    def _end_with(self, error: PerseidError) -> None:
        self.world.simulation.note(f"fragment ends: {type(error).__name__}: {error}")
        refuse_unharmed(self.world, error)
        if isinstance(error, FencedError) and "runs layout" in str(error):
            self.world.gates.hit("layout is over")
        self.world.gates.hit("fragment stopped" if self.stopping else "fragment failed")
        if self.stopping:
            self._report_for_sure("stopped")
        else:
            self._report_for_sure("failed", error)


def refuse_unharmed(world: World, error: PerseidError) -> None:
    """Raises Defect for damage that no fault caused: a restore would hide such an engine error."""
    if TO_RESTORE in str(error) and not world.logs_harmed:
        raise Defect(f"nothing has harmed the state logs: {error}")


class Attempt:
    """One attempt of one task. `ended` is set once; later results are a zombie's."""

    def __init__(self, fragment: Fragment, order: EpochOrder, task: Task, rows: list[Row]) -> None:
        self._fragment, self._order, self._task, self._rows = fragment, order, task, rows
        simulation = fragment.world.simulation
        self.ended = Signal(simulation)
        self.result: tuple[list[Row], TaskReport] = [], TaskReport(order.token.epoch)
        self.error: Exception | None = None
        marks = simulation.running().marks
        name = f"{fragment.incarnation} {task.label}@{order.token.epoch}"
        process = simulation.spawn(fragment.group, name, self._work)
        process.marks.update(marks, kind="task", abandon=self._abandon)

    def _abandon(self, error: Exception) -> None:
        if not self.ended.is_set:
            self.error = error
            self.ended.set()

    def _work(self) -> None:
        cache = self._fragment.borrow()
        self._fragment.world.simulation.running().marks["die"] = cache.die
        try:
            result = cache.partitions.run(self._order, self._rows, self._task.level)
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
