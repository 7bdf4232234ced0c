"""Defects of gates: what is compared, counted and sent, and what becomes of a refusal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import PropertyMock, patch

from perseid.coordinator import gating
from perseid.coordinator.job.standby import Standby
from perseid.coordinator.model import JobState
from perseid.engine.comparison import Comparison
from perseid.records import REPLICA, Assignment
from perseid.replay.approving import Approval
from perseid.worker.sink.audit import LedgerAudit


def gates_count_epochs_unseen() -> AbstractContextManager[Any]:
    """Each epoch of a gate counts as equal, whatever it has made."""

    def mutant(self: Any, _gid: int, made: Any, _committed: Any) -> list[Any]:
        self._count(made.token_offset, some=bool(made.outputs))
        return []

    return patch.object(Comparison, "_compare", mutant)


def gates_are_not_muted() -> AbstractContextManager[Any]:
    """A gate's epochs are committed as its primary's are."""
    return patch.object(Assignment, "muted", property(lambda self: self.role == REPLICA))


def refused_revisions_are_compared_again() -> AbstractContextManager[Any]:
    """A revision that has made other outputs counts as one that has failed."""

    def mutant(job: Any, _text: str) -> Any:
        return job, []

    return patch.object(gating, "_refused", mutant)


def gates_pass_at_once() -> AbstractContextManager[Any]:
    """A job switches as soon as the wanted revision could be compared."""
    return patch.object(JobState, "gate_passed", PropertyMock(return_value=True))


def approvals_take_anything() -> AbstractContextManager[Any]:
    """Once a user has approved some differences, all others count as approved too."""
    return patch.object(Approval, "refused", lambda *_: "")


def approved_epochs_do_not_count() -> AbstractContextManager[Any]:
    """Epochs with approved differences lead to no switch."""
    return patch.object(Comparison, "approved", lambda *_: None)


def differences_are_looked_at_too_late() -> AbstractContextManager[Any]:
    """The outputs of an epoch are deleted once its ledger is read, before it was looked at."""
    before = LedgerAudit._approve

    def mutant(self: LedgerAudit, approval: Any) -> None:
        approval.forget(1 << 60)
        before(self, approval)

    return patch.object(LedgerAudit, "_approve", mutant)


def gates_count_what_died_with_them() -> AbstractContextManager[Any]:
    """Epochs that were equal count on the next worker also where a gate has died or failed."""
    return patch.object(Standby, "uncounted", lambda self, _fragment: self)
