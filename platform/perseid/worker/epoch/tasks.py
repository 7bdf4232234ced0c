"""A Spark task of level 1 and above: one operator partition's share of one epoch.

    input rows -> keyed operator (state log) or writer -> sinks, in one transaction -> rows for the
    next level, and a report to the driver

Runs in the Python processes of the executors. Resident state, sink sessions and logs are kept per
process between tasks; a new plan (another generation) drops those of the old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid import logs
from perseid.errors import BadInputError, PermanentError
from perseid.jobs.model.layout import DEAD_LETTERS, Task, has_letters, written_streams
from perseid.jobs.model.spec import MAIN, output_of, producer
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog, forget_layouts, log_directory
from perseid.state.primitives.primitive import bind
from perseid.worker.dataflow.context import EpochOrder, FragmentContext
from perseid.worker.dataflow.edges import Row, inputs
from perseid.worker.dataflow.failures import named
from perseid.worker.dataflow.partition import check_inputs
from perseid.worker.dataflow.task_report import PartitionReport, StateSize, TaskReport
from perseid.worker.dead_letters import refused
from perseid.worker.epoch import flow
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.formats import encode, schemas, wire_format

if TYPE_CHECKING:
    from perseid.jobs.model.spec import SinkSpec
    from perseid.records.access import Bootstrap
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.ledger import LedgerReader
    from perseid.topics.transactions import SinkBatch, Transactions
    from perseid.worker.sink.transaction import SinkSession


COMMITS_MAX = 8  # concurrent transactions of one task
IDLE_S = 60.0  # Spark's own limit for idle Python workers

Finish = Callable[[], tuple[list[Row], PartitionReport]]  # rows for the following levels


@dataclass
class Process:
    """The process cache of one fragment."""

    context: FragmentContext
    used_s: float = 0.0  # time.monotonic()
    states: dict[int, PartitionState] = field(default_factory=dict)
    sinks: dict[int, SinkSession] = field(default_factory=dict)
    collected_epoch: dict[int, int] = field(default_factory=dict)

    def close(self) -> None:
        for session in self.sinks.values():
            session.close()


_processes: dict[str, Process] = {}  # by job UUID; tasks of all jobs of a worker share the process


def process_of(context: FragmentContext) -> Process:
    """The process cache for the fragment of `context`.

    Drops that of an older fragment of the same job, and those unused for IDLE_S.
    """
    now_s = time.monotonic()
    for uuid, keep in list(_processes.items()):
        replaced = uuid == context.job_uuid and keep.context.owner != context.owner
        if replaced or (uuid != context.job_uuid and now_s - keep.used_s > IDLE_S):
            _processes.pop(uuid, keep).close()
    mine = _processes.setdefault(context.job_uuid, Process(context))
    mine.used_s = now_s
    return mine


def run_rows(
    context: FragmentContext, order: EpochOrder, rows: list[Row], level: int
) -> tuple[list[Row], TaskReport]:
    """One task: takes the rows of one slot of `level`, returns rows for the following levels.

    Processes its operator partitions one after the other; the next one is processed while the
    transactions of the previous ones wait for the broker.
    """
    from perseid.worker.checkpoint.checkpoints import refuse_damaged, take_over_orders

    refuse_damaged(context)
    take_over_orders(context)
    mine = {task.gid for task in context.layout.level(level)}
    found = [row for row in rows if row.target not in mine]
    commits = _Commits(_committing())
    try:
        runs = {
            gid: run_task(context, order, context.layout.tasks[gid],
                          [row for row in rows if row.target == gid], commits)
            for gid in sorted({row.target for row in rows if row.target in mine})
        }  # fmt: skip
        reports = {}
        for gid, run in runs.items():
            made, reports[gid] = run()
            found += made
    finally:
        wait(commits.begun)  # none outlives the task
    return found, TaskReport(order.token.epoch, partitions=reports)


@cache
def _committing() -> ThreadPoolExecutor:
    """Its threads stay: to start them costs a small epoch 3 ms."""
    return ThreadPoolExecutor(COMMITS_MAX, "perseid-commit")


class _Commits:
    """The commits of one task."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self.begun: list[Future[tuple[int, int]]] = []

    def submit(self, commit: Callable[[], tuple[int, int]]) -> Future[tuple[int, int]]:
        self.begun.append(self._pool.submit(commit))
        return self.begun[-1]


