"""The epochs of one fragment on Spark: the runtime of `perseid.engine.fragment`.

One Structured Streaming query over the fragment's tokens. The driver handles tokens and reports,
never data.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from perseid import logs
from perseid.errors import FencedError, RetryableError
from perseid.records import GATE, REPLICA, crashpoints
from perseid.topics import names
from perseid.topics.ranges import ColumnReader
from perseid.worker.checkpoint import part_orders
from perseid.worker.dataflow import source
from perseid.worker.epoch import flow, memory
from perseid.worker.epoch.inbox import kafka_inbox
from perseid.worker.sink.audit import kafka_audit
from perseid.worker.spark import frames, query, restoring, slots, token_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

    from perseid.engine.agreement import RestoreOrder
    from perseid.engine.feed import TokenHistory
    from perseid.engine.fragment import FragmentLife
    from perseid.engine.order import EpochOrder
    from perseid.engine.resume import Restored
    from perseid.engine.task_report import Reads, TaskReport
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import CheckpointPointer, Plan
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader
    from perseid.topics.records import Token
    from perseid.worker.epoch.inbox import BufferInbox
    from perseid.worker.sink.audit import Approval, LedgerAudit
    from perseid.worker.spark.epochs import EpochRunner

log = logging.getLogger("perseid.worker")
BEGIN_S = 10.0  # for epochs before the query has its first rows; then the fragment waits for it


@dataclass
class Control:
    """How a fragment is asked to end or to become the primary, from other threads."""

    stopping: threading.Event = field(default_factory=threading.Event)  # a running epoch is aborted
    finishing: threading.Event = field(default_factory=threading.Event)  # no further epoch starts
    busy: threading.Lock = field(default_factory=threading.Lock)  # while an epoch or a look runs
    turn: threading.Lock = field(default_factory=threading.Lock)  # of who waits for `busy`
    follows: bool = False  # whether the fragment is restored and has not ended
    primary: Plan | None = None  # what it is to become
    woken: threading.Event = field(default_factory=threading.Event)

    @property
    def continues(self) -> bool:
        return not (self.stopping.is_set() or self.finishing.is_set())

    def promote(self, plan: Plan) -> bool:
        """Asks for a promotion; False where there is nothing that could be promoted."""
        if not self.follows:
            return False
        self.primary = plan
        self.woken.set()
        return True

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Holds `busy`. Who waits for it comes before all who ask later: a lock is not fair."""
        with self.turn:
            self.busy.acquire()
        try:
            yield
        finally:
            self.busy.release()


