"""What befalls the workers of a job with replicas, with a random generator of its own.

Chance strikes at gates, and seldom hits both roles within a second; these strikes do on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseid.records import Assignment
    from perseid.testing.simulation.engine import Group
    from perseid.testing.simulation.world import World

STRIKE_CHANCE = 0.12  # per second
SOON_S = 4.0  # within the time that a promotion takes
PAUSES_S = (0.3, 1.0, 3.0, 6.0, 12.0)


def strike(world: World, chance: Random) -> None:
    """Once a second."""
    if chance.random() < STRIKE_CHANCE:
        name, how = chance.choice(STRIKES)
        world.gates.hit(f"struck: {name}")
        how(world, chance)


def owner(world: World, *, muted: bool) -> str | None:
    """The incarnation that has the primary or, `muted`, the replica of the first fragment."""
    plan = world.roles.plan
    found: tuple[Assignment, ...] = ()
    if plan is not None:
        found = plan.replicas if muted else plan.assignments
    return found[0].owner if found else None


def kill(world: World, *, muted: bool) -> None:
    found = owner(world, muted=muted)
    if found is not None:
        world.simulation.note(f"KILLED {found}, of the {'replica' if muted else 'primary'}")
        world.simulation.kill_named(found)


def kill_leader(world: World) -> None:
    leader = world.registry.leader()
    if leader is not None:
        world.simulation.note(f"KILLED {leader.id}, the leader")
        world.simulation.kill_named(leader.id)


def pause(world: World, seconds: float, *, muted: bool) -> None:
    """A paused primary comes back as a zombie; a paused replica lags."""
    group = _group(world, owner(world, muted=muted))
    if group is not None:
        world.simulation.note(f"PAUSED {group.name} for {seconds} s")
        world.simulation.pause(group, seconds)


def cut_off(world: World, seconds: float) -> None:
    """The primary commits on, while ZooKeeper and the leader believe that it is dead."""
    group = _group(world, owner(world, muted=False))
    if group is not None:
        world.network.cut_off(group, "zookeeper", seconds)


def _fall_back(world: World, chance: Random) -> None:
    """The primary cannot commit while its replica continues; then it dies, and the promoted one."""
    group = _group(world, owner(world, muted=False))
    if group is not None:
        world.network.cut_off(group, "kafka", 2 * SOON_S)
        world.simulation.after(SOON_S / 2, partial(kill, world, muted=False))
        later_s = SOON_S + chance.uniform(0.0, SOON_S / 2)
        world.simulation.after(later_s, partial(kill, world, muted=False))


def _group(world: World, name: str | None) -> Group | None:
    groups = (g for groups in world.groups_of_host.values() for g in groups)
    return next((group for group in groups if group.name == name and not group.dead), None)


def _kill_one(world: World, _: Random, *, muted: bool) -> None:
    kill(world, muted=muted)


def _kill_both(world: World, chance: Random) -> None:
    kill(world, muted=False)
    world.simulation.after(chance.uniform(0.0, SOON_S), partial(kill, world, muted=True))


def _kill_twice(world: World, chance: Random) -> None:
    """The promoted one dies too, perhaps in the middle of its promotion."""
    kill(world, muted=False)
    world.simulation.after(chance.uniform(0.0, SOON_S), partial(kill, world, muted=False))


def _kill_with_leader(world: World, chance: Random) -> None:
    kill(world, muted=False)
    world.simulation.after(chance.uniform(0.0, SOON_S), partial(kill_leader, world))


def _pause(world: World, chance: Random, *, muted: bool) -> None:
    pause(world, chance.choice(PAUSES_S), muted=muted)


def _cut_off(world: World, chance: Random) -> None:
    cut_off(world, chance.choice(PAUSES_S))


STRIKES: tuple[tuple[str, Callable[[World, Random], None]], ...] = (
    ("primary", partial(_kill_one, muted=False)),
    ("replica", partial(_kill_one, muted=True)),
    ("both", _kill_both),
    ("twice", _kill_twice),
    ("leader too", _kill_with_leader),
    ("zombie", partial(_pause, muted=False)),
    ("lag", partial(_pause, muted=True)),
    ("cut off", _cut_off),
    ("falls back", _fall_back),
)
