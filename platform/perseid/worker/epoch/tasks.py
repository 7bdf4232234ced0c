"""Spark's tasks of level 1 and above as an executor of `perseid.engine.epoch`.

Runs in the Python processes of the executors. Resident state, sink sessions and logs are kept per
process between tasks; a new plan (another generation) drops those of the old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perseid import logs
from perseid.engine.epoch import Partitions
from perseid.errors import BadInputError
from perseid.jobs.model.spec import output_of
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import forget_layouts, log_directory
from perseid.state.primitives.primitive import bind
from perseid.worker.dataflow.barriers import counted, expected
from perseid.worker.dataflow.edges import Row, inputs
from perseid.worker.dataflow.failures import named
from perseid.worker.dataflow.partition import check_inputs
from perseid.worker.dead_letters import refused
from perseid.worker.epoch import flow
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.formats import encode, schemas, wire_format

if TYPE_CHECKING:
    import pyarrow as pa

    from perseid.engine.order import EpochOrder
    from perseid.engine.ports import Sink, Submit
    from perseid.engine.task_report import TaskReport
    from perseid.jobs.model.layout import Task
    from perseid.jobs.model.spec import JobSpec, SinkSpec
    from perseid.records.access import Bootstrap
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.ledger import LedgerReader
    from perseid.topics.transactions import SinkBatch, Transactions
    from perseid.worker.checkpoint.parts import PartOrder, StateCopy
    from perseid.worker.dataflow.context import FragmentContext

COMMITS_MAX = 8  # concurrent transactions of one task
IDLE_S = 60.0  # Spark's own limit for idle Python workers

T = TypeVar("T")


class Process:
    """The process cache of one fragment."""

    def __init__(self, context: FragmentContext) -> None:
        self.context = context
        self.used_s = 0.0  # time.monotonic()
        self.partitions: Partitions[Row] = Partitions(TaskExecutor(context))

    def close(self) -> None:
        for session in self.partitions.sinks.values():
            session.close()


# By job UUID and fragment; tasks of all jobs of a worker share the process.
_processes: dict[tuple[str, str], Process] = {}


def process_of(context: FragmentContext) -> Process:
    """The process cache for the fragment of `context`.

    Drops that of an older owner of the same fragment, those of the job's older layouts, which may
    have other fragments, and those unused for IDLE_S.
    """
    now_s, own = time.monotonic(), (context.job_uuid, context.fragment)
    for key, keep in list(_processes.items()):
        replaced = key == own and keep.context.owner != context.owner
        older = key[0] == own[0] and keep.context.layout.number < context.layout.number
        if replaced or older or (key != own and now_s - keep.used_s > IDLE_S):
            _processes.pop(key, keep).close()
    mine = _processes.setdefault(own, Process(context))
    mine.used_s = now_s
    return mine


def run_rows(
    context: FragmentContext, order: EpochOrder, rows: list[Row], level: int
) -> tuple[list[Row], TaskReport]:
    """One task: takes the rows of one slot of `level`, returns rows for the following levels."""
    flow.refuse_undelivered(context, rows)
    return process_of(context).partitions.run(order, rows, level)


def log_of(context: FragmentContext, task: Task) -> StateLog:
    identity = Identity(context.job_uuid, context.layout.number, task.operator, task.partition)
    directory = log_directory(context.owned, task.operator, task.partition)
    return StateLog(LocalFiles(), directory, identity)


class TaskExecutor:
    """`perseid.engine.ports.Executor` in a Python process of Spark."""

    def __init__(self, context: FragmentContext) -> None:
        self.context = context
        self.job, self.layout = context.job, context.layout
        self.base_epoch = context.base_epoch

    @property
    def spec(self) -> JobSpec:
        return flow.spec_of(self.context.job_folder)

    def begin(self, order: EpochOrder) -> None:
        from perseid.worker.checkpoint.checkpoints import refuse_damaged, take_over_orders

        refuse_damaged(self.context)
        take_over_orders(self.context, order.generation)

    @contextmanager
    def about(self, task: Task, order: EpochOrder) -> Iterator[None]:
        with logs.about(operator=task.operator, partition=task.partition), named(_who(task, order)):
            yield

    def now_s(self) -> float:
        return time.monotonic()

    def new_state(self, task: Task) -> PartitionState:
        context = self.context
        operator = flow.instance(context, task.operator, task.partition)
        sieve = flow.sieve(context, task.operator, task.partition)
        return PartitionState(
            operator, bind(operator), log_of(context, task), sieve,
            feeds_back=flow.graph_of(context).feeds_back(task.operator),
            accepts=flow.accepts(context, task.operator),
        )  # fmt: skip

    def new_sink(self, task: Task) -> Sink:
        from perseid.worker.process import environment
        from perseid.worker.sink.kept_outputs import KeptOutputs
        from perseid.worker.sink.transaction import SinkIdentity, SinkSession

        context = self.context
        assert task.ledger is not None, f"{task.label} feeds no sink"
        who = SinkIdentity(
            job=context.job,
            job_uuid=context.job_uuid,
            layout=context.layout.number,
            operator=task.operator,
            partition=task.partition,
            ledger=task.ledger,
            after_epoch=context.base_epoch,
        )
        clients = _sink_clients(context.brokers)
        session = SinkSession(
            who, clients.transactions, clients.ledger, clients.topics,
            environment=partial(environment.of, context.job_folder),
        )  # fmt: skip
        return KeptOutputs(session, Path(context.outputs)) if context.outputs else session

    def tables(
        self, task: Task, order: EpochOrder, names: tuple[str, ...], rows: list[Row]
    ) -> dict[str, pa.Table]:
        wanted = expected(flow.graph_of(self.context), order.token, task.gid)
        found = inputs(counted(rows, wanted, _who(task, order)), names)
        if task.stateful:
            operator = self.spec.operators[task.operator]
            own = {name: found[name] for name in operator.inputs}
            check_inputs(task.operator, operator.key, own)
        return found

    def downstream(
        self, task: Task, order: EpochOrder, outputs: Mapping[str, pa.Table]
    ) -> Iterator[Row]:
        for stream in flow.graph_of(self.context).streams(task.operator):
            table = outputs[output_of(stream)]
            yield from flow.rows_of(self.context, order.token, stream, table, task.gid)

    def refusals(self, letters: pa.Table) -> int:
        return refused.of_operators(letters)

    def letter_batch(self, order: EpochOrder, topic: str, letters: pa.Table) -> SinkBatch:
        from perseid.topics.transactions import SinkBatch

        rows = letters.to_pylist()
        headers = [refused.headers(row, self.job, order.token.epoch) for row in rows]
        keys, values = [r["key"] for r in rows], [r["value"] for r in rows]
        return SinkBatch(topic, keys, values, headers, letters=True)

    def batch(self, task: Task, order: EpochOrder, sink: SinkSpec, rows: pa.Table) -> SinkBatch:
        from perseid.topics.transactions import SinkBatch

        try:
            keys = encode.keys(rows, sink.key)
            values = _values(self.context, sink, rows)
        except BadInputError as error:  # an encoder does not know whose rows it encodes
            raise BadInputError(
                f"operator {task.operator}, partition {task.partition}, epoch "
                f"{order.token.epoch}, for topic {sink.topic}: {error}"
            ) from None
        headers = _headers(self.job, order, len(values)) if sink.headers else None
        return SinkBatch(sink.topic, keys, values, headers)

    @contextmanager
    def commits(self) -> Iterator[Submit]:
        begun: list[Future[Any]] = []

        def submit(work: Callable[[], T]) -> Callable[[], T]:
            future = _committing().submit(logs.carried(work))
            begun.append(future)
            return future.result

        try:
            yield submit
        finally:
            wait(begun)  # none outlives the task

    def collect(self, _task: Task, log: StateLog, epoch: int) -> None:
        from perseid.worker.checkpoint.checkpoints import collect_soon

        collect_soon(log, epoch)

    def forget_layouts(self) -> None:
        context = self.context
        root, number = context.deployment.state, context.layout.number
        forget_layouts(LocalFiles(), root, context.job_uuid, number)

    def upload(self, part: PartOrder, copy: StateCopy | None) -> None:
        from perseid.worker.checkpoint.checkpoints import upload_soon

        upload_soon(self.context, part, copy)

    def fold(self, part: PartOrder, copy: StateCopy | None) -> None:
        from perseid.worker.checkpoint.checkpoints import fold_soon

        fold_soon(part, copy)


@cache
def _committing() -> ThreadPoolExecutor:
    """Its threads stay: to start them costs a small epoch 3 ms."""
    return ThreadPoolExecutor(COMMITS_MAX, "perseid-commit")


def _who(task: Task, order: EpochOrder) -> str:
    return f"operator {task.operator}, partition {task.partition}, epoch {order.token.epoch},"


@dataclass(frozen=True)
class SinkClients:
    """The Kafka clients that all sinks of this process share."""

    transactions: Transactions
    ledger: LedgerReader
    topics: TopicAdmin


@cache
def _sink_clients(bootstrap: Bootstrap) -> SinkClients:
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.kafka_transactions import KafkaTransactions
    from perseid.topics.ledger import LedgerReader
    from perseid.topics.log import KafkaLogReader

    topics = TopicAdmin(bootstrap)
    ledger = LedgerReader(KafkaLogReader(bootstrap), topics)
    return SinkClients(KafkaTransactions(bootstrap), ledger, topics)


def _values(context: FragmentContext, sink: SinkSpec, output: pa.Table) -> pa.BinaryArray:
    values = encode.values(output, sink.format, flow.read_avro(context, sink.schema_file))
    if sink.registry is None:
        return values
    schema = (context.job_folder / str(sink.schema_file)).read_text(encoding="utf-8")
    return wire_format.frame(schemas.sink_id(context.deployment, sink, schema), values)


def _headers(job: str, order: EpochOrder, count: int) -> list[list[tuple[str, bytes]]]:
    fixed = [
        ("perseid.job", job.encode()),  # jobs may share a topic if all of them set headers
        ("perseid.epoch", str(order.token.epoch).encode()),
        ("perseid.generation", str(order.generation).encode()),
    ]
    return [[*fixed, ("perseid.seq", str(index).encode())] for index in range(count)]