def run_task(
    context: FragmentContext, order: EpochOrder, task: Task, rows: list[Row], commits: _Commits
) -> Finish:
    """One operator partition's epoch; the returned function waits for its commit and reports."""
    with logs.about(operator=task.operator, partition=task.partition), named(_who(task, order)):
        finish = _run_task(context, order, task, rows, commits)

    def finished() -> tuple[list[Row], PartitionReport]:
        with named(_who(task, order)):
            return finish()

    return finished


def _who(task: Task, order: EpochOrder) -> str:
    return f"operator {task.operator}, partition {task.partition}, epoch {order.token.epoch},"


def _run_task(
    context: FragmentContext, order: EpochOrder, task: Task, rows: list[Row], commits: _Commits
) -> Finish:
    started = time.monotonic()
    tables = inputs(rows, _input_names(context, task))
    others = tables.pop(DEAD_LETTERS, None)  # not this operator's own, but it writes them
    size, letters = None, None
    if task.stateful:
        outputs, letters, size = _run_keyed(context, order, task, tables, others)
    else:
        outputs = tables
    refusals = outputs[MAIN] if task.operator == DEAD_LETTERS else letters
    report = PartitionReport(
        process_ms=_ms_since(started),
        dead_letters=refused.of_operators(refusals) if refusals is not None else 0,
        state=size,
    )
    commit = None
    if task.ledger is not None:
        session = session_of(context, task)  # made here, since making a session is not thread safe
        batches = partial(_sink_batches, context, order, task, outputs, letters)
        commit = commits.submit(logs.carried(partial(_commit, context, order, batches, session)))

    def finish() -> tuple[list[Row], PartitionReport]:
        sent, commit_ms = commit.result() if commit is not None else (0, 0)
        if task.stateful and order.token.checkpoint:
            from perseid.worker.checkpoint.checkpoints import upload_soon

            part, copy = state_of(context, task).ordered(
                context.job, context.generation, order.token.epoch, order.token_offset, order.base
            )
            # Last of all: the upload that it starts then delays no other partition.
            upload_soon(context, replace(part, final=order.token.final), copy)
        found: list[Row] = []
        for stream in flow.graph_of(context).streams(task.operator) if task.stateful else ():
            table = outputs[output_of(stream)]
            found += flow.rows_of(context, order.token, stream, table, task.gid)
        return found, replace(report, sent=sent, commit_ms=commit_ms)

    return finish


def _input_names(context: FragmentContext, task: Task) -> tuple[str, ...]:
    """The inputs of `task`; those of a writer are the outputs that it writes.

    A keyed operator that bisects has a last input, for dead letters of rows that were to reach it.
    """
    spec = flow.spec_of(context.job_folder)
    if task.stateful:
        operator = spec.operators[task.operator]
        return (*operator.inputs, *([DEAD_LETTERS] if has_letters(operator) else []))
    return tuple(map(output_of, written_streams(spec, task.operator))) or (MAIN,)


def _ms_since(started_s: float) -> int:
    return round((time.monotonic() - started_s) * 1000)


def state_of(context: FragmentContext, task: Task) -> PartitionState:
    """The resident state of `task` in this process, empty until `bring_to` is called."""
    keep = process_of(context)
    if task.gid not in keep.states:
        operator = flow.instance(context, task.operator, task.partition)
        sieve = flow.sieve(context, task.operator, task.partition)
        keep.states[task.gid] = PartitionState(
            operator, bind(operator), log_of(context, task), sieve,
            feeds_back=flow.graph_of(context).feeds_back(task.operator),
            accepts=flow.accepts(context, task.operator),
        )  # fmt: skip
    return keep.states[task.gid]


def log_of(context: FragmentContext, task: Task) -> StateLog:
    identity = Identity(context.job_uuid, context.layout.number, task.operator, task.partition)
    directory = log_directory(context.owned, task.operator, task.partition)
    return StateLog(LocalFiles(), directory, identity)


def _run_keyed(
    context: FragmentContext,
    order: EpochOrder,
    task: Task,
    tables: dict[str, pa.Table],
    others: pa.Table | None,
) -> tuple[dict[str, pa.Table], pa.Table | None, StateSize]:
    """Outputs, dead letters and the size of the state."""
    key = flow.spec_of(context.job_folder).operators[task.operator].key
    check_inputs(task.operator, key, tables)
    state = state_of(context, task)
    token = order.token
    out = flow.emitter(context, task.operator)
    result = state.run(token, order.token_offset, context.generation, tables, out, others)
    _collect(context, order, task, state)
    size = StateSize(state.size_bytes, state.rows, result.changed_bytes)
    return result.outputs, result.letters, size


