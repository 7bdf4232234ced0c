"""An incremental recovery from the failure to its end: plan after plan, as capacity becomes free.

Incremental recovery, sections 4.3 and 5. There is one plan at a time, with the states

    PLANNED      chosen, to be stored next; no worker knows it yet
    RUNNING      its partitions are being installed
    INTERRUPTED  the coordinator was lost: another one has read the plan but not sent it yet
    DONE         nothing of it is left to install

A partition counts as soon as it is installed, whatever the outcome of its plan. The partitions of a
lost worker count as failed again, and the next plan has them. Only the first plan rolls back. A
step is O(partitions), except `planned`, which schedules.

>>> partitions = [Partition("p1", 0.5), Partition("p2", 0.5), Partition("p3", 0.7)]
>>> queries = [Query("q1", 3, ("p1", "p2")), Query("q2", 1, ("p3",))]
>>> recovery = Recovery(frozenset({"p1", "p2", "p3"}))
>>> recovery = recovery.planned(partitions, queries, [Worker("w1", 2.0, used=0.5)]).announced()
>>> recovery.plan.assigned, recovery.plan.rolls_back
({'p1': 'w1', 'p2': 'w1'}, True)
>>> recovery = recovery.installed("p1", "w1").interrupted().announced()
>>> recovery.missing, recovery.plan.phase.name
({'p2': 'w1'}, 'RUNNING')
>>> recovery = recovery.installed("p2", "w1")
>>> recovery.plan.phase.name, recovery.answering(queries)
('DONE', ['q1'])
>>> more = [Worker("w1", 2.0, used=0.5), Worker("w2", 1.0)]
>>> recovery.planned(partitions, queries, more).plan
Plan(number=2, assigned={'p3': 'w2'}, phase=<Phase.PLANNED: 'planned'>)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from perseid.coordinator.planners.best_density import best_density
from perseid.coordinator.planners.recovery import Partition, Query
from perseid.coordinator.planners.recovery_capacity import (
    Scheduler,
    Worker,
    free_cores,
    placed_plan,
)
from perseid.errors import BadInputError


class Phase(Enum):
    """See the module docstring."""

    PLANNED = "planned"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    DONE = "done"


# DONE from any state: the workers of all missing partitions may be lost.
ALLOWED: dict[Phase, frozenset[Phase]] = {
    Phase.PLANNED: frozenset({Phase.RUNNING, Phase.INTERRUPTED, Phase.DONE}),
    Phase.RUNNING: frozenset({Phase.INTERRUPTED, Phase.DONE}),
    Phase.INTERRUPTED: frozenset({Phase.RUNNING, Phase.DONE}),
    Phase.DONE: frozenset(),
}


class InvalidStep(Exception):
    """A defect of the caller: a step of a plan that the table does not allow."""

    def __init__(self, plan: Plan | None, finish: Phase) -> None:
        self.plan, self.finish = plan, finish
        super().__init__(plan, finish)

    def __str__(self) -> str:
        if self.plan is None:
            return f"no recovery plan is there to become {self.finish.name}"
        return (
            f"recovery plan {self.plan.number} cannot go from {self.plan.phase.name} to "
            f"{self.finish.name}; it has {self.plan.assigned}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Which partition is installed on which worker."""

    number: int
    assigned: Mapping[str, str]
    phase: Phase = Phase.PLANNED

    @property
    def rolls_back(self) -> bool:
        """Whether all live partitions roll back to the checkpoint: only once (section 4.3)."""
        return self.number == 1

    def then(self, phase: Phase) -> Plan:
        if phase is not self.phase and phase not in ALLOWED[self.phase]:
            raise InvalidStep(self, phase)
        return replace(self, phase=phase)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What is still failed, what this recovery has restored and where, and the newest plan."""

    failed: frozenset[str]
    recovered: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def missing(self) -> dict[str, str]:
        """The plan's partitions still to install; after an interruption only these are sent."""
        if self.plan is None:
            return {}
        return {p: w for p, w in self.plan.assigned.items() if p not in self.recovered}

    def planned(
        self,
        partitions: Sequence[Partition],
        queries: Sequence[Query],
        workers: Sequence[Worker],
        replicated: Collection[str] = (),
        scheduler: Scheduler = best_density,
    ) -> Recovery:
        """Adds the next plan; changes nothing while one is under way or if nothing more fits.

        `workers`: the live ones. `replicated`: failed partitions with a running replica.
        """
        if self.plan is not None and self.plan.phase is not Phase.DONE:
            return self
        cost = {p.id: p.cost for p in partitions}
        taken: dict[str, float] = defaultdict(float)
        for partition, worker in self.recovered.items():
            if partition not in cost:
                raise BadInputError(f"recovered partition {partition} is not there")
            taken[worker] += cost[partition]
        free = free_cores(workers, taken)
        assigned = placed_plan(partitions, queries, self.failed, free, replicated, scheduler)
        if not assigned:
            return self
        number = 1 if self.plan is None else self.plan.number + 1
        return replace(self, plan=Plan(number, assigned))

    def announced(self) -> Recovery:
        """The workers know the plan: for the first time, or again its missing part."""
        return self._step(Phase.RUNNING)

    def interrupted(self) -> Recovery:
        """The coordinator was lost. Changes nothing without a plan or after its end."""
        if self.plan is None or self.plan.phase is Phase.DONE:
            return self
        return self._step(Phase.INTERRUPTED)

    def installed(self, partition: str, worker: str) -> Recovery:
        """A worker reports a running partition. One that no plan wants there changes nothing."""
        if self.missing.get(partition) != worker:
            return self
        recovered = {**self.recovered, partition: worker}
        return replace(self, failed=self.failed - {partition}, recovered=recovered)._closed()

    def lost(self, worker: str) -> Recovery:
        """A worker is gone, with everything that was or would be recovered on it."""
        gone = {p for p, at in self.recovered.items() if at == worker}
        kept = {p: at for p, at in self.recovered.items() if at != worker}
        plan = self.plan
        if plan is not None:
            here = {p: at for p, at in plan.assigned.items() if at != worker}
            plan = replace(plan, assigned=here)
        return Recovery(self.failed | gone, kept, plan)._closed()

    def answering(self, queries: Sequence[Query], replicated: Collection[str] = ()) -> list[str]:
        """The queries whose partitions, or their replicas, all run."""
        gone = self.failed - set(replicated)
        return [query.id for query in queries if gone.isdisjoint(query.partitions)]

    def _closed(self) -> Recovery:
        """Marks the plan as done if nothing of it is missing."""
        return self if self.plan is None or self.missing else self._step(Phase.DONE)

    def _step(self, phase: Phase) -> Recovery:
        if self.plan is None:
            raise InvalidStep(None, phase)
        return replace(self, plan=self.plan.then(phase))
