"""One job's fragment on this worker: restore, then one Structured Streaming query over its tokens.

    restoring -> running -> stopped | failed

A fragment serves one plan (one generation) in one thread and ends with it. It reports its states
and results on the progress topic. The driver handles tokens and reports, never data.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from perseid import logs
from perseid.errors import FencedError, PermanentError, PerseidError, RetryableError
from perseid.errors.texts import EVENT_MAX, cut, kind_of, text_of
from perseid.jobs.environments import activating, own_code
from perseid.jobs.environments.installing import Environments
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.trees import open_archive
from perseid.records import Plan, crashpoints
from perseid.topics import names
from perseid.topics.codec import decode_token
from perseid.topics.ranges import ColumnReader
from perseid.topics.records import FragmentState
from perseid.worker.checkpoint import part_orders
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.acknowledged import report_until_acknowledged
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.failures import classify
from perseid.worker.dataflow.feed import EpochFeed, TokenHistory, base_of, history
from perseid.worker.epoch import flow, last_word, memory
from perseid.worker.epoch.last_word import Appender, LastWord
from perseid.worker.epoch.token_loop import READ_TIMEOUT_S, TokenLoop
from perseid.worker.machine import MachineWatch
from perseid.worker.spark import frames, query, slots, token_source
from perseid.worker.spark.epochs import EpochRunner
from perseid.worker.spark.restoring import fence, restore_all
from perseid.worker.spark.session import local_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import TaskReport
    from perseid.records import CheckpointPointer, Deployment
    from perseid.records.access import Bootstrap
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader, ProgressLog

log = logging.getLogger("perseid.worker")
EXIT_UNREPORTED = 6  # exit code of a worker that could not report how its fragment ended
end_worker = os._exit


@dataclass(frozen=True)
class Clients:
    """The Kafka clients of one fragment's driver side."""

    tokens: LogReader
    topics: TopicReader
    progress: LastWord

    @classmethod
    def open(cls, bootstrap: Bootstrap, job: str, progress: ProgressLog) -> Clients:
        from perseid.topics.admin import TopicAdmin
        from perseid.topics.log import KafkaLogReader

        topics = TopicAdmin(bootstrap)
        word = LastWord(job, progress, topics, lambda: KafkaLogReader(bootstrap))
        return cls(KafkaLogReader(bootstrap), topics, word)

    def close(self) -> None:
        self.tokens.close()


