"""What befalls source topics and state logs while nobody of perseid's does anything.

Retention takes what no restore needs, which must go unnoticed, or more, which the user is told of.
A topic that was made anew has other records at the same offsets, and none of them may be taken.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product
from random import Random
from typing import TYPE_CHECKING

from perseid.testing.simulation import job

if TYPE_CHECKING:
    from perseid.testing.simulation.ports import SimulatedFiles
    from perseid.testing.simulation.world import World
    from perseid.topics.admin import Partition

BITES_SHARE = 0.05  # of retentions: they take what is still needed
STRANGERS = 60      # records in a topic that was made anew
PARTITIONS_MAX = 4  # of a source topic
AWAY_S = 2.0        # at most, before it is there again
SET_EVERY_S = 3.0   # a clock
AHEAD_S = (3_600, -3_600, 30 * 86_400, -30 * 86_400)
LIVES_MAX = 100     # of a coordinator


def set_clocks(world: World, chance: Random) -> None:
    """Wall clocks are set, now and then while input comes: the broker's, or coordinators'.

    Not both in one history: where the two that a new leader compares are wrong together, nothing
    tells that from time that has passed.
    """
    hosts = chance.choice([("broker",), ("c1",), ("c1", "c2")])
    at_s = 0.0
    while (at_s := at_s + chance.uniform(0.5, 2 * SET_EVERY_S)) < world.shape.input_s:
        host, ahead_s = chance.choice(hosts), chance.choice((0, *AHEAD_S))
        world.simulation.after(at_s, partial(_set_clock, world, host, ahead_s))


def _set_clock(world: World, host: str, ahead_s: int) -> None:
    world.simulation.say(f"the clock of {host} is set {ahead_s} s ahead")
    world.ahead_ms[host] = ahead_s * 1000
    world.gates.hit("clock set")


def switch_off(world: World, seconds: int) -> None:
    """All machines are off for that long: wall clocks go on, and processes end."""
    world.simulation.say(f"SWITCHED OFF for {seconds} s")
    for host in ("broker", "c1", "c2"):
        world.ahead_ms[host] += seconds * 1000
    world.checker.tokens.off_ms += seconds * 1000
    for host, life in product(("c1", "c2"), range(1, LIVES_MAX)):
        world.simulation.kill_named(f"{host}.{life}")


def retain(world: World) -> None:
    """A source partition loses its oldest records."""
    chance = world.simulation.random
    place = chance.choice([(t, p) for t in ("left", "right") for p in range(PARTITIONS_MAX)])
    bites = chance.random() < BITES_SHARE
    log = world.kafka.topics[place[0]].logs[place[1]] if _is_read(world, place) else None
    if log is None:
        return
    start = chance.randint(log.start, log.end) if bites else _needless(world)[place]
    if start <= log.start:
        return
    world.simulation.say(f"RETENTION: {place} begins with {start}")
    world.gates.hit("retention that bites" if bites else "retention")
    if bites:
        lose_input(world, "ReplayDataLost")
    log.trim(start)


def remake(world: World) -> None:
    """A source topic is deleted, and soon there is one of its name with other records."""
    topic = world.simulation.random.choice(["left", "right"])
    if world.remade or not any(_is_read(world, (topic, p)) for p in range(PARTITIONS_MAX)):
        return
    world.remade = topic
    partitions = len(world.kafka.topics[topic].logs)
    world.simulation.say(f"{topic} IS DELETED")
    # The last one: another revision was to end the epoch that this one could not, and cannot.
    lose_input(world, "TopicIdentityChanged", "PermanentError", "RefusedError")
    world.topics.delete([topic])

    def again() -> None:
        world.simulation.say(f"{topic} IS MADE ANEW")
        world.gates.hit("topic made anew")
        world.topics.create(topic, partitions)
        for _ in range(STRANGERS):
            place = topic, world.simulation.random.randrange(partitions)
            world.kafka.append(place, None, job.record(job.STRANGER, 1))

    world.simulation.after(world.simulation.random.uniform(0.0, AWAY_S), again)


def lose_input(world: World, *kinds: str) -> None:
    """From now on the job may end with an error of these kinds."""
    world.input_lost |= {*kinds}
    world.checker.input_is_lost()


def flip_byte(world: World, files: SimulatedFiles, folder: str) -> None:
    """A file of the state logs is not what it was, which nobody was told of."""
    paths = files.below(folder)
    if paths:
        damage(world, files, world.simulation.random.choice(paths))


def damage(world: World, files: SimulatedFiles, path: str) -> None:
    data = files.read(path)
    if data:
        files.damage(path, flipped(world.simulation.random, data))
        world.logs_harmed = True
        world.simulation.say(f"DAMAGED {path}")


def flipped(chance: Random, data: bytes) -> bytes:
    """With one byte that is another one."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def _is_read(world: World, place: Partition) -> bool:
    """Whether a token names the partition: else the job has yet to see where it begins."""
    topic = world.kafka.topics.get(place[0])
    there = topic is not None and place[1] < len(topic.logs)
    return there and world.checker.tokens.ends[place] > 0


def _needless(world: World) -> Counter[Partition]:
    """By source partition: below it lies what all that may be restored from has read."""
    pointers, plan = world.registry.pointers(job.JOB), world.registry.plan(job.JOB)
    kept = [
        p.epoch
        for p in (*(pointers.pointers if pointers else ()), *(plan.checkpoints if plan else ()))
    ]
    return world.checker.tokens.ends_at.get(min(kept, default=-1), Counter())
