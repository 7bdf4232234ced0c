"""Which plan a job has, and how far its fragments have come.

Owns the plan with its generation, the last done epoch of each fragment and the highest committed
one. The rules of a new owner: `placement`, `failing`, `switching`; of what a report counts:
`progress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perseid.records import WHOLE, Assignment, Plan

_UNPLANNED = (Assignment(WHOLE, None, None, 0),)  # a job without a plan counts as one fragment


@dataclass(frozen=True, slots=True)
class Ownership:
    """See the module docstring."""

    plan: Plan | None = None
    generation: int = 0  # the highest ever assigned under this name
    done_by: Mapping[str, int] = field(default_factory=dict)  # the last done epoch, by fragment
    ledger_highest: int = 0  # highest epoch in any ledger partition

    @property
    def primaries(self) -> tuple[Assignment, ...]:
        """The fragments that commit; together they have every operator partition once."""
        return self.plan.primaries if self.plan is not None else _UNPLANNED

    @property
    def done(self) -> int:
        """All epochs up to this one are logged and committed, by every operator partition.

        A fragment that has reported nothing, with or without an owner, counts with the epoch that
        it begins after.
        """
        return min(self.done_by.get(a.fragment, a.from_epoch) for a in self.primaries)

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
        return replace(self, done_by={a.fragment: epoch for a in self.primaries})

    def progressed(self, fragment: str, epoch: int) -> Ownership:
        """The fragment has done all epochs up to `epoch`; ignores one that the plan lacks."""
        known = next((a for a in self.primaries if a.fragment == fragment), None)
        if known is None:
            return self
        done = max(epoch, self.done_by.get(fragment, known.from_epoch))
        return replace(self, done_by={**self.done_by, fragment: done})

    def committed(self, fragment: str, epoch: int) -> Ownership:
        """The same, by the report of its end: ledgers have it."""
        highest = max(self.ledger_highest, epoch)
        return replace(self.progressed(fragment, epoch), ledger_highest=highest)
