"""Which plan a job has, what its fragments do, and how far they have come.

Owns the plan with its generation, the condition and the last done epoch of each fragment, and the
highest committed one. The rules of a new owner: `placement`, `failing`, `switching`; of what a
report counts: `progress`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from perseid.coordinator.lifecycle import Phase
from perseid.records import WHOLE, Assignment, Plan

_UNPLANNED = (Assignment(WHOLE, None, None, 0),)  # a job without a plan counts as one fragment


class Condition(Enum):
    """What one fragment does: see `lifecycle`, whose phases have the same names."""

    WAITING = "waiting"
    RESTORING = "restoring"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Ownership:
    """See the module docstring."""

    plan: Plan | None = None
    generation: int = 0  # the highest ever assigned under this name
    done_by: Mapping[str, int] = field(default_factory=dict)  # the last done epoch, by fragment
    ledger_highest: int = 0  # highest epoch in any ledger partition
    conditions: Mapping[str, Condition] = field(default_factory=dict)  # else a fragment waits
    since_s: Mapping[str, float] = field(default_factory=dict)  # see `is_late`; of several only

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
        return min(self.done_of(a) for a in self.primaries)

    def done_of(self, fragment: Assignment) -> int:
        """All epochs up to this one are logged and committed by that fragment."""
        return self.done_by.get(fragment.fragment, fragment.from_epoch)

    @property
    def slowest(self) -> tuple[Assignment, ...]:
        """The fragments for which the others' epochs wait to be done."""
        return tuple(a for a in self.primaries if self.done_of(a) == self.done)

    @property
    def owner(self) -> str | None:
        """The owner of a job that is one fragment; None for one of several fragments."""
        return self.plan.owner if self.plan is not None else None

    @property
    def owners(self) -> Mapping[str, str]:
        """By fragment, as far as the plan names them."""
        return {a.fragment: a.owner for a in self.primaries if a.owner is not None}

    @property
    def next_generation(self) -> int:
        return self.generation + 1

    # -- conditions ------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """The phase of a job that is neither ended nor being loaded.

        RUNNING when every fragment runs, WAITING when every one waits, else RESTORING: a fragment
        without an owner does not keep the job from an epoch, because others may run it
        (`issue.may_issue`).
        """
        found = {self.condition(a.fragment) for a in self.primaries}
        if found == {Condition.RUNNING}:
            return Phase.RUNNING
        return Phase.WAITING if found == {Condition.WAITING} else Phase.RESTORING

    def condition(self, fragment: str) -> Condition:
        return self.conditions.get(fragment, Condition.WAITING)

    def are(self, condition: Condition) -> tuple[Assignment, ...]:
        """The fragments in this condition, in the plan's order."""
        return tuple(a for a in self.primaries if self.condition(a.fragment) is condition)

    @property
    def waiting(self) -> tuple[Assignment, ...]:
        """The fragments that no live owner has."""
        return self.are(Condition.WAITING)

    def become(self, condition: Condition, fragments: Iterable[str]) -> Ownership:
        """These fragments are in that condition now."""
        changed = dict.fromkeys(fragments, condition)
        return replace(self, conditions={**self.conditions, **changed})

    # -- plans -----------------------------------------------------------------------------------

    def planned(self, plan: Plan) -> Ownership:
        """Under a plan of a new generation.

        Fragments of a new generation with an owner restore again; one that waited still waits.
        """
        before = {a.fragment: a.generation for a in self.primaries}
        conditions = {}
        for own in plan.primaries:
            name = own.fragment
            known = self.condition(name) if own.owner is not None else Condition.WAITING
            if own.generation != before.get(name) and known is not Condition.WAITING:
                known = Condition.RESTORING
            conditions[name] = known
        done_by = {name: done for name, done in self.done_by.items() if name in conditions}
        return replace(
            self, plan=plan, generation=plan.generation, conditions=conditions, done_by=done_by
        )

    def renamed(self, plan: Plan) -> Ownership:
        """Under a plan that differs in the revision's name alone."""
        return replace(self, plan=plan)

    def asked(self, epoch: int, now_s: float) -> Ownership:
        """The token of `epoch` is issued: fragments that had nothing to do have it from now on."""
        idle = {a.fragment: now_s for a in self.primaries if self.done_of(a) == epoch - 1}
        return replace(self, since_s={**self.since_s, **idle})

    def heard(self, fragment: str, now_s: float) -> Ownership:
        """The fragment has reported the end of an epoch."""
        return replace(self, since_s={**self.since_s, fragment: now_s})

    def is_late(self, own: Assignment, tip: int, now_s: float, limit_s: float) -> bool:
        """Whether it has something to do, and has ended no epoch for that time."""
        return self.done_of(own) < tip and now_s - self.since_s.get(own.fragment, now_s) > limit_s

    # -- epochs ----------------------------------------------------------------------------------

    def begun(self, epoch: int) -> Ownership:
        """The chain begins after `epoch`."""
        return replace(self, done_by={a.fragment: epoch for a in self.primaries})

    def progressed(self, fragment: str, epoch: int) -> Ownership:
        """The fragment has done all epochs up to `epoch`; ignores one that the plan lacks."""
        known = next((a for a in self.primaries if a.fragment == fragment), None)
        if known is None:
            return self
        return replace(self, done_by={**self.done_by, fragment: max(epoch, self.done_of(known))})

    def committed(self, fragment: str, epoch: int) -> Ownership:
        """The same, by the report of its end: ledgers have it."""
        highest = max(self.ledger_highest, epoch)
        return replace(self.progressed(fragment, epoch), ledger_highest=highest)

    def rewound(self, epoch: int) -> Ownership:
        """The tokens above `epoch` are rolled back, also of fragments that were ahead."""
        done_by = {name: min(done, epoch) for name, done in self.done_by.items()}
        return replace(self, done_by=done_by)
