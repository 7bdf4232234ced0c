"""Restores a fragment's stateful partitions in parallel, on the executors that run them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from perseid import logs
from perseid.engine.agreement import RestoreOrder
from perseid.engine.resume import Restored
from perseid.errors import PerseidError
from perseid.records import APART
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.owners import adopt, owner_directory
from perseid.topics.transactions import SPARES_MAX
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.failures import named, stage
from perseid.worker.epoch import flow, tasks
from perseid.worker.recovery.restore import PartitionRestore
from perseid.worker.sink.committed import committed_epochs, connect, ids_of
from perseid.worker.spark import slots

if TYPE_CHECKING:
    from perseid.engine.epoch import Partitions
    from perseid.jobs.model.layout import Task
    from perseid.records import Plan
    from perseid.worker.dataflow.edges import Row
    from perseid.worker.spark.epochs import EpochRunner

log = logging.getLogger("perseid.worker")


def fence(runner: EpochRunner) -> None:
    """Takes the state logs over from the previous owner, on all hosts that will restore."""
    if runner.context.lanes:
        _take_over(runner.context)
    else:
        slots.everywhere(runner, _take_over)


def _take_over(context: FragmentContext) -> None:
    """Idempotent: another task of this fragment may have done it."""
    root, number = context.deployment.state, context.layout.number
    kept = context.log != APART
    adopt(LocalFiles(), root, context.job_uuid, number, context.owner, context.replica, kept=kept)


def forget(context: FragmentContext) -> None:
    """Deletes this host's logs of a gate that has ended: the next one begins at a checkpoint."""
    root, number = context.deployment.state, context.layout.number
    files, owned = LocalFiles(), (context.job_uuid, number, context.owner, context.replica)
    try:
        files.delete(owner_directory(root, *owned))
    except PerseidError as error:  # the next one on this host deletes it
        log.warning("the state of a gate that has ended is not deleted: %s", error)


class Ledgers:
    """Fences and reads a fragment's ledger partitions, several at once (FRAGMENTS.md).

    A replica has one that is connected long before it is used.
    """

    def __init__(self, context: FragmentContext) -> None:
        from perseid.topics.admin import TopicAdmin
        from perseid.topics.kafka_transactions import KafkaTransactions
        from perseid.topics.ledger import LedgerReader
        from perseid.topics.log import KafkaLogReader

        kafka, self._layout = context.brokers, context.layout
        self._held = ExitStack()
        self._transactions = self._held.enter_context(closing(KafkaTransactions(kafka)))
        logs = self._held.enter_context(closing(KafkaLogReader(kafka)))
        self._reader = LedgerReader(logs, TopicAdmin(kafka))

    def connect(self, plan: Plan) -> None:
        """Connects, as many producers as may wait; fences no one."""
        connect(self._transactions, ids_of(plan, self._layout))

    def committed(self, plan: Plan) -> dict[int, int]:
        with ThreadPoolExecutor(SPARES_MAX, "perseid-ledgers") as pool:
            return committed_epochs(
                plan, self._layout, self._transactions, self._reader, pool.map
            )

    def close(self) -> None:
        self._held.close()


def ledgers(ready: Ledgers, plan: Plan) -> dict[int, int]:
    """By gid, the last committed epochs (`committed_epochs`); `ready` is closed then."""
    with closing(ready):
        return ready.committed(plan)


def restore(runner: EpochRunner, order: RestoreOrder, gids: Sequence[int]) -> list[Restored]:
    """Runs one Spark job per level, with one task for each slot of the level's stage."""
    context = runner.context
    found: list[Restored] = []
    for level in range(1, context.layout.levels + 1):
        wanted = [g for g in gids if context.layout.task(g).level == level]
        if wanted:
            found += _restore_level(runner, order, level, wanted)
    return found


def _restore_level(
    runner: EpochRunner, order: RestoreOrder, level: int, gids: list[int]
) -> list[Restored]:
    context = runner.context
    width = slots.width(context, level)
    by_slot: dict[int, list[int]] = {slot: [] for slot in range(width)}
    for gid, slot in graph.stage_slots(context.layout, level, width).items():
        by_slot[slot] += [gid] if gid in gids else []
    rows = slots.on_slots(runner, width, partial(restore_slots, context, order, by_slot))
    return [_restored(row.found) for row in rows]


@stage
def restore_slots(
    context: FragmentContext,
    order: RestoreOrder,
    by_slot: dict[int, list[int]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Runs on an executor: restores the partitions of these slots and loads their state."""
    logs.bind(job=context.job, generation=context.generation)
    mine = [slot for batch in batches for slot in batch.column(0).to_pylist()]
    todo = [context.layout.task(gid) for slot in mine for gid in by_slot[slot]]
    partitions = tasks.process_of(context).partitions  # before the threads start, which share it
    for task in [task for task in todo if task.ledger is not None][:SPARES_MAX]:
        partitions.sink(task).prepare()
    with ThreadPoolExecutor(max(1, context.lanes), "perseid-restore") as pool:
        found = list(pool.map(partial(restore_one, context, partitions, order), todo))
    data = pa.array([orjson.dumps(one) for one in found], pa.binary())
    yield pa.RecordBatch.from_arrays([data], names=[slots.COLUMN])


def restore_one(
    context: FragmentContext, partitions: Partitions[Row], order: RestoreOrder, task: Task
) -> Restored:
    """Restores one stateful partition and loads it."""
    from perseid.state.durability.store import open_store

    logs.bind(job=context.job, generation=context.generation, operator=task.operator,
              partition=task.partition)  # fmt: skip
    identity = Identity(context.job_uuid, context.layout.number, task.operator, task.partition)
    _take_over(context)  # a cluster master may run this task on another host than `fence` did
    store = open_store(context.deployment.store)
    with named(f"operator {task.operator}, partition {task.partition}: its restore"):
        log, share = partitions.state(task).log, flow.share(context, task)
        work = PartitionRestore(LocalFiles(), store, log, task, identity, share)
        return partitions.load(task, work.run(order), order.base_epoch)


def _restored(data: bytes) -> Restored:
    fields = orjson.loads(data)
    return Restored(**{**fields, "events": tuple(fields["events"])})
