"""The restore of a fragment's stateful partitions, in parallel on the executors that run them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from perseid.errors import FencedError, RetryableError
from perseid.worker import graph, resume, stages, tasks
from perseid.worker.context import FragmentContext
from perseid.worker.frames import STATE_POOL, use_pool
from perseid.worker.restore import PartitionRestore, RestoreOrder, take_over
from perseid.worker.resume import Restored

if TYPE_CHECKING:
    from perseid.jobs.layout import Task
    from perseid.records import Plan
    from perseid.worker.epochs import EpochRunner
    from perseid.worker.feed import TokenHistory

log = logging.getLogger("perseid.worker")
LEDGER_TIMEOUT_S = 90.0  # a dead owner's open transaction is aborted by the broker after 60 s
ROUNDS_MAX = 4  # each round goes at least one checkpoint further back, and there are two


def restore_all(
    runner: EpochRunner, plan: Plan, past: TokenHistory
) -> tuple[int, str, tuple[str, ...]]:
    """Restores until all partitions agree: (epoch that is done, where from, events)."""
    from perseid.worker.fragment import usable_pointers

    order = RestoreOrder(
        tokens=past.offsets,
        tip_epoch=past.tip_epoch,
        pointers=usable_pointers(plan),
        base_epoch=plan.base_epoch,
        base_offset=plan.base_offset,
        generation=plan.generation,
    )
    ledgers = _ledgers(runner.context, plan)
    restored: dict[int, Restored] = {}
    events: list[str] = []
    gids = [t.gid for t in runner.context.layout.stateful_tasks]
    for _ in range(ROUNDS_MAX):
        for found in _restore(runner, order, gids):
            restored[found.gid] = found
            events += found.events
        verdict = resume.decide(restored, ledgers, plan.base_epoch)
        if isinstance(verdict, resume.GoOn):
            return verdict.epoch, _sources(restored), tuple(events)
        gids = list(verdict.gids)
        order = replace(order, floor=verdict.floor)
    raise RetryableError(f"the partitions of {plan.job} did not agree on an epoch: {restored}")


def _ledgers(context: FragmentContext, plan: Plan) -> dict[int, int]:
    """The last committed epoch of every partition that commits each epoch."""
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.ledger import LedgerReader
    from perseid.topics.log import KafkaLogReader

    by_ledger = {t.ledger: t for t in context.layout.ledger_tasks if t.ledger is not None}
    if not by_ledger:
        return {}
    logs = KafkaLogReader(context.deployment.kafka)
    reader = LedgerReader(logs, TopicAdmin(context.deployment.kafka))
    records = reader.last_of(plan.job, plan.job_uuid, by_ledger, timeout_s=LEDGER_TIMEOUT_S)
    logs.close()
    for record in records.values():
        if record is not None and record.generation > plan.generation:
            raise FencedError(f"a ledger of {plan.job} is of generation {record.generation}")
    return {
        task.gid: max(record.epoch if (record := records[n]) else 0, plan.base_epoch)
        for n, task in by_ledger.items()
    }


def _restore(runner: EpochRunner, order: RestoreOrder, gids: list[int]) -> list[Restored]:
    """One Spark job a level, with one task for each slot of the level's stage."""
    context = runner.context
    found: list[Restored] = []
    for level in range(1, context.layout.levels + 1):
        wanted = [g for g in gids if context.layout.tasks[g].level == level]
        if wanted:
            found += _restore_level(runner, order, level, wanted)
    return found


def _restore_level(
    runner: EpochRunner, order: RestoreOrder, level: int, gids: list[int]
) -> list[Restored]:
    """In the processes of narrow epochs, which is what follows unless much has piled up."""
    context, spark = runner.context, runner.spark
    width = context.width(level, narrow=context.lanes > 0)
    by_slot: dict[int, list[int]] = {slot: [] for slot in range(width)}
    for gid, slot in graph.stage_slots(context.layout, level, width).items():
        by_slot[slot] += [gid] if gid in gids else []
    slots = spark.range(0, width, 1, width).selectExpr("cast(id as int) as slot")
    use_pool(spark, STATE_POOL)
    work = partial(restore_slots, context, order, by_slot)
    if runner.anchor is None:
        frame = slots.mapInArrow(work, "restored binary")
    else:
        groups = slots.groupBy("slot").cogroup(runner.anchor.frame(width).groupBy("slot"))
        frame = groups.applyInArrow(partial(_anchored, work), "restored binary")
    return [_restored(row.restored) for row in frame.collect()]


def restore_slots(
    context: FragmentContext,
    order: RestoreOrder,
    by_slot: dict[int, list[int]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Runs on an executor: restores the partitions of these slots and loads their state."""
    slots = [slot for batch in batches for slot in batch.column(0).to_pylist()]
    todo = [context.layout.tasks[gid] for slot in slots for gid in by_slot[slot]]
    tasks.process_of(context)  # before the threads, which share it
    with ThreadPoolExecutor(max(1, context.lanes), "perseid-restore") as pool:
        found = stages.explained(
            lambda: list(pool.map(partial(_restore_one, context, order), todo))
        )
    data = pa.array([orjson.dumps(one) for one in found], pa.binary())
    yield pa.RecordBatch.from_arrays([data], names=["restored"])


def _restore_one(context: FragmentContext, order: RestoreOrder, task: Task) -> Restored:
    from perseid.state.blob import Identity
    from perseid.state.files import LocalFiles
    from perseid.state.store import open_store

    identity = Identity(context.job_uuid, context.layout.number, task.operator, task.partition)
    files = LocalFiles()
    take_over(files, context.deployment.state, identity, context.owner)
    store = open_store(context.deployment.store)
    state = tasks.state_of(context, task)
    work = PartitionRestore(files, store, state.log, task, identity)
    found = work.run(order)
    state.epoch = None
    state.bring_to(found.epoch)
    return found


def _anchored(work: Any, slots: pa.Table, _anchor: pa.Table) -> pa.Table:
    found = list(work(slots.to_batches()))
    schema = pa.schema([("restored", pa.binary())])
    return pa.Table.from_batches(found, schema=schema)


def _restored(data: bytes) -> Restored:
    fields = orjson.loads(data)
    return Restored(**{**fields, "events": tuple(fields["events"])})


def _sources(restored: dict[int, Restored]) -> str:
    return ", ".join(sorted({r.source for r in restored.values()}))
