"""One job's fragment on this worker: a thread, and its life on Spark (`perseid.engine.fragment`).

A fragment serves one plan (one generation) in one thread and ends with it, but for a replica, which
may become the primary. It reports its states and results on the progress topic.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from perseid import logs
from perseid.engine.fragment import FragmentLife
from perseid.engine.last_word import LastWord
from perseid.errors import PermanentError, PerseidError, RetryableError
from perseid.errors.texts import cut, text_of
from perseid.jobs.model import assignments
from perseid.jobs.model.spread import spread_of
from perseid.records import GATE, WHOLE, Plan
from perseid.worker import opening
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.failures import classify
from perseid.worker.epoch import flow
from perseid.worker.machine import MachineWatch
from perseid.worker.spark.epochs import EpochRunner
from perseid.worker.spark.running import Control, SparkRuntime
from perseid.worker.spark.session import local_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from perseid.jobs.model.spread import Spread
    from perseid.records import Assignment, CheckpointPointer, Deployment
    from perseid.topics.admin import TopicAdmin

log = logging.getLogger("perseid.worker")
EXIT_UNREPORTED = 6  # exit code of a worker that could not report how its fragment ended
end_worker = os._exit


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
        self._first = plan
        self.incarnation = incarnation
        self.cache = cache
        self.scratch = scratch
        # complete checkpoints, set by the service
        self.pointers: tuple[CheckpointPointer, ...] = ()
        self._control = Control()
        self._ended = threading.Event()
        self._life: FragmentLife | None = None
        self._runtime: SparkRuntime | None = None
        self._token = secrets.token_hex(16)  # marks errors of its tasks (`errors.carried`)
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def plan(self) -> Plan:
        """The plan that it serves: the primary's once its promotion has begun."""
        return self._first if self._life is None else self._life.plan

    @property
    def name(self) -> str:
        """Of its thread, query and folder: no other life in this worker has it, and it stays.

        The fragments of a job may have one generation; no job's name has a dot.
        """
        plan, own = self._first, self._first.only.name
        part = "" if own == WHOLE else f".{own}"
        return f"fragment-{plan.job}-{plan.generation}{part}"

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    @property
    def epoch(self) -> int:
        """The last completed epoch."""
        return self.plan.base_epoch if self._life is None else self._life.epoch

    def promote(self, plan: Plan) -> bool:
        """Lets the replica become the primary of `plan` soon; may be called again until it is.

        False when it still restores or has ended: then another life has to be the primary.
        """
        return self._control.promote(plan) and not self.ended

    def finish(self) -> None:
        """From now on no further epoch starts; a running epoch completes."""
        self._control.finishing.set()

    def finished(self, timeout_s: float) -> bool:
        """Whether no epoch runs any more; call it after `finish`. Waits at most `timeout_s`."""
        rests = self._control.busy.acquire(timeout=max(0.0, timeout_s))
        if rests:
            self._control.busy.release()
        return rests

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ends the query; a running epoch is aborted, and the next owner runs it again."""
        self._control.stopping.set()
        if self._runtime is not None:
            self._runtime.stop()
        self._thread.join(timeout_s)

    def _live(self) -> None:
        logs.bind(job=self.plan.job, generation=self.plan.generation)
        try:
            life = self._life = FragmentLife(self.plan, self.incarnation, self._progress(), self)
            try:
                failure = life.run()
            finally:
                self.machine.forget(self.plan.job, self.plan.only.fragment)
                self._ended.set()
            if failure is not None:
                life.repeat(failure)
        except BaseException as error:
            # Without a report the coordinator would wait for a fragment that no longer exists.
            log.critical("the worker ends: how its fragment ended cannot be reported: %s",
                         cut(text_of(error)), exc_info=error)  # fmt: skip
            end_worker(EXIT_UNREPORTED)

    def _progress(self) -> LastWord:
        from perseid.topics.log import KafkaLogReader, KafkaLogWriter, ProgressLog

        bootstrap = self.deployment.brokers(self.plan.job)
        progress = ProgressLog(self.plan.job, writer=KafkaLogWriter(bootstrap))
        reader = partial(KafkaLogReader, bootstrap)
        return LastWord(self.plan.job, progress, self._topics, reader)

    @cached_property
    def _topics(self) -> TopicAdmin:
        from perseid.topics.admin import TopicAdmin

        return TopicAdmin(self.deployment.brokers(self.plan.job))

    # Host of its life ---------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._control.stopping.is_set()

    def wait(self, seconds: float) -> bool:
        return self._control.stopping.wait(seconds)

    def meanwhile(self, work: Callable[[], None]) -> Callable[[], None]:
        """For the first report, which waits 0.5 s for the producer's id."""
        thread = threading.Thread(target=logs.carried(work))
        thread.start()
        return thread.join

    def classified(self, error: BaseException) -> PerseidError:
        return classify(error, self._token)

    @contextmanager
    def opened(self) -> Iterator[SparkRuntime]:
        from perseid.topics.log import KafkaLogReader

        with ExitStack() as held:
            bootstrap = self.deployment.brokers(self.plan.job)
            tokens = held.enter_context(closing(KafkaLogReader(bootstrap)))
            runner = EpochRunner(self.spark, self._context(held))
            ahead = tokens
            if self.plan.only.muted:
                ahead = held.enter_context(closing(KafkaLogReader(bootstrap)))
            runtime = SparkRuntime(
                runner, self.plan, tokens, self._topics, self._control,
                self.scratch / self.name, self._known,
                partial(self.machine.judge, fragment=self.plan.only.fragment), ahead,
            )  # fmt: skip
            self._runtime = held.enter_context(closing(runtime))
            yield runtime

    def _known(self, now: bool) -> tuple[CheckpointPointer, ...]:
        """The complete checkpoints; `now`: also one that the service does not know of yet."""
        if now:
            try:
                self.pointers = self._complete()
            except RetryableError as error:
                log.info("a checkpoint builds upon the last one that was heard of: %s", error)
        return self.pointers

    def _context(self, held: ExitStack) -> FragmentContext:
        plan = self.plan
        context = opening.context_of(
            plan, self.deployment, local_cores(self.spark.sparkContext.master or ""), self.cache,
            held, incarnation=self.incarnation, token=self._token,
            outputs=str(self.scratch / f"{self.name}-outputs") if plan.only.approved else "",
        )  # fmt: skip
        spec = flow.spec_of(context.job_folder)
        if plan.only.role != GATE:  # which is one fragment, whatever the job's are
            refuse_other_cut(plan.job, plan.only, spread_of(spec, flow.whole_layout(context)))
        if context.outputs and not context.lanes:
            raise PermanentError(
                f"job {plan.job}: a gate with approved differences reads what its tasks have made, "
                f"and {self.spark.sparkContext.master} may have that on several hosts; run it on "
                "workers with a local master, or apply the revision without a gate"
            )
        if flow.graph_of(context).feedback and not context.lanes:
            raise PermanentError(
                f"job {plan.job} has feedback edges, which read the state logs of all operator "
                f"partitions, and {self.spark.sparkContext.master} may have them on several "
                "hosts; run the job on workers with a local master"
            )
        return context


def refuse_other_cut(job: str, own: Assignment, spread: Spread | None) -> None:
    """PermanentError unless the assignment is a fragment of `spread`, or the whole job for None.

    Its partitions would wait without end for rows that no fragment sends.
    """
    expected = assignments.parts(spread)
    if (own.gids, own.split) not in {(gids, split) for _, gids, split in expected}:
        raise PermanentError(
            f"job {job}: the plan has a fragment {own.fragment} that reads split {own.split} and "
            f"has the operator partitions {own.gids}; this worker cuts the job into "
            f"{len(expected)} fragments, of which none is that one. Let coordinators and workers "
            "run the same version of perseid (`perseid status`), then apply the job again"
        )
