"""Whether a job's ledgers agree with its tokens and with what its fragments reported. Pure.

Kafka may have lost records that it had acknowledged: then an epoch would be committed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseid.coordinator.job.chain import Issued
from perseid.errors import lost_by_broker
from perseid.jobs.model import assignments
from perseid.jobs.model.layout import Layout
from perseid.records import Plan
from perseid.topics import names
from perseid.topics.records import EpochDone, ProgressRecord


def tip(job: str, epoch: int, ledger: Mapping[int, int]) -> None:
    """Checks that every committed epoch has a token: no token of a ledger is ever rolled back."""
    committed = max(ledger.values(), default=0)
    if committed > epoch:
        raise lost_by_broker(
            f"the token log of {job} ends with epoch {epoch}, and epoch {committed} was committed"
        )


def reported(
    plan: Plan, layout: Layout, tokens: Sequence[Issued], progress: Sequence[ProgressRecord],
    ledger: Mapping[int, int],
) -> None:  # fmt: skip
    """Checks that ledger partitions hold each epoch of this layout that was reported as done.

    That is by their own fragment: others may be ahead of it.
    """
    offsets = {issued.token.epoch: issued.offset for issued in tokens}
    done: dict[str, int] = {}
    for r in progress:
        if isinstance(r, EpochDone) and r.job_uuid == plan.job_uuid and r.epoch > plan.base_epoch:
            if offsets.get(r.epoch) == r.token_offset:
                done[r.fragment] = max(r.epoch, done.get(r.fragment, 0))
    lagged = [
        (task.ledger, ledger.get(task.ledger, 0), done[own.fragment])
        for own in plan.primaries if own.fragment in done
        for task in assignments.tasks_of(own, layout)
        if task.ledger is not None and ledger.get(task.ledger, 0) < done[own.fragment]
    ]  # fmt: skip
    if lagged:
        partition, epoch, highest = min(lagged)
        raise lost_by_broker(
            f"{names.ledger(plan.job)}[{partition}] ends with epoch {epoch}, and epoch {highest} "
            "was reported as committed"
        )
