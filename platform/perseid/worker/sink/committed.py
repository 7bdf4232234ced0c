"""What a job's sinks have committed, for a new owner: first the old one is ended, then asked.

A dead owner may have left a transaction open. Until the broker gives up on it, after half a minute
and more, nobody can read the ledger behind it. Whoever acquires its transactional id ends it now.
That harms no living owner for long: a newer one that is fenced by mistake finds its own record in
the ledger and acquires the id again (`sink.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.errors import FencedError
from perseid.jobs.model.layout import Layout
from perseid.records import Plan
from perseid.topics import names
from perseid.topics.clients import BATCH_BYTES_MAX
from perseid.topics.ledger import LedgerReader
from perseid.topics.transactions import Transactions, acquired

LEDGER_TIMEOUT_S = 90.0  # readers of a ledger wait while anything in it is undecided


def committed_epochs(
    plan: Plan, layout: Layout, transactions: Transactions, ledgers: LedgerReader
) -> dict[int, int]:
    """By gid, the last committed epoch of every operator partition that commits each epoch.

    The plan's base where there is none yet. FencedError when a newer generation has committed.
    """
    tasks = {t.ledger: t for t in layout.ledger_tasks if t.ledger is not None}
    ids = [
        names.transactional_id(plan.job, layout.number, t.operator, t.partition)
        for t in tasks.values()
    ]
    end_open_ones(transactions, ids)
    found = ledgers.last_of(plan.job, plan.job_uuid, tasks, timeout_s=LEDGER_TIMEOUT_S)
    epochs = {}
    for number, task in tasks.items():
        record = found[number]
        if record is not None and record.generation > plan.generation:
            raise FencedError(f"a ledger of {plan.job} is of generation {record.generation}")
        epochs[task.gid] = max(record.epoch if record is not None else 0, plan.base_epoch)
    return epochs


def end_open_ones(transactions: Transactions, ids: Sequence[str]) -> None:
    """Fences whoever has one of the ids, and aborts what they left open."""
    for _ in acquired(transactions, ids, BATCH_BYTES_MAX, LEDGER_TIMEOUT_S):
        pass
