"""Common steps on the one job of a world in memory."""

from __future__ import annotations

from dataclasses import replace

from perseid.topics.records import Token
from support.coordinator import Leader, World, job_entry, job_spec

JOB = "wordcount"


def one_job() -> World:
    """One job, one worker, one source topic with two empty partitions."""
    world = World(entries={JOB: job_entry()}, workers=["w1-1"])
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    return world


def leading(world: World) -> Leader:
    """Leads, and has placed the job, which runs."""
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    return leader


def want(world: World, leader: Leader, **changes: object) -> None:
    """Changes the user's entry, with a higher counter."""
    before = world.entries[JOB]
    world.entries[JOB] = replace(before, counter=before.counter + 1, **changes)  # type: ignore[arg-type]
    leader.look()


def new_revision(world: World, leader: Leader, **changes: object) -> None:
    world.programs["archive-2"] = job_spec(**changes)  # type: ignore[arg-type]
    want(world, leader, revision="r2", archive="archive-2")


def run(world: World, leader: Leader, epochs: int = 1) -> None:
    for _ in range(epochs):
        world.produce(0, 10)
        leader.poll()
        world.work(JOB)
        leader.listen()


def last(world: World) -> Token:
    return list(world.valid(JOB).values())[-1]


def fail(world: World, leader: Leader) -> None:
    world.report(JOB, "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()


def failed_in_flight(world: World, leader: Leader) -> Token:
    """Two epochs are done, the third one has bad input."""
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()
    bad = last(world)
    fail(world, leader)
    return bad


def half_committed(world: World, leader: Leader) -> Token:
    """The same, and one of two partitions has committed the third epoch."""
    bad = failed_in_flight(world, leader)
    world.ledger[JOB][0] = bad.epoch
    return bad
