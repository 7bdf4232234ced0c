"""A job that is one fragment with a replica, in a world in memory."""

from __future__ import annotations

from dataclasses import replace

from perseid.jobs.model.spec import FaultToleranceSpec, JobSpec
from perseid.records import Assignment
from perseid.topics.records import EpochDone, FragmentState
from support.coordinator import Leader, World, job_entry, job_spec

JOB = "wordcount"
PROTECTED = FaultToleranceSpec(replicas="all")


def replicated_spec(**changes: object) -> JobSpec:
    return job_spec(**{"fault_tolerance": PROTECTED, **changes})  # type: ignore[arg-type]


def replicated_world(*workers: str) -> World:
    """One job and these workers, by incarnation."""
    world = World(
        programs={"archive-1": replicated_spec()}, entries={JOB: job_entry()},
        workers=list(workers),
    )  # fmt: skip
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    return world


def primary(world: World) -> Assignment:
    return world.plans[JOB].only


def replica(world: World) -> Assignment:
    (found,) = world.plans[JOB].replicas
    return found


def replica_reports(
    world: World, state: str, of: Assignment | None = None, **changes: object
) -> FragmentState:
    """Reports the state of a replica, of the present one by default."""
    own = of if of is not None else replica(world)
    record = FragmentState(
        "u1", own.generation, own.owner or "", state, world.done(JOB, "u1"), fragment=own.name
    )
    record = replace(record, **changes)  # type: ignore[arg-type]
    world.progress.setdefault(JOB, []).append(record)
    return record


def replica_ends(world: World, of: Assignment | None = None) -> EpochDone:
    """Reports that the replica has run the epoch of the newest token."""
    own = of if of is not None else replica(world)
    offset, token = list(world.valid(JOB).items())[-1]
    record = EpochDone(
        "u1", own.generation, own.owner or "", token.epoch, offset, 1000, 1000, 5,
        state_bytes=7, dead_letters=3, fragment=own.name,
    )  # fmt: skip
    world.progress.setdefault(JOB, []).append(record)
    return record


def protected(*workers: str) -> tuple[World, Leader]:
    """The job runs on the first of two workers, and its replica on the second."""
    world = replicated_world(*(workers or ("w1-1", "w2-1")))
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    replica_reports(world, "running")
    leader.listen()
    return world, leader


def lose(world: World, leader: Leader, *workers: str) -> None:
    """These workers are dead, and the leader sees it."""
    world.workers = [w for w in world.workers if w not in workers]
    leader.look()
