"""Finds what a job's sinks have committed: first fences the old owner, then reads the ledger.

A dead owner may have left a transaction open. Until the broker aborts it (30 s or more), the ledger
beyond it cannot be read. Acquiring its transactional id aborts it now. This does no lasting harm to
a living owner: a newer one that is fenced by mistake finds its own record in the ledger and
acquires the id again (`transaction.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from perseid.errors import FencedError
from perseid.jobs.model.layout import Layout
from perseid.records import Plan
from perseid.topics import names
from perseid.topics.clients import BATCH_BYTES_MAX
from perseid.topics.ledger import Each, LedgerReader
from perseid.topics.transactions import SPARES_MAX, Transactions

LEDGER_TIMEOUT_S = 90.0  # readers of a ledger wait for open transactions in it


def committed_epochs(
    plan: Plan, layout: Layout, transactions: Transactions, ledgers: LedgerReader,
    each: Each = map,
) -> dict[int, int]:  # fmt: skip
    """By gid, the last committed epoch of every operator partition that commits each epoch.

    The plan's base epoch if there is no record yet. FencedError when a newer generation has
    committed. `each`: how the partitions are handled, one by one or in threads.
    """
    tasks = {t.ledger: t for t in layout.ledger_tasks if t.ledger is not None}
    end_open_ones(transactions, ids_of(plan, layout), each)
    found = ledgers.last_of(
        plan.job, plan.job_uuid, tasks, timeout_s=LEDGER_TIMEOUT_S, each=each
    )
    epochs = {}
    for number, task in tasks.items():
        record = found[number]
        if record is not None and record.generation > plan.generation:
            raise FencedError(f"a ledger of {plan.job} is of generation {record.generation}")
        epochs[task.gid] = max(record.epoch if record is not None else 0, plan.base_epoch)
    return epochs


def ids_of(plan: Plan, layout: Layout) -> list[str]:
    """The transactional ids of the partitions that commit each epoch."""
    return [
        names.transactional_id(plan.job, layout.number, t.operator, t.partition)
        for t in layout.ledger_tasks if t.ledger is not None
    ]  # fmt: skip


def end_open_ones(transactions: Transactions, ids: Sequence[str], each: Each = map) -> None:
    """Fences every holder of one of the ids and aborts its open transactions."""

    def end(name: str) -> None:
        with closing(transactions.acquire(name, BATCH_BYTES_MAX, LEDGER_TIMEOUT_S)):
            pass

    for start in range(0, len(ids), SPARES_MAX):
        some = ids[start : start + SPARES_MAX]
        connect(transactions, some)
        for _ in each(end, some):
            pass


def connect(transactions: Transactions, ids: Sequence[str]) -> None:
    """Connects, so that the next acquire takes less; fences no one."""
    for name in ids[:SPARES_MAX]:
        transactions.prepare(name, BATCH_BYTES_MAX)
