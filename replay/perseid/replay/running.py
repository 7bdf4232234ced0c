"""The run of an audit: past epochs again, muted, in this process, with a Spark of its own.

The life is that of every fragment (`perseid.engine.fragment`), over another host and runtime. All
operator partitions are one fragment, also those of a spread job: the rows of an epoch come in the
order of their origins, wherever they were made. State logs, scratch and outputs are in folders of
the audit. Of the job it reads the token log, the sources and the checkpoint store, and it writes
nothing: no progress, no lease, no transactional id. So it needs no query either: a record of the
token log that is there is taken.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from perseid import logs
from perseid.engine.feed import READ_TIMEOUT_S
from perseid.engine.fragment import FragmentLife, at_once
from perseid.engine.last_word import LastWord
from perseid.errors import PermanentError, RetryableError
from perseid.records import AUDIT, WHOLE, Assignment, CheckpointPointer, Plan
from perseid.replay.progress import Unusable
from perseid.topics import names
from perseid.topics.records import EpochDone
from perseid.worker import opening
from perseid.worker.dataflow.failures import classify
from perseid.worker.epoch import flow
from perseid.worker.spark import restoring
from perseid.worker.spark.epochs import EpochRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from perseid.engine.agreement import RestoreOrder
    from perseid.engine.feed import TokenHistory
    from perseid.engine.order import EpochOrder
    from perseid.engine.resume import Restored
    from perseid.engine.task_report import Reads, TaskReport
    from perseid.errors import PerseidError
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import Deployment
    from perseid.replay.ranges import Range
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader
    from perseid.topics.records import ProgressRecord, Token
    from perseid.worker.dataflow.context import FragmentContext

log = logging.getLogger("perseid.replay")
GENERATION = 1  # of an audit that begins: its logs have no earlier owner
NICE = 10  # of the process of an audit: the epochs of jobs come first
TOKENS_MAX = 500  # of one read of the token log

# Called after each epoch of a run.
Ran = Callable[["EpochOrder", "TaskReport", "FragmentContext"], None]


def plan_of(job: str, archive: str, span: Range, generation: int = GENERATION) -> Plan:
    """The plan of an audit: the files of `archive` run the epochs of `span`.

    It has the revision that the tokens name, whatever the files are. `generation`: higher than
    that of a process whose state logs it takes over.
    """
    pointer = span.checkpoint
    own = Assignment(WHOLE, None, "audit", generation, role=AUDIT, from_epoch=span.base_epoch)
    return Plan(
        job, span.job_uuid, generation, span.revision, archive, span.layout, span.base_epoch,
        span.base_offset, (own,), (pointer,) if pointer is not None else (),
        rescaled=span.redistributed,
    )  # fmt: skip


def apart(deployment: Deployment, job: str, folder: Path, cores: int) -> Deployment:
    """The deployment as an audit sees it: its own state, and clients that a quota can name."""
    return deployment.model_copy(update={
        "state": str(folder / "state"), "master": f"local[{cores},4]", "cores": cores,
        "kafka_client": f"perseid-audit-{job}",
    })  # fmt: skip


def pause_s(records: int, rate: int | None, took_s: float) -> float:
    """How long a run waits after an epoch to read no more than `rate` records/s.

    An epoch that took longer gives the next ones no credit.

    >>> pause_s(1_000, 500, took_s=0.5), pause_s(1_000, None, took_s=0.5)
    (1.5, 0.0)
    """
    return 0.0 if rate is None else max(0.0, records / rate - took_s)


class AuditRuntime:
    """`perseid.engine.fragment.Runtime` of an audit. `rate`: as in `pause_s`."""

    def __init__(
        self, runner: EpochRunner, plan: Plan, tokens: LogReader, topics: TopicReader, last: int,
        ran: Ran, rate: int | None = None, compared: int | None = None,
        kept_to: Callable[[], float] = lambda: math.inf,
    ) -> None:  # fmt: skip
        """`compared`: after which epoch it resumes, None if it begins at the plan's base.

        `kept_to`: to which epoch its state logs may be collected.
        """
        self._compared = plan.base_epoch if compared is None else compared
        self._kept_to = kept_to
        self.runner, self.plan, self.tokens, self.topics = runner, plan, tokens, topics
        self.layout = runner.context.layout
        self._last, self._ran, self._rate = last, ran, rate
        self._done: TaskReport | None = None
        self._folded: list[CheckpointPointer] = []  # newest first, two at most

    @property
    def spec(self) -> JobSpec:
        return flow.spec_of(self.runner.context.job_folder)

    def now_s(self) -> float:
        return time.monotonic()

    def fence(self) -> None:
        """Makes the folders of its logs, which have no other owner."""
        restoring.fence(self.runner)

    def promoted(self, plan: Plan) -> NoReturn:
        raise PermanentError(f"an audit of {plan.job} never becomes its primary")

    def compare(self) -> NoReturn:
        raise PermanentError(f"an audit of {self.plan.job} never becomes its primary")

    def prepare(self, _base_offset: int) -> Callable[[], None]:
        self.runner.prepare()
        return lambda: None

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        """In the place of ledgers: what was compared. State logs may have more epochs."""
        return lambda: {task.gid: self._compared for task in self.layout.ledger_tasks}

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> list[Restored]:
        return restoring.restore(self.runner, order, gids)

    def begin(self, past: TokenHistory, done_epoch: int) -> None:
        """There is no query, and no buffer. Unusable if the state is not what was compared."""
        if self._compared != done_epoch:
            raise Unusable(
                f"the state logs of the audit of {self.plan.job} are damaged: they end with epoch "
                f"{done_epoch}, and it was compared up to epoch {self._compared}. It cannot be "
                "resumed; delete its folder and begin it again"
            )

    def read_again(self, token: Token) -> Reads:
        raise PermanentError(f"epoch {token.epoch}: an audit reports no event times")

    def known(self, _now: bool) -> tuple[CheckpointPointer, ...]:
        """Where its state logs were folded: earlier entries are not needed, as of a checkpoint.

        None after `kept_to`: an audit that is killed then resumes there.
        """
        return tuple(pointer for pointer in self._folded if pointer.epoch <= self._kept_to())

    def execute(self, order: EpochOrder, record: bytes) -> tuple[TaskReport, int]:
        logs.bind(job=self.plan.job, epoch=order.token.epoch)
        started_s = time.monotonic()
        done = self._done = self.runner.run(order, record)
        took_s = time.monotonic() - started_s
        time.sleep(pause_s(sum(r.count for r in done.reads.values()), self._rate, took_s))
        return done, round(took_s * 1000)

    def after(self, order: EpochOrder) -> None:
        self.runner.clean()
        assert self._done is not None, "the epoch has run"
        token = order.token
        if token.checkpoint:
            self._folded[:] = [
                CheckpointPointer(token.epoch, 0, token.layout, token.revision, order.token_offset,
                                  "", 0, 0, token.time_ms),
                *self._folded[:1],
            ]  # fmt: skip
        self._ran(order, self._done, self.runner.context)

    def take_over_orders(self) -> None:
        """Nothing: an audit orders no checkpoint part."""

    def follow(self, life: FragmentLife) -> None:
        topic = names.tokens(self.plan.job)
        while life.epoch < self._last:
            found = self.tokens.read_from(
                topic, 0, life.offset, max_records=TOKENS_MAX, timeout_s=READ_TIMEOUT_S
            )
            if not found:
                raise RetryableError(
                    f"{topic}: no record at offset {life.offset}, before the token of epoch "
                    f"{self._last}; is the broker up?"
                )
            for entry in found:
                if life.epoch < self._last:
                    life.take(entry.offset, entry.value)


@dataclass
class _Progress:
    """What the progress reports of an audit add up to; no coordinator gets them."""

    reports: int = 0
    epochs: int = 0
    records_in: int = 0

    def append(self, record: ProgressRecord) -> int:
        self.reports += 1
        if isinstance(record, EpochDone):
            self.epochs += 1
            self.records_in += record.rows_in
        return self.reports


class AuditRun:
    """One run of past epochs. `folder`: its own; `ran`: called after each epoch."""

    stopping = False

    def __init__(
        self, spark: SparkSession | None, deployment: Deployment, plan: Plan, last: int,
        folder: Path, ran: Ran, rate: int | None = None,
    ) -> None:  # fmt: skip
        """`deployment`: as `apart` gives it; archives and packages of its runs are shared.

        `last`: the epoch after which it ends. `spark`: None if `_runtime` needs none.
        `rate`: records/s that it reads at most.
        """
        self._spark, self._plan, self.last, self._folder = spark, plan, last, folder
        self._deployment = deployment
        self._compared = plan.base_epoch
        self.kept_to: float = math.inf  # the epoch up to which what was compared is kept
        self._ran, self._rate, self._progress = ran, rate, _Progress()
        self._incarnation = f"audit-{secrets.token_hex(4)}"
        self._token = secrets.token_hex(16)  # marks errors of its tasks (`errors.carried`)
        self._error: PerseidError | None = None

    @property
    def outputs(self) -> Path:
        """What its sinks would have sent (`worker.sink.kept_outputs`)."""
        return self._folder / "outputs"

    @property
    def records_in(self) -> int:
        """The records that its epochs have read."""
        return self._progress.records_in

    @property
    def epochs(self) -> int:
        """How many have run."""
        return self._progress.epochs

    def begin(self) -> None:
        """`run` begins at the plan's base, and nothing is kept of it yet."""
        self.kept_to = self._compared

    def resume(self, epoch: int, epochs: int, records_in: int) -> None:
        """`run` then begins after `epoch`, with the counts of the epochs up to it."""
        self._compared = self.kept_to = epoch
        self._progress.epochs, self._progress.records_in = epochs, records_in

    def run(self) -> None:
        """Runs to the end of the span; raises what ended it earlier."""
        from perseid.topics.admin import TopicAdmin
        from perseid.topics.log import KafkaLogReader

        brokers = self._deployment.brokers(self._plan.job)
        self._topics = TopicAdmin(brokers)
        progress = LastWord(
            self._plan.job, self._progress, self._topics, partial(KafkaLogReader, brokers)
        )
        life = FragmentLife(self._plan, self._incarnation, progress, self)
        if life.run() is not None:
            assert self._error is not None, "a life that failed was classified"
            raise self._error

    # Host of its life ---------------------------------------------------------------------------

    def wait(self, _seconds: float) -> bool:
        return self.stopping

    meanwhile = staticmethod(at_once)

    def classified(self, error: BaseException) -> PerseidError:
        if not isinstance(error, Exception):  # the user ends it
            raise error
        self._error = classify(error, self._token)
        return self._error

    @contextmanager
    def opened(self) -> Iterator[AuditRuntime]:
        from perseid.topics.log import KafkaLogReader

        with ExitStack() as held:
            brokers = self._deployment.brokers(self._plan.job)
            tokens = held.enter_context(closing(KafkaLogReader(brokers)))
            yield self._runtime(self._context(held), tokens, held)

    def _runtime(
        self, context: FragmentContext, tokens: LogReader, held: ExitStack
    ) -> AuditRuntime:
        assert self._spark is not None, "epochs run on Spark"
        runner = held.enter_context(closing(EpochRunner(self._spark, context)))
        return AuditRuntime(
            runner, self._plan, tokens, self._topics, self.last, self._ran, self._rate,
            self._compared, lambda: self.kept_to,
        )  # fmt: skip

    def _context(self, held: ExitStack) -> FragmentContext:
        own = self._deployment.model_copy(update={"state": str(self._folder / "state")})
        return opening.context_of(
            self._plan, own, self._deployment.cores, archives(Path(self._deployment.state)), held,
            incarnation=self._incarnation, token=self._token, outputs=str(self.outputs),
        )  # fmt: skip


def archives(state: Path) -> Path:
    """Where an audit unpacks revisions, below its `Deployment.state`."""
    return state / "archives"
