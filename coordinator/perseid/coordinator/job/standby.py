"""What the replicas of a job do, by fragment, as their reports show.

Which replicas there are, and where, is in the plan; here is what one does, and how often those of
a fragment have failed. The rules: `replicas`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from perseid.clocks import growing_s
from perseid.coordinator.job.ownership import Condition
from perseid.records import Assignment

RETRY_FIRST_S = 1.0  # a replica is not needed at once, and its restore takes capacity
RETRY_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Follower:
    """The replica of one fragment, of that generation; WAITING: no live worker runs it.

    `failed_at`: what its primary had done at the last failure. `why`: it waits, for users.
    `placed_at`: what its primary had done when this leader placed it, else 0. `missed`: what that
    one has done until it began to run.
    """

    generation: int = 0
    condition: Condition = Condition.WAITING
    done: int = 0
    failures: int = 0  # in a row, of this leader
    failed_at: int = 0
    retry_s: float = 0.0  # not placed again before
    why: str = ""
    placed_at: int = 0
    missed: int = 0
    equal: int = 0  # of a gate: epochs, with those of earlier workers


@dataclass(frozen=True, slots=True)
class Standby:
    """See the module docstring."""

    followers: Mapping[str, Follower] = field(default_factory=dict)

    def of(self, fragment: str) -> Follower:
        return self.followers.get(fragment, Follower())

    def condition(self, replica: Assignment) -> Condition:
        """WAITING also of one that is not known."""
        found = self.of(replica.fragment)
        return found.condition if found.generation == replica.generation else Condition.WAITING

    def placed(self, replica: Assignment, primary_done: int = 0, equal: int = 0) -> Standby:
        """A new one restores. `equal`: epochs of a gate that count already."""
        return self._with(
            replica.fragment, generation=replica.generation, condition=Condition.RESTORING,
            done=replica.from_epoch, why="", placed_at=primary_done, equal=equal,
        )  # fmt: skip

    def runs(self, fragment: str, epoch: int, primary_done: int) -> Standby:
        """It has done all epochs up to `epoch`, and its primary those up to `primary_done`.

        Its failures are over once it has done more than its primary had at the last one.
        """
        known = self.of(fragment)
        done, missed = max(epoch, known.done), known.missed
        if known.condition is Condition.RESTORING:
            missed = max(primary_done - known.placed_at, 0) if known.placed_at else 0
        failures = 0 if done > known.failed_at else known.failures
        return self._with(
            fragment, condition=Condition.RUNNING, done=done, missed=missed, failures=failures
        )

    def equal(self, fragment: str, epochs: int) -> Standby:
        """So many epochs of a gate were equal to its primary's."""
        return self._with(fragment, equal=max(epochs, self.of(fragment).equal))

    def uncounted(self, fragment: str) -> Standby:
        """A gate that is compared from 0 on."""
        return self._with(fragment, equal=0)

    def failed(self, fragment: str, primary_done: int, now_s: float, why: str) -> Standby:
        """The next one comes after a delay that grows."""
        failures = self.of(fragment).failures + 1
        retry_s = now_s + growing_s(failures, RETRY_FIRST_S, RETRY_MAX_S)
        return self.ended(fragment, why)._with(
            fragment, failures=failures, failed_at=primary_done, retry_s=retry_s
        )

    def ended(self, fragment: str, why: str) -> Standby:
        return self._with(fragment, condition=Condition.WAITING, why=why)

    def loaded(self, replicas: Iterable[Assignment], live: Collection[str]) -> Standby:
        """Those of a plan that was read; `live`: the incarnations of workers.

        One that has ended reports no more.
        """
        known = self
        for replica in replicas:
            if known.of(replica.fragment).generation != replica.generation:
                known = known.placed(replica)
            if replica.owner not in live:
                known = known.ended(replica.fragment, f"worker {replica.owner} is gone")
        return known

    def _with(self, fragment: str, **changes: object) -> Standby:
        changed = replace(self.of(fragment), **changes)  # type: ignore[arg-type]
        if changed == self.of(fragment):
            return self
        return replace(self, followers={**self.followers, fragment: changed})
