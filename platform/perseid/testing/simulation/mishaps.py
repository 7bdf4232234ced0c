"""External damage to source topics, clocks, shuffles and state logs.

Retention deletes records that no restore needs, which must have no effect, or also needed ones,
which the job must report. A source topic that was created again has other records at the same
offsets; none of them may be read.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product
from random import Random
from typing import TYPE_CHECKING

from perseid.testing.simulation import job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perseid.testing.simulation.ports import SimulatedFiles
    from perseid.testing.simulation.world import World
    from perseid.topics.admin import Partition
    from perseid.worker.dataflow.edges import Row

BITES_SHARE = 0.05  # of retentions: they delete records that are still needed
STRANGERS = 60  # records in a topic that was created again
PARTITIONS_MAX = 4  # of a source topic
AWAY_S = 2.0  # at most, until a deleted topic exists again
SET_EVERY_S = 3.0  # a clock is set
AHEAD_S = (3_600, -3_600, 30 * 86_400, -30 * 86_400)
LIVES_MAX = 100  # of a coordinator


def set_clocks(world: World, chance: Random) -> None:
    """Sets wall clocks while input comes: the broker's, or those of coordinators.

    Never both in one history: a new leader compares the two, and if both are wrong together it
    cannot distinguish that from time that has passed.
    """
    hosts = chance.choice([("broker",), ("c1",), ("c1", "c2")])
    at_s = 0.0
    while (at_s := at_s + chance.uniform(0.5, 2 * SET_EVERY_S)) < world.shape.input_s:
        host, ahead_s = chance.choice(hosts), chance.choice((0, *AHEAD_S))
        world.simulation.after(at_s, partial(_set_clock, world, host, ahead_s))


def _set_clock(world: World, host: str, ahead_s: int) -> None:
    world.simulation.note(f"the clock of {host} is set {ahead_s} s ahead")
    world.ahead_ms[host] = ahead_s * 1000
    world.gates.hit("clock set")


def switch_off(world: World, seconds: int) -> None:
    """Switches all machines off for that time: wall clocks advance, and processes end."""
    world.simulation.note(f"SWITCHED OFF for {seconds} s")
    for host in ("broker", "c1", "c2"):
        world.ahead_ms[host] += seconds * 1000
    world.checker.tokens.off_ms += seconds * 1000
    for host, life in product(("c1", "c2"), range(1, LIVES_MAX)):
        world.simulation.kill_named(f"{host}.{life}")


def retain(world: World) -> None:
    """Deletes the oldest records of a source partition."""
    chance = world.simulation.random
    place = chance.choice([(t, p) for t in ("left", "right") for p in range(PARTITIONS_MAX)])
    bites = chance.random() < BITES_SHARE
    log = world.kafka.topics[place[0]].logs[place[1]] if _is_read(world, place) else None
    if log is None:
        return
    start = chance.randint(log.start, log.end) if bites else _needless(world)[place]
    if start <= log.start:
        return
    world.simulation.note(f"RETENTION: {place} begins with {start}")
    world.gates.hit("retention that bites" if bites else "retention")
    if bites:
        # RefusedError: another revision is wanted, and cannot end the epoch either.
        lose_input(world, "ReplayDataLost", "RefusedError")
    log.trim(start)


def remake(world: World) -> None:
    """Deletes a source topic and soon creates it again with other records."""
    topic = world.simulation.random.choice(["left", "right"])
    if world.remade or not any(_is_read(world, (topic, p)) for p in range(PARTITIONS_MAX)):
        return
    world.remade = topic
    partitions = len(world.kafka.topics[topic].logs)
    world.simulation.note(f"{topic} IS DELETED")
    # RefusedError: the next revision would have to end this epoch, and it cannot either.
    lose_input(world, "TopicIdentityChanged", "PermanentError", "RefusedError")
    world.topics.delete([topic])

    def again() -> None:
        world.simulation.note(f"{topic} IS CREATED AGAIN")
        world.gates.hit("topic recreated")
        world.topics.create(topic, partitions)
        for _ in range(STRANGERS):
            place = topic, world.simulation.random.randrange(partitions)
            world.kafka.append(place, None, job.record(job.STRANGER, 1))

    world.simulation.after(world.simulation.random.uniform(0.0, AWAY_S), again)


def lose_input(world: World, *kinds: str) -> None:
    """From now on the job may end with an error of these kinds."""
    world.input_lost |= {*kinds}
    world.checker.input_is_lost()


def shuffled(world: World, rows: Sequence[Row]) -> list[Row]:
    """The rows that one attempt of a task gets: now and then one less, one twice, or no last ones.

    The row that comes twice stands for a chunk of another attempt of its sender.
    """
    found, chance = list(rows), world.simulation.random
    if not found or not world.gates.strikes("shuffle"):
        return found
    at = chance.randrange(len(found))
    how = chance.choice(["LOSES", "DOUBLES", "CUTS OFF"])
    world.simulation.note(f"THE SHUFFLE {how} row {at + 1} of {len(found)}")
    if how == "DOUBLES":
        return [*found[:at], found[at], *found[at:]]
    return found[:at] + ([] if how == "CUTS OFF" else found[at + 1 :])


def flip_byte(world: World, files: SimulatedFiles, folder: str) -> None:
    """Damages a file of the state logs silently."""
    paths = files.below(folder)
    if paths:
        damage(world, files, world.simulation.random.choice(paths))


def damage(world: World, files: SimulatedFiles, path: str) -> None:
    data = files.read(path)
    if data:
        files.damage(path, flipped(world.simulation.random, data))
        world.logs_harmed = True
        world.simulation.note(f"DAMAGED {path}")


def flipped(chance: Random, data: bytes) -> bytes:
    """Returns `data` with one byte changed."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def _is_read(world: World, place: Partition) -> bool:
    """Whether a token names the partition: else the job does not know its start yet."""
    topic = world.kafka.topics.get(place[0])
    there = topic is not None and place[1] < len(topic.logs)
    return there and world.checker.tokens.ends[place] > 0


def _needless(world: World) -> Counter[Partition]:
    """By source partition: the offset below which no restore needs records."""
    pointers, plan = world.registry.pointers(job.JOB), world.registry.plan(job.JOB)
    kept = [
        p.epoch
        for p in (*(pointers.pointers if pointers else ()), *(plan.checkpoints if plan else ()))
    ]
    return world.checker.tokens.ends_at.get(min(kept, default=-1), Counter())