class Fragment:
    """See the module's docstring. `start` returns at once; `stop` waits for the thread to end."""

    def __init__(
        self,
        spark: SparkSession,
        deployment: Deployment,
        plan: Plan,
        incarnation: str,
        cache: Path,
        scratch: Path,
        machine: MachineWatch | None = None,
        complete: Callable[[], tuple[CheckpointPointer, ...]] = tuple,
    ) -> None:
        self.machine = machine or MachineWatch()
        self._complete = complete  # returns the complete checkpoints, newest first
        self.spark = spark
        self.deployment = deployment
        self.plan = plan
        self.incarnation = incarnation
        self.cache = cache
        self.scratch = scratch
        # complete checkpoints, set by the service
        self.pointers: tuple[CheckpointPointer, ...] = ()
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._finishing = threading.Event()  # no further epoch starts
        self._busy = threading.Lock()  # held while an epoch or a look runs
        self._restored = threading.Event()  # from now on epochs may run
        self._loop: TokenLoop | None = None  # runs them; None if the restore failed
        self._taken_s = 0.0  # monotonic time at which the last record was handled
        self._state_bytes: Mapping[int, int] = {}  # of the last epoch, by operator partition
        self._query: StreamingQuery | None = None
        self._error: BaseException | None = None
        self._token = secrets.token_hex(16)  # marks errors of its tasks (`errors.carried`)
        self._restored_epoch = plan.base_epoch
        self._replay_to = plan.base_epoch  # epochs up to this one were issued before this life
        name = f"fragment-{plan.job}-{plan.generation}"
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    @property
    def epoch(self) -> int:
        """The last completed epoch."""
        return self._restored_epoch if self._loop is None else self._loop.epoch

    def finish(self) -> None:
        """From now on no further epoch starts; a running epoch completes."""
        self._finishing.set()

    def finished(self, timeout_s: float) -> bool:
        """Whether no epoch runs any more; call it after `finish`. Waits at most `timeout_s`."""
        rests = self._busy.acquire(timeout=max(0.0, timeout_s))
        if rests:
            self._busy.release()
        return rests

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ends the query; a running epoch is aborted, and the next owner runs it again."""
        self._stopping.set()
        self._stop_query()
        self._thread.join(timeout_s)

    def _live(self) -> None:
        logs.bind(job=self.plan.job, generation=self.plan.generation)
        try:
            failure = self._run_and_report()
            while failure is not None and not self._stopping.wait(last_word.LOOK_S):
                progress, record = failure
                progress.look(record)
        except BaseException as error:
            # Without a report the coordinator would wait for a fragment that no longer exists.
            log.critical("the worker ends: how its fragment ended cannot be reported: %s",
                         cut(text_of(error)), exc_info=error)  # fmt: skip
            end_worker(EXIT_UNREPORTED)

    def _run_and_report(self) -> tuple[LastWord, FragmentState] | None:
        """The reported failure and the log it was reported to; None after a regular stop."""
        from perseid.topics.log import KafkaLogWriter, ProgressLog

        bootstrap = self.deployment.brokers(self.plan.job)
        log_ = ProgressLog(self.plan.job, writer=KafkaLogWriter(bootstrap))
        progress: Appender = log_
        try:
            with ExitStack() as held:
                # The first append waits 0.5 s for the producer's id; the restore runs meanwhile.
                reporting = threading.Thread(
                    target=logs.carried(self._report_if_acknowledged), args=(progress, "restoring")
                )
                reporting.start()
                held.callback(reporting.join)
                clients = held.enter_context(closing(Clients.open(bootstrap, self.plan.job, log_)))
                progress = clients.progress
                self._run(clients, reporting, held)
            self._report(progress, "stopped")
            return None
        except BaseException as error:
            record = self._end_with(progress, error)
            return (progress, record) if record and isinstance(progress, LastWord) else None
        finally:
            self.machine.forget(self.plan.job)
            self._ended.set()

    def _report_if_acknowledged(self, progress: Appender, state: str) -> None:
        """Logs a failed report only: if a broker is unavailable, the restore reports that."""
        try:
            self._report(progress, state)
        except PerseidError as error:
            log.warning("that the fragment is %s is not reported: %s", state, error)

    def _run(self, clients: Clients, reporting: threading.Thread, held: ExitStack) -> None:
        context = self._context(held)
        runner = EpochRunner(self.spark, context)
        fence(runner)
        past = self._history(clients)
        try:
            with ThreadPoolExecutor(2, "perseid-plan") as pool:
                planned = pool.submit(runner.prepare)
                begun = pool.submit(self._start_query, runner, clients, past.base.offset)
                done, origin, events = restore_all(runner, self.plan, past)
            planned.result()
            log.info("restored from %s", origin or "nothing", extra={"epoch": done})
            self._restored_epoch, self._replay_to = done, past.tip_epoch
            feed = EpochFeed(past, done, self.plan.layout, self.plan.generation)
            reporting.join()
            loop = self._loop_of(runner, clients, feed)
            self._report_last_event_times(clients, context, loop)
            self._report(clients.progress, "running", origin, events)
            self._loop = loop
            self._restored.set()
            self._await_end(runner, clients, begun.result())
        finally:
            self._stop_query()
            runner.close()
            shutil.rmtree(self.scratch / self._thread.name, ignore_errors=True)
        if not self._stopping.is_set():
            raise RetryableError("the streaming query ended by itself")

    def _await_end(self, runner: EpochRunner, clients: Clients, running: StreamingQuery) -> None:
        try:
            while not running.awaitTermination(part_orders.LOOK_S):
                self._look(runner, clients)
        except Exception as error:  # Spark wraps what the batch raised: raise the original error
            raise self._error or error from None

    def _start_query(
        self, runner: EpochRunner, clients: Clients, base_offset: int
    ) -> StreamingQuery:
        """Starts the query, which takes half a second or more, while the state is restored.

        Its epochs wait for the restore. `base_offset`: no epoch begins before it.
        """
        name, topic = self._thread.name, names.tokens(self.plan.job)
        brokers = runner.context.brokers
        source = token_source.source_class(brokers, topic, base_offset, self._token)
        take = partial(self._take, runner, clients)
        self._query = query.start(self.spark, name, self.scratch / name, source, take)
        if self._stopping.is_set():  # `stop` has found no query to end
            self._stop_query()
        return self._query

    def _take(self, runner: EpochRunner, clients: Clients, rows: query.Records) -> None:
        """One micro-batch; runs in a thread of Spark's gateway."""
        logs.bind(job=self.plan.job, generation=self.plan.generation)
        self._restored.wait()
        loop = self._loop
        if loop is None:
            return
        ahead = query.read_ahead(
            clients.tokens, names.tokens(self.plan.job), lambda: loop.offset, self._continues,
            self.deployment.read_ahead_s,
        )  # fmt: skip
        try:
            for offset, record in chain(rows, ahead):
                self._on_record(runner, clients, loop, offset, record)
        except BaseException as error:
            self._error = error
            raise
        if self._finishing.is_set():
            self._stopping.wait()  # otherwise Spark starts one empty batch after another

    def _stop_query(self) -> None:
        """Ends what `_start_query` began, also when the restore failed; raises nothing."""
        self._restored.set()
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # Spark itself may have ended
                log.warning("the query cannot be stopped: %s", error)

    def _continues(self) -> bool:
        return not (self._stopping.is_set() or self._finishing.is_set())

    def _loop_of(self, runner: EpochRunner, clients: Clients, feed: EpochFeed) -> TokenLoop:
        return TokenLoop(
            self.plan, self.incarnation, runner.context.layout, feed, clients.progress,
            partial(self._execute, runner), self._known,
        )  # fmt: skip

    def _known(self, now: bool) -> tuple[CheckpointPointer, ...]:
        """The complete checkpoints; `now`: also one that the service does not know of yet."""
        if now:
            try:
                self.pointers = self._complete()
            except RetryableError as error:
                log.info("a checkpoint builds upon the last one that was heard of: %s", error)
        return self.pointers

    def _on_record(
        self, runner: EpochRunner, clients: Clients, loop: TokenLoop, offset: int, record: bytes
    ) -> None:
        with self._busy:
            if not self._continues():
                return
            order = loop.take(offset, record)
            self._taken_s = time.monotonic()
            if order is None:
                return
            runner.clean()  # while the coordinator grants the next epoch
            if memory.is_judged(order.token):
                self._judge_memory(runner, clients)

    def _execute(
        self, runner: EpochRunner, order: EpochOrder, record: bytes
    ) -> tuple[TaskReport, int]:
        if order.token.epoch <= self._replay_to:
            crashpoints.reach("replay.during")
        logs.bind(job=self.plan.job, generation=self.plan.generation, epoch=order.token.epoch)
        started = time.monotonic()
        done = runner.run(order, record)
        crashpoints.reach("epoch.before-report")
        self._state_bytes = done.state_bytes
        return done, round((time.monotonic() - started) * 1000)

    def _judge_memory(self, runner: EpochRunner, clients: Clients) -> None:
        sizes = self._state_bytes
        warnings = runner.memory.look(self.epoch, sizes)
        if runner.context.lanes:  # otherwise the state is on other machines
            warnings += self.machine.judge(self.plan.job, self.epoch, sum(sizes.values()))
        for warning in warnings:
            self._report(clients.progress, "warning", events=(warning,))

    def _report_last_event_times(
        self, clients: Clients, context: FragmentContext, loop: TokenLoop
    ) -> None:
        plans = frames.timed_plans(context)
        if plans:
            # the reader is not shared: fragments are threads
            with closing(ColumnReader(context.brokers)) as reader:
                loop.report_last_event_times(clients.tokens, reader, plans)

    def _look(self, runner: EpochRunner, clients: Clients) -> None:
        """What a fragment does that has waited for a token for LOOK_S."""
        if time.monotonic() - self._taken_s < part_orders.LOOK_S or not self._continues():
            return
        if self._busy.acquire(blocking=False):
            try:
                self._take_over_orders(runner)
                clients.progress.look(self._state(last_word.REPEATED))
            finally:
                self._busy.release()

    def _take_over_orders(self, runner: EpochRunner) -> None:
        from perseid.worker.checkpoint.checkpoints import take_over_orders

        ordered = 0 if self._loop is None else self._loop.checkpoint_epoch
        if part_orders.outstanding(ordered, self.pointers):
            slots.everywhere(runner, take_over_orders)

    def _context(self, held: ExitStack) -> FragmentContext:
        folder = open_archive(self.deployment.store, self.plan.archive, self.cache)
        spec = flow.spec_of(folder)
        if not self.deployment.jobs_allow_code:
            own_code.refuse(spec, folder)
        packages = held.enter_context(Environments.of(self.deployment).lease(folder))
        activating.use(folder, packages)
        layout = layouts.build(spec, self.plan.layout)
        lanes = local_cores(self.spark.sparkContext.master or "")
        if graph.build(spec, layout).feedback and not lanes:
            raise PermanentError(
                f"job {self.plan.job} has feedback edges, which read the state logs of all "
                f"operator partitions, and {self.spark.sparkContext.master} may have them on "
                "several hosts; run the job on workers with a local master"
            )
        return FragmentContext(
            deployment=self.deployment,
            job=self.plan.job,
            job_uuid=self.plan.job_uuid,
            generation=self.plan.generation,
            incarnation=self.incarnation,
            revision=self.plan.revision,
            archive=self.plan.archive,
            folder=str(folder),
            layout=layout,
            base_epoch=self.plan.base_epoch,
            lanes=lanes,
            one_task_each=graph.build(spec, layout).has_late_sql,
            rescaled=self.plan.rescaled,
            environment=str(packages or ""),
            token=self._token,
        )

    def _history(self, clients: Clients) -> TokenHistory:
        base = base_of(self.plan)
        topic = names.tokens(self.plan.job)
        end = clients.topics.ends([(topic, 0)])[topic, 0]
        found = clients.tokens.read_range(topic, 0, base.offset, end, timeout_s=READ_TIMEOUT_S)
        return history(base, ((e.offset, decode_token(topic, e.offset, e.value)) for e in found))

    def _report(
        self, progress: Appender, state: str, source: str = "", events: tuple[str, ...] = ()
    ) -> None:
        events = tuple(cut(event, EVENT_MAX) for event in events)
        for event in events:
            log.warning("%s", event, extra={"epoch": self.epoch})
        log.info("the fragment is %s", state, extra={"epoch": self.epoch})
        progress.append(replace(self._state(state), restored_from=source, events=events))

    def _state(self, state: str) -> FragmentState:
        return FragmentState(
            job_uuid=self.plan.job_uuid,
            generation=self.plan.generation,
            incarnation=self.incarnation,
            state=state,
            epoch=self.epoch,
            fragment=self.plan.only.fragment,
        )

    def _end_with(self, progress: Appender, error: BaseException) -> FragmentState | None:
        """Reports how the fragment ended; returns the record of a failure.

        A fragment that is stopped or fenced exits cleanly.
        """
        known = classify(error, self._token)
        if self._stopping.is_set() or isinstance(known, FencedError):
            log.info("the fragment ended: %s", known, extra={"epoch": self.epoch})
            if self._stopping.is_set():
                # There is a newer plan, or the worker leaves.
                self._report_if_acknowledged(progress, "stopped")
                return None
        else:
            log.error("the fragment failed: %s", known, exc_info=error,
                      extra={"epoch": self.epoch})  # fmt: skip
        record = replace(
            self._state("failed"),
            error_kind=kind_of(known),
            error=cut(text_of(known)),
            permanent=isinstance(known, PermanentError),
        )
        # A stop ends it: then a newer plan exists, so the end is known.
        report_until_acknowledged(progress.append, record, self._stopping.wait, _shorter)
        return record


def _shorter(record: FragmentState) -> FragmentState:
    """For a broker that takes small records only."""
    return replace(record, error=cut(record.error, EVENT_MAX))
