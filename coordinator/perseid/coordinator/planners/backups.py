"""When an operator partition with approximate fault tolerance may proceed, and when it backs up.

AF-Stream sections 3.3 and 3.4, read strictly. The most that a record may add is checked before it
is applied. The divergence is measured from the last backup that is known to be durable. At most one
backup is in flight. The counter is part of the state and is lost with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.thresholds import records_before_backup
from perseid.errors import PermanentError, UsageError


class BackupPhase(Enum):
    """Life cycle of the newest backup; TRANSITIONS lists the allowed changes."""

    DURABLE = "durable"
    IN_FLIGHT = "in flight"


TRANSITIONS = {
    BackupPhase.DURABLE: (BackupPhase.IN_FLIGHT,),
    BackupPhase.IN_FLIGHT: (BackupPhase.DURABLE,),  # acknowledged, or aborted
}


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups of one operator partition since it started. All divergences are upper limits.

    `theta`: the current threshold on divergence. `alpha`: the most that one record adds.
    `since_durable`: divergence from the last durable backup. `at_issue`: that divergence when the
    backup in flight was taken. Every method is O(1).

    >>> backups = Backups(theta=10.0, alpha=2.0).applied(7.5)
    >>> backups.room, backups.issued().applied(2.0).room
    (1, 0)
    >>> backups.issued().applied(2.0).acknowledged()
    Backups(theta=10.0, alpha=2.0, since_durable=2.0, at_issue=None)
    """

    theta: float
    alpha: float
    since_durable: float = 0.0
    at_issue: float | None = None

    def __post_init__(self) -> None:
        checks.not_negative("theta", self.theta)
        checks.positive("alpha", self.alpha)
        checks.not_negative("the divergence", self.since_durable)
        if self.at_issue is not None:
            checks.within("the divergence at issue", self.at_issue, 0.0, self.since_durable)

    @property
    def phase(self) -> BackupPhase:
        return BackupPhase.DURABLE if self.at_issue is None else BackupPhase.IN_FLIGHT

    @property
    def room(self) -> int:
        """Records that may be applied before a backup is acknowledged; 0: wait for one."""
        return records_before_backup(self.theta, self.since_durable, self.alpha)

    @property
    def due(self) -> bool:
        """Whether to take a backup now: at half of the threshold, so that work need not stop."""
        return self.phase is BackupPhase.DURABLE and self.since_durable >= self.theta / 2 > 0

    def applied(self, divergence: float) -> Backups:
        """Adds the `divergence` of applied records, at most `room` of them.

        Raises PermanentError if they exceed the room, because the operator's alpha is wrong.
        """
        if not 0 <= divergence <= self.room * self.alpha:
            raise PermanentError(
                f"records added a divergence of {divergence}, and alpha = {self.alpha} allows "
                f"{self.room * self.alpha}: correct the alpha that the operator declares"
            )
        return replace(self, since_durable=self.since_durable + divergence)

    def issued(self) -> Backups:
        """A copy of the state is being made durable."""
        self._expect(BackupPhase.IN_FLIGHT)
        return replace(self, at_issue=self.since_durable)

    def acknowledged(self) -> Backups:
        """The backup in flight is durable: what was applied before it no longer counts."""
        self._expect(BackupPhase.DURABLE)
        assert self.at_issue is not None
        return replace(self, since_durable=self.since_durable - self.at_issue, at_issue=None)

    def aborted(self) -> Backups:
        """The backup got no answer. It may be durable, but that is unknown: it does not count."""
        self._expect(BackupPhase.DURABLE)
        return replace(self, at_issue=None)

    def _expect(self, wanted: BackupPhase) -> None:
        if wanted not in TRANSITIONS[self.phase]:
            raise UsageError(f"the backup is {self.phase.value}: it cannot become {wanted.value}")
