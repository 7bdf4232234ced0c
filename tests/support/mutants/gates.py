"""Defects of gates: what is compared, what is sent, and what a leader makes of a refusal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import PropertyMock, patch

from perseid.coordinator import gating
from perseid.coordinator.model import JobState
from perseid.engine.comparison import Comparison
from perseid.records import REPLICA, Assignment


def gates_count_epochs_unseen() -> AbstractContextManager[Any]:
    """Each epoch of a gate counts as equal, whatever it has made."""

    def mutant(self: Any, _gid: int, made: Any, _committed: Any) -> list[Any]:
        self._count(made)
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
