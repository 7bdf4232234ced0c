"""Backups of approximate operator partitions: what may be applied, whatever becomes of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perseid.coordinator.planners.backups import BackupPhase, Backups
from perseid.errors import PermanentError, UsageError

THETA, ALPHA = 20.0, 3.0


class Partition(RuleBasedStateMachine):
    """The state is a sum. What is durable is known here for sure, to `Backups` by answers only."""

    def __init__(self) -> None:
        super().__init__()
        self.backups = Backups(THETA, ALPHA)
        self.applied = self.durable = self.sent = 0.0

    @precondition(lambda self: self.backups.room)
    @rule(share=st.floats(0, 1), amount=st.floats(0, ALPHA))
    def process(self, share: float, amount: float) -> None:
        count = math.ceil(share * self.backups.room)
        self.applied += count * amount
        self.backups = self.backups.applied(count * amount)

    @precondition(lambda self: self.backups.phase is BackupPhase.DURABLE)
    @rule()
    def issue(self) -> None:
        self.backups, self.sent = self.backups.issued(), self.applied

    @precondition(lambda self: self.backups.phase is BackupPhase.IN_FLIGHT)
    @rule()
    def acknowledge(self) -> None:
        self.backups, self.durable = self.backups.acknowledged(), self.sent

    @precondition(lambda self: self.backups.phase is BackupPhase.IN_FLIGHT)
    @rule(done=st.booleans())
    def no_answer(self, *, done: bool) -> None:
        self.backups = self.backups.aborted()
        if done:
            self.durable = self.sent

    @invariant()
    def a_crash_now_loses_no_more_than_theta(self) -> None:
        assert self.applied - self.durable <= THETA * (1 + 1e-9)
        assert self.applied - self.durable <= self.backups.since_durable * (1 + 1e-9) + 1e-9


TestPartition = Partition.TestCase


@given(st.floats(0, 100), st.floats(0.1, 10))
def test_an_operator_that_breaks_its_promise_is_reported(theta: float, alpha: float) -> None:
    backups = Backups(theta, alpha)
    with pytest.raises(PermanentError, match="correct the alpha"):
        backups.applied(backups.room * alpha * 1.01 + 1.0)
    with pytest.raises(PermanentError):
        backups.applied(-1.0)


def test_one_backup_at_a_time() -> None:
    backups = Backups(THETA, ALPHA)
    for wrong in (backups.acknowledged, backups.aborted, backups.issued().issued):
        with pytest.raises(UsageError, match="cannot become"):
            wrong()


def test_a_backup_is_due_before_the_room_is_used_up() -> None:
    backups = Backups(THETA, ALPHA).applied(THETA / 2)
    assert backups.due
    assert backups.room == 3
    assert not backups.issued().due
    assert not Backups(0.0, ALPHA).due
