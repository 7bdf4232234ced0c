"""Scripted histories of replicas and gates, and of a horizon of audits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import ClassVar

from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect, Simulation
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.swarm import Swarm, kill_owner
from perseid.testing.simulation.world import World


@dataclass
class Diverging(Swarm):
    """A replica makes other outputs: it ends with that error, and the job gets no other replica."""

    name: ClassVar[str] = "diverging"
    SHAPE: ClassVar[Shape] = Shape(
        workers=3, hosts=1, totals=1, relays=0, every_s=0.5, replicas=True, unordered=True
    )  # fmt: skip

    def __call__(self, simulation: Simulation, world: World) -> None:
        super().__call__(simulation, world)
        world.roles.diverges = True
        job.UnorderedTotals.chance = Random(simulation.random.random())
        simulation.after(world.shape.input_s, partial(self._look, world))

    def _look(self, world: World) -> None:
        plan = world.roles.plan
        if not world.gates.struck["diverged"]:
            raise Defect("a replica has made other outputs, and nothing was compared")
        if plan is None or plan.replicas:
            raise Defect(f"a replica has made other outputs, and the job has one: {plan}")


@dataclass
class DivergingAtDeath(Swarm):
    """Nothing is compared any more, the replica makes other outputs, and its primary dies."""

    name: ClassVar[str] = "diverging-at-death"
    SHAPE: ClassVar[Shape] = Diverging.SHAPE
    AT_S: ClassVar[float] = 6.0
    LOOK_S: ClassVar[float] = 0.1

    def __call__(self, simulation: Simulation, world: World) -> None:
        super().__call__(simulation, world)
        world.roles.diverges = True
        job.UnorderedTotals.chance = None
        chance = Random(simulation.random.random())
        simulation.after(self.AT_S, partial(self._begin, simulation, world, chance))
        simulation.after(world.shape.input_s, partial(self._ended, world))

    def _begin(self, simulation: Simulation, world: World, chance: Random) -> None:
        world.roles.audits = False
        job.UnorderedTotals.chance = chance
        self._look(simulation, world)

    def _look(self, simulation: Simulation, world: World) -> None:
        replicas = world.roles.plan.replicas if world.roles.plan is not None else ()
        if any(world.roles.differing(own.generation) for own in replicas):
            kill_owner(simulation, world)
        else:
            simulation.after(self.LOOK_S, partial(self._look, simulation, world))

    def _ended(self, world: World) -> None:
        plan = world.roles.plan
        if plan is None or plan.replicas or not plan.diverged:
            raise Defect(f"a replica that had made other outputs took over, and the plan is {plan}")


@dataclass
class SlowReplica(Swarm):
    """A replica is slower than its primary for a while: it begins again at newer checkpoints."""

    name: ClassVar[str] = "slow-replica"
    SHAPE: ClassVar[Shape] = Shape(
        workers=2, hosts=2, totals=1, relays=0, every_s=0.2, period_s=1.0, replicas=True
    )  # fmt: skip
    UNTIL_S: ClassVar[float] = 12.0

    def __call__(self, simulation: Simulation, world: World) -> None:
        super().__call__(simulation, world)
        world.roles.slow_s = 1.0
        simulation.after(self.UNTIL_S, partial(setattr, world.roles, "slow_s", 0.0))


@dataclass
class Gated(Swarm):
    """A revision is applied with a gate. With other results it is refused, else it runs at last.

    What is put out is that of the first revision, as the checker knows it; `revised` gives others,
    all with another "total". It runs too where that column is what `approves` names.
    """

    name: ClassVar[str] = "gated"
    SHAPE: ClassVar[Shape] = Shape(
        workers=3, hosts=2, totals=2, relays=0, every_s=0.5, input_s=40.0
    )  # fmt: skip
    AT_S: ClassVar[float] = 3.0

    revised: bool = False
    approves: str = ""
    epochs: int = 3

    @property
    def differs(self) -> bool:
        """Whether the revision must not run."""
        return self.revised and self.approves != "total"

    def __call__(self, simulation: Simulation, world: World) -> None:
        super().__call__(simulation, world)
        world.gated, world.roles.revised = True, self.revised
        world.roles.refuses = self.differs
        self._archive = ""
        world.awaits = partial(self._is_open, world)
        simulation.after(self.AT_S, partial(self._apply, world))
        simulation.after(world.shape.input_s, partial(self._feed, simulation, world))

    def _apply(self, world: World) -> None:
        self._archive = world.gate(
            self.epochs, revised=self.revised, approves=self.approves
        )

    def _feed(self, simulation: Simulation, world: World) -> None:
        """Epochs are compared while there is input."""
        if self._is_open(world):
            world.produce(simulation.random, 3)
            simulation.after(1.0, partial(self._feed, simulation, world))

    def _is_open(self, world: World) -> bool:
        plan = world.roles.plan
        switched = plan is not None and plan.archive == self._archive
        if switched and self.differs:
            raise Defect("the job has switched to a revision that gives other results")
        if self.differs:
            gate = plan.gate if plan is not None else None
            return gate is None or "operator totals" not in gate.refused
        if plan is not None and plan.gate is not None and plan.gate.refused:
            raise Defect(f"a revision with the same results is refused: {plan.gate.refused}")
        return not switched


@dataclass
class Audited(Swarm):
    """Revisions are applied, and the job outlives the horizon of its audits twice."""

    name: ClassVar[str] = "audited"
    SHAPE: ClassVar[Shape] = Shape(
        workers=2, hosts=1, totals=2, relays=0, every_s=0.5, period_s=1.0, input_s=60.0,
        horizon_s=20.0,
    )  # fmt: skip

    def __call__(self, simulation: Simulation, world: World) -> None:
        super().__call__(simulation, world)
        world.applies = Random(simulation.random.random())
        simulation.after(world.shape.input_s, partial(self._look, world))

    def _look(self, world: World) -> None:
        if not world.horizon.audits or not world.kept.trims:
            raise Defect(
                f"{world.horizon.audits} epochs of a horizon were looked at, and its log was "
                f"trimmed {world.kept.trims} times"
            )
