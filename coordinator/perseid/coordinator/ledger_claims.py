"""Claims a job's ledgers, so that earlier owners can no longer commit what they have not committed.

A task of a failed owner may stall anywhere in its epoch and resume at any later time. Acquiring its
transactional id aborts its open transaction, but not a later one: the task acquires the id again
and finds the epoch missing. So the claim appends each ledger partition's last record again, without
outputs and under a generation above all owners'. That record fences a task that acquires the id
later (`perseid.worker.sink.transaction.judge`). The ledgers' contents are final from then on.
"""

from __future__ import annotations

from dataclasses import replace

from perseid.jobs.model.layout import Layout, Task
from perseid.records import Plan
from perseid.topics import codec, names
from perseid.topics.clients import BATCH_BYTES_MAX
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import LedgerRecord
from perseid.topics.transactions import PartitionBatch, Transaction, Transactions, acquired

ATTEMPT_S = 20.0  # for one acquire, one read, one flush or one commit


def claim(
    plan: Plan, layout: Layout, generation: int, transactions: Transactions, ledgers: LedgerReader
) -> None:
    """Claims the ledgers of all of the layout's tasks for `generation`.

    Raises RetryableError when some may not be claimed. The whole call may be repeated; ledgers that
    are claimed stay so.
    """
    tasks = layout.ledger_tasks
    ids = [names.transactional_id(plan.job, layout.number, t.operator, t.partition) for t in tasks]
    for task, transaction in zip(
        tasks, acquired(transactions, ids, BATCH_BYTES_MAX, ATTEMPT_S), strict=True
    ):
        _claim_one(plan, task, generation, transaction, ledgers)


def _claim_one(
    plan: Plan, task: Task, generation: int, transaction: Transaction, ledgers: LedgerReader
) -> None:
    """Compares and appends as a sink does: no other process commits under the id in between."""
    assert task.ledger is not None, f"{task.label} feeds no sink"
    topic = names.ledger(plan.job)
    last = ledgers.last(topic, task.ledger, timeout_s=ATTEMPT_S)
    if last is not None and last.generation >= generation:
        return
    own = _of_job(plan, task, last)
    record = replace(own, generation=generation, outputs=(), environment={})
    transaction.begin()
    transaction.send(PartitionBatch(topic, task.ledger, [None], [codec.encode(record)]))
    transaction.flush(ATTEMPT_S)
    transaction.commit(ATTEMPT_S)


def _of_job(plan: Plan, task: Task, last: LedgerRecord | None) -> LedgerRecord:
    """The last record, or a record of the plan's base epoch if this job has none."""
    if last is not None and last.job_uuid == plan.job_uuid:
        return last
    return LedgerRecord(
        plan.job_uuid, plan.layout, task.operator, task.partition, plan.generation,
        plan.base_epoch, plan.base_offset,
    )  # fmt: skip