def _collect(
    context: FragmentContext, order: EpochOrder, task: Task, state: PartitionState
) -> None:
    """Drops from the log what a complete checkpoint covers, once for each checkpoint."""
    keep = process_of(context)
    if order.collect_epoch is None or keep.collected_epoch.get(task.gid) == order.collect_epoch:
        return
    from perseid.worker.checkpoint.checkpoints import collect_soon

    collect_soon(state.log, order.collect_epoch)
    if order.collect_epoch > context.base_epoch:  # every kept checkpoint has this layout
        root = context.deployment.state
        forget_layouts(LocalFiles(), root, context.job_uuid, context.layout.number)
    keep.collected_epoch[task.gid] = order.collect_epoch


def _commit(
    context: FragmentContext,
    order: EpochOrder,
    made: Callable[[], Iterable[SinkBatch]],
    session: SinkSession,
) -> tuple[int, int]:
    """Sends output and dead letters of the task, in one transaction with the ledger record.

    Runs in a thread, one at a time for each operator partition. Returns the number of records and
    the duration in milliseconds.
    """
    started = time.monotonic()
    batches = list(made())
    session.commit(order.token.epoch, order.token_offset, context.generation, batches)
    return sum(len(b.values) for b in batches), _ms_since(started)


def session_of(context: FragmentContext, task: Task) -> SinkSession:
    """The sink session of `task` in this process."""
    from perseid.worker.sink.transaction import SinkIdentity, SinkSession

    keep = process_of(context)
    if task.gid not in keep.sinks:
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
        keep.sinks[task.gid] = SinkSession(
            who, clients.transactions, clients.ledger, clients.topics
        )
    return keep.sinks[task.gid]


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


def _sink_batches(
    context: FragmentContext,
    order: EpochOrder,
    task: Task,
    outputs: dict[str, pa.Table],
    letters: pa.Table | None,
) -> Iterable[SinkBatch]:
    from perseid.topics.transactions import SinkBatch

    spec = flow.spec_of(context.job_folder)
    if task.operator == DEAD_LETTERS:
        letters = outputs[MAIN]
    if letters is not None and letters.num_rows:
        if spec.errors.deadletter_topic is None:
            raise PermanentError(
                f"{task.label} has dead letters of epoch {order.token.epoch}, which an earlier "
                "revision kept, and this one has no topic for them; apply it with `errors: "
                "{deadletterqueue: {topic}}`"
            )
        rows = letters.to_pylist()
        row_headers = [refused.headers(row, context.job, order.token.epoch) for row in rows]
        keys, values = [r["key"] for r in rows], [r["value"] for r in rows]
        yield SinkBatch(spec.errors.deadletter_topic, keys, values, row_headers, letters=True)
    for sink in spec.sinks.values():
        if producer(sink.input) != task.operator:
            continue
        output = outputs[output_of(sink.input)]
        if output.num_rows == 0:
            continue
        try:
            keys = encode.keys(output, sink.key)
            values = _values(context, sink, output)
        except BadInputError as error:  # an encoder does not know whose rows it encodes
            raise BadInputError(
                f"operator {task.operator}, partition {task.partition}, epoch "
                f"{order.token.epoch}, for topic {sink.topic}: {error}"
            ) from None
        headers = _headers(context, order, len(values)) if sink.headers else None
        yield SinkBatch(sink.topic, keys, values, headers)


def _values(context: FragmentContext, sink: SinkSpec, output: pa.Table) -> pa.BinaryArray:
    values = encode.values(output, sink.format, flow.read_avro(context, sink.schema_file))
    if sink.registry is None:
        return values
    schema = (context.job_folder / str(sink.schema_file)).read_text(encoding="utf-8")
    return wire_format.frame(schemas.sink_id(context.deployment, sink, schema), values)


def _headers(
    context: FragmentContext, order: EpochOrder, count: int
) -> list[list[tuple[str, bytes]]]:
    fixed = [
        ("perseid.job", context.job.encode()),  # jobs may share a topic if all of them set headers
        ("perseid.epoch", str(order.token.epoch).encode()),
        ("perseid.generation", str(context.generation).encode()),
    ]
    return [[*fixed, ("perseid.seq", str(index).encode())] for index in range(count)]
