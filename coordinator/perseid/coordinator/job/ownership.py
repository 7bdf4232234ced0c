"""Which plan a job has, and how far its owners have come.

Owns the plan with its generation, the last done epoch and the highest committed one. The rules of a
new owner: `placement`, `failing`, `switching`; of what a report counts: `progress`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from perseid.records import Plan


@dataclass(frozen=True, slots=True)
class Ownership:
    """See the module docstring."""

    plan: Plan | None = None
    generation: int = 0  # the highest ever assigned under this name
    done: int = 0  # all epochs up to this one are logged and committed
    ledger_highest: int = 0  # highest epoch in any ledger partition

    @property
    def owner(self) -> str | None:
        return self.plan.owner if self.plan is not None else None

    @property
    def next_generation(self) -> int:
        return self.generation + 1

    def planned(self, plan: Plan) -> Ownership:
        """Under a plan of a new generation."""
        return replace(self, plan=plan, generation=plan.generation)

    def renamed(self, plan: Plan) -> Ownership:
        """Under a plan that differs in the revision's name alone."""
        return replace(self, plan=plan)

    def begun(self, epoch: int) -> Ownership:
        """The chain begins after `epoch`."""
        return replace(self, done=epoch)

    def progressed(self, epoch: int) -> Ownership:
        """All epochs up to `epoch` are done."""
        return replace(self, done=max(self.done, epoch))

    def committed(self, epoch: int) -> Ownership:
        """The same, by the report of its end: ledgers have it."""
        return replace(self.progressed(epoch), ledger_highest=max(self.ledger_highest, epoch))