class SparkRuntime:
    """See the module's docstring. `known`: as `Runtime.known`. `close` ends the query.

    `ahead`: the reader of the query, which is not shared with a promotion; None: `tokens`.
    """

    def __init__(
        self,
        runner: EpochRunner,
        plan: Plan,
        tokens: LogReader,
        topics: TopicReader,
        control: Control,
        folder: Path,
        known: Callable[[bool], tuple[CheckpointPointer, ...]],
        judge_memory: Callable[[str, int, int], Iterable[str]],
        ahead: LogReader | None = None,
    ) -> None:
        self.runner, self.plan, self.tokens, self.topics = runner, plan, tokens, topics
        self._ahead = ahead or tokens
        self.layout, self.known = runner.context.layout, known
        self._control, self._folder, self._judge_memory = control, folder, judge_memory
        self._pool = ThreadPoolExecutor(3, "perseid-restore")
        self._asked = threading.Event()  # the query has its first rows
        self._begun = threading.Event()  # from now on the query runs the epochs
        self._life: FragmentLife | None = None  # takes the records; None if the restore failed
        self._taken_s = 0.0  # monotonic time at which the last record was handled
        self._state_bytes: Mapping[int, int] = {}  # of the last epoch, by operator partition
        self._query: StreamingQuery | None = None
        self._starting: Future[None] = Future()  # of the query
        self._inbox: BufferInbox | None = None
        self._audit: LedgerAudit | None = None  # of a replica
        self._ledgers: restoring.Ledgers | None = None  # the same, ready for its promotion
        self._rows = folder.with_name(f"{folder.name}-rows")  # of a level, on their way to tasks
        self._error: BaseException | None = None
        self._group: str | None = None  # the job group of what runs outside the query

    @property
    def spec(self) -> JobSpec:
        return flow.spec_of(self.runner.context.job_folder)

    def now_s(self) -> float:
        return time.monotonic()

    # Restore ------------------------------------------------------------------------------------

    def fence(self) -> None:
        restoring.fence(self.runner)

    def prepare(self, base_offset: int) -> Callable[[], None]:
        """Plans an epoch. Starts the query, which takes seconds: `follow` waits for it."""
        self._starting = self._pool.submit(self._start_query, base_offset)
        return self._pool.submit(self.runner.prepare).result

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        ready = self._ledgers or restoring.Ledgers(self.runner.context)
        self._ledgers = None
        return self._pool.submit(restoring.ledgers, ready, self.plan).result

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> list[Restored]:
        return restoring.restore(self.runner, order, gids)

    def begin(self, past: TokenHistory, done_epoch: int) -> None:
        """With a split, begins to read its buffers; else the rows of an epoch come within it.

        A replica begins to compare itself with its primary.
        """
        context = self.runner.context
        if self.plan.only.muted:
            self._audit = kafka_audit(context.brokers, self.plan, self.layout, self._approving())
        if self.plan.only.role == REPLICA:
            self._ledgers = restoring.Ledgers(context)
            self._ledgers.connect(self.plan)
        if context.split is None:
            return
        inbox = self._inbox = kafka_inbox(
            context, lambda: self._control.continues, self._warn, lambda: self.known(False),
            self._pool.submit,
        )  # fmt: skip
        inbox.begin(past, done_epoch)
        self.runner.begin(inbox, self._rows)

    def _approving(self) -> Callable[[ColumnReader], Approval] | None:
        approved = self.plan.only.approved
        if not approved:
            return None
        from perseid.replay.approving import of_folder  # the only ones above: what audits do
        from perseid.replay.sink_columns import Revision, SinkColumns

        context = self.runner.context
        columns = SinkColumns(context.deployment, Revision(self.spec, context.job_folder))
        return partial(of_folder, columns, Path(context.outputs), approved)

    def read_again(self, token: Token) -> Reads:
        context = self.runner.context
        with closing(ColumnReader(context.brokers)) as reader:  # not shared: fragments are threads
            return source.read_again(reader, frames.timed_plans(context), token)

    # Epochs -------------------------------------------------------------------------------------

    def follow(self, life: FragmentLife) -> None:
        self._life = life
        woken = self._control.woken
        self._control.follows = True
        try:
            self._begin_ahead(life)
            self._begun.set()
            self._starting.result()
            assert self._query is not None, "it has started"
            ended = query.awaited(self._query, woken.set)
            while not ended.done():
                if not woken.wait(part_orders.LOOK_S):
                    self._look(life)
                elif not ended.done():
                    woken.clear()
                    self._promote(life)
            ended.result()
        except Exception as error:  # Spark wraps what the batch raised: raise the original error
            raise self._error or error from None
        finally:
            self._control.follows = False
            self.stop()
        if not self._control.stopping.is_set():
            raise RetryableError("the streaming query ended by itself")

    def _begin_ahead(self, life: FragmentLife) -> None:
        """Runs epochs that wait, until the query has its first rows."""
        control = self._control

        def wanted() -> bool:
            return control.continues and not (self._asked.is_set() or control.woken.is_set())

        topic = names.tokens(self.plan.job)
        ahead = query.read_ahead(self._ahead, topic, lambda: life.offset, wanted, BEGIN_S)
        with self._outside("begin"):
            for offset, record in ahead:
                self._on_record(life, offset, record)

    @contextmanager
    def _outside(self, what: str) -> Iterator[None]:
        """For epochs in the fragment's own thread; the query runs none after an error."""
        self._group = f"{self._folder.name}-{what}"
        try:
            with query.cancellable(self.runner.spark, self._group):
                yield
        except BaseException as error:
            self._error = self._error or error  # before the next record has its turn
            raise
        finally:
            self._group = None

    def promoted(self, plan: Plan) -> None:
        self.plan = plan
        logs.bind(job=plan.job, generation=plan.generation)

    def compare(self) -> Callable[[], None]:
        audit, self._audit = self._audit, None
        if audit is None:
            return lambda: None
        warnings = self._pool.submit(audit.last)

        def wait() -> None:
            for warning in warnings.result():
                self._warn(warning)

        return wait

    def _promote(self, life: FragmentLife) -> None:
        """In the fragment's own thread: the query has none while there is no token."""
        wanted = self._control.primary
        if wanted is None or wanted.generation <= life.plan.generation:
            return
        with self._control.in_turn():
            if self._control.continues and self._error is None:
                with self._outside(f"promotion-{wanted.generation}"):
                    life.promote(wanted)
            self._taken_s = time.monotonic()

    def execute(self, order: EpochOrder, record: bytes) -> tuple[TaskReport, int]:
        if self._life is not None and order.token.epoch <= self._life.replay_to:
            crashpoints.reach("replay.during")
        logs.bind(job=self.plan.job, generation=self.plan.generation, epoch=order.token.epoch)
        started = time.monotonic()
        done = self.runner.run(order, record)
        crashpoints.reach("epoch.before-report")
        self._state_bytes = done.state_bytes
        if self._audit is not None:
            self._audit.ran(order, done)
        return done, round((time.monotonic() - started) * 1000)

    def after(self, order: EpochOrder) -> None:
        self.runner.clean()  # while the coordinator grants the next epoch
        if memory.is_judged(order.token):
            self._judge(order.token.epoch)
        self._judge_outputs()

    def _judge_outputs(self) -> None:
        """Raises Diverged, soon after the primary has committed other outputs than a replica's."""
        if self._audit is None:
            return
        for warning in self._audit.judged():
            self._warn(warning)
        if self._life is not None and self.plan.only.role == GATE:
            self._life.compared(self._audit.equal)

    def _end_audit(self) -> None:
        audit, self._audit = self._audit, None
        if audit is not None:
            audit.close()

    def _judge(self, epoch: int) -> None:
        sizes = self._state_bytes
        warnings = self.runner.memory.look(epoch, sizes)
        if self.runner.context.lanes:  # otherwise the state is on other machines
            warnings += tuple(self._judge_memory(self.plan.job, epoch, sum(sizes.values())))
        for warning in warnings:
            self._warn(warning)

    def _warn(self, event: str) -> None:
        if self._life is not None:
            self._life.report("warning", events=(event,))

    def take_over_orders(self) -> None:
        from perseid.worker.checkpoint.checkpoints import take_over_orders

        generation = self.plan.generation
        slots.everywhere(self.runner, partial(take_over_orders, generation=generation))

    def _look(self, life: FragmentLife) -> None:
        waited_s = time.monotonic() - self._taken_s
        if waited_s < part_orders.LOOK_S or not self._control.continues:
            return
        if self._control.busy.acquire(blocking=False):
            try:
                life.look()
                self._judge_outputs()
            finally:
                self._control.busy.release()

    # Query --------------------------------------------------------------------------------------

    def _start_query(self, base_offset: int) -> None:
        """Its epochs wait for the restore, and for those that run before it."""
        context, topic = self.runner.context, names.tokens(self.plan.job)
        tokens = token_source.source_class(context.brokers, topic, base_offset, context.token)
        name = self._folder.name
        self._query = query.start(self.runner.spark, name, self._folder, tokens, self._take)
        if self._control.stopping.is_set():  # `stop` has found no query to end
            self.stop()

    def _take(self, rows: query.Records) -> None:
        """One micro-batch; runs in a thread of Spark's gateway."""
        logs.bind(job=self.plan.job, generation=self.plan.generation)
        self._asked.set()
        self._begun.wait()
        life = self._life
        if life is None:
            return
        ahead = query.read_ahead(
            self._ahead, names.tokens(self.plan.job), lambda: life.offset,
            lambda: self._control.continues and self._error is None,
            self.runner.context.deployment.read_ahead_s,
        )  # fmt: skip
        try:
            for offset, record in chain(rows, ahead):
                self._on_record(life, offset, record)
        except BaseException as error:
            self._error = error
            raise
        if self._control.finishing.is_set():
            self._control.stopping.wait()  # otherwise Spark starts one empty batch after another

    def _on_record(self, life: FragmentLife, offset: int, record: bytes) -> None:
        with self._control.in_turn():
            if not self._control.continues:
                return
            if self._error is not None:  # of a promotion
                raise self._error
            try:
                life.take(offset, record)
            except FencedError as error:
                if self._control.continues or self._control.stopping.is_set():
                    raise
                log.info("the epoch is left to the next owner: %s", error)
            self._taken_s = time.monotonic()

    def stop(self) -> None:
        """Ends what `prepare` began, also when the restore failed; raises nothing."""
        self._begun.set()
        group = self._group
        try:
            if group is not None:
                query.cancel(self.runner.spark, group)
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # Spark itself may have ended
            log.warning("the query cannot be stopped: %s", error)

    def close(self) -> None:
        """Ends the query and deletes its files."""
        self._pool.shutdown()
        self._end_audit()
        if self._ledgers is not None:
            self._ledgers.close()
        self.stop()
        if self.plan.only.role == GATE:
            restoring.forget(self.runner.context)
        self.runner.close()
        if self._inbox is not None:
            self._inbox.close()
        kept = self.runner.context.outputs
        for folder in (self._folder, self._rows, *([kept] if kept else ())):
            shutil.rmtree(folder, ignore_errors=True)
