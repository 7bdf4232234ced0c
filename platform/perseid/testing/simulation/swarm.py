"""What scripted histories have in common: their form, and faults at any rate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, Protocol

from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Simulation
from perseid.testing.simulation.faults import Faults
from perseid.testing.simulation.world import World


class Script(Protocol):
    """Called once before a history begins; it schedules later actions with `simulation.after`."""

    name: ClassVar[str]

    def __call__(self, simulation: Simulation, world: World, /) -> None: ...


def kill_owner(simulation: Simulation, world: World) -> None:
    """Kills the worker that runs the job, or its first fragment, if there is one."""
    plan = world.registry.plan(job.JOB)
    owner = plan.assignments[0].owner if plan is not None else None
    if owner is not None:
        simulation.note(f"KILLED {owner}")
        simulation.after(0.0, partial(simulation.kill_named, owner))


@dataclass
class Swarm(Faults):
    """Faults of these strengths to the end of the input.

    `asks`: the user requests a checkpoint every second. `rescales`: the user rescales now and then.
    """

    name: ClassVar[str] = "swarm"
    asks: bool = False
    rescales: bool = False

    def __call__(self, simulation: Simulation, world: World) -> None:
        world.asks, world.rescales = self.asks, self.rescales
        for field in fields(Faults):
            setattr(world.faults, field.name, getattr(self, field.name))
