"""A worker that joins gets its share: by itself after a while, at once if the user asks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import rebalancing
from perseid.coordinator.lifecycle import Phase
from perseid.records import REPLICA, Assignment, JobFailures
from perseid.topics.records import PartFailed, Token
from support.coordinator import Leader, World, job_entry, job_spec
from support.spread_job import JOB, SpreadWorld, epochs, leading, lose, spread_world

LONG_S = rebalancing.UNEVEN_S + 2


@pytest.fixture
def world() -> SpreadWorld:
    """Two workers with two of the four fragments each."""
    return spread_world(2)


@pytest.fixture
def leader(world: SpreadWorld) -> Leader:
    leader = leading(world)
    epochs(world, leader, 3)
    return leader


def joins(world: World, leader: Leader, worker: str = "w3-1") -> None:
    world.workers = [*world.workers, worker]
    leader.look()
    leader.tick(1.0)


def passes(world: SpreadWorld, leader: Leader, seconds: float) -> None:
    """Time with some epochs."""
    for _ in range(6):
        leader.tick(seconds / 6)
        epochs(world, leader)
        world.restore()
        leader.listen()


def asks(world: World, leader: Leader, *jobs: str) -> None:
    until_ms = world.now.wall_ms + 60_000
    for name in jobs or (JOB,):
        world.entries[name] = replace(world.entries[name], rebalance_until_ms=until_ms)
    leader.look()


def plans(leader: Leader) -> list[act.PutPlan]:
    return [a for a in leader.performed if isinstance(a, act.PutPlan)]


def counts(world: SpreadWorld) -> list[int]:
    found = Counter(world.owners.values())
    return sorted((found[worker] for worker in world.workers), reverse=True)


def newest(world: World) -> Token:
    return list(world.valid(JOB).values())[-1]


# -- by itself -----------------------------------------------------------------------------------


def test_a_worker_that_joins_gets_its_share_after_a_while(
    world: SpreadWorld, leader: Leader
) -> None:
    before, written = world.plans[JOB], len(plans(leader))
    joins(world, leader)
    passes(world, leader, rebalancing.UNEVEN_S - 2)
    assert world.plans[JOB] == before
    passes(world, leader, 9)
    after = world.plans[JOB]
    moved = [a for a in after.assignments if a not in before.assignments]
    assert [(a.fragment, a.owner, a.generation) for a in moved] == [("0", "w3-1", 2)]
    assert len(plans(leader)) == written + 1
    assert counts(world) == [2, 1, 1]
    assert JOB not in world.failures, "no failure"
    assert leader.job().phase is Phase.RUNNING
    why = "wordcount runs on 2 of the 3 workers that it may have"
    text = f"moved: fragment 0 from w1-1 to w3-1: {why}"
    assert [e for e in leader.job().health.events if "moved" in e] == [f"to be {text}", text]
    assert why in after.reason
    passes(world, leader, 200)
    assert world.plans[JOB] == after, "it is even"


def test_it_restores_from_a_checkpoint_that_was_just_taken(
    world: SpreadWorld, leader: Leader
) -> None:
    joins(world, leader)
    leader.tick(LONG_S)
    asked = newest(world)
    assert asked.checkpoint
    assert counts(world) == [2, 2, 0], "the checkpoint is not complete"
    world.run(2)
    leader.listen()
    assert counts(world) == [2, 1, 1]
    assert world.plans[JOB].checkpoints[0].epoch == asked.epoch
    written = [a for a in leader.performed if isinstance(a, act.PutPlan | act.PutPointers)]
    assert [type(a) for a in written[-2:]] == [act.PutPointers, act.PutPlan]
    world.restore()
    leader.listen()
    epochs(world, leader, 5)
    assert leader.job().done > asked.epoch + 3


def test_a_young_checkpoint_is_taken_as_it_is(world: SpreadWorld, leader: Leader) -> None:
    world.entries[JOB] = replace(world.entries[JOB], checkpoint_above=newest(world).epoch)
    leader.look()
    world.run(2)
    leader.listen()
    epoch = leader.job().newest
    joins(world, leader)
    asks(world, leader)
    leader.tick(1.0)
    assert counts(world) == [2, 1, 1]
    assert world.plans[JOB].checkpoints[0] == epoch


def test_a_worker_that_flaps_moves_nothing(world: SpreadWorld, leader: Leader) -> None:
    before = world.plans[JOB]
    for _ in range(6):
        joins(world, leader)
        passes(world, leader, rebalancing.UNEVEN_S / 2)
        lose(world, leader, "w3-1")
        passes(world, leader, 2)
    assert world.plans[JOB] == before


def test_moves_have_a_pause_between_them() -> None:
    world = two_jobs(6)
    leader = settled(world)
    joins(world, leader, "w2-1")
    leader.tick(1.0)
    for _ in range(3):
        written = len(plans(leader))
        leader.tick(rebalancing.UNEVEN_S)
        moves(world, leader)
        assert len(plans(leader)) == written + 1
        leader.tick(rebalancing.MOVE_EVERY_S / 2)
        moves(world, leader)
        assert len(plans(leader)) == written + 1
    owners = Counter(plan.owner for plan in world.plans.values())
    assert owners == {"w1-1": 3, "w2-1": 3}
    leader.tick(LONG_S)
    moves(world, leader)
    assert len(plans(leader)) == written + 1


def two_jobs(number: int) -> World:
    """Jobs of one fragment, all on one worker."""
    world = World(workers=["w1-1"])
    for at in range(number):
        name = f"job-{at}"
        world.programs[f"archive-{name}"] = job_spec(name)
        world.entries[name] = job_entry(name, uuid="u1", archive=f"archive-{name}", applied_ms=at)
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    return world


def settled(world: World) -> Leader:
    leader = Leader(world)
    leader.look()
    for name in world.entries:
        world.report(name, "running")
    leader.listen()
    return leader


def moves(world: World, leader: Leader) -> None:
    """What was decided is done: checkpoints, and a restore if there is another owner."""
    for _ in range(3):
        for name in world.entries:
            world.work(name, 5)
        leader.listen()
        for name in world.entries:
            if leader.job(name).phase is Phase.RESTORING:
                world.report(name, "running")
        leader.listen()


def test_the_oldest_jobs_move_first_and_the_next_one_when_it_runs() -> None:
    world = two_jobs(4)
    leader = settled(world)
    joins(world, leader, "w2-1")
    asks(world, leader, *world.entries)
    leader.tick(1.0)
    for name in world.entries:
        world.work(name, 5)
    leader.listen()
    assert [p.owner for p in world.plans.values()] == ["w2-1", "w1-1", "w1-1", "w1-1"]
    for _ in range(20):
        leader.tick(1.0)
        for name in list(world.entries)[1:]:
            world.work(name, 5)
        leader.listen()
    assert [p.owner for p in world.plans.values()] == ["w2-1", "w1-1", "w1-1", "w1-1"]
    moves(world, leader)
    leader.tick(1.0)
    moves(world, leader)
    assert [p.owner for p in world.plans.values()] == ["w2-1", "w2-1", "w1-1", "w1-1"]


def test_a_worker_that_leaves_gets_nothing(world: SpreadWorld, leader: Leader) -> None:
    world.leaving = {"w3-1"}
    joins(world, leader)
    passes(world, leader, 2 * LONG_S)
    assert counts(world) == [2, 2, 0]


def test_a_job_that_fails_again_and_again_is_left_alone(
    world: SpreadWorld, leader: Leader
) -> None:
    joins(world, leader)
    failing = JobFailures("u1", 3, 0)
    job = leader.job()
    leader.state = leader.state.with_job(
        replace(job, health=replace(job.health, failures=failing, failed_at=10**6))
    )
    passes(world, leader, LONG_S)
    assert counts(world) == [2, 2, 0]


def test_its_replica_is_not_where_it_moves_to(world: SpreadWorld, leader: Leader) -> None:
    joins(world, leader)
    job = leader.job()
    assert job.plan is not None
    replicas = tuple(
        replace(a, role=REPLICA, owner="w3-1", log="pair") for a in job.plan.assignments[:2]
    )
    plan = replace(job.plan, replicas=replicas)
    leader.state = leader.state.with_job(replace(job, ownership=job.ownership.renamed(plan)))
    passes(world, leader, LONG_S)
    passes(world, leader, 6)
    assert [name for name, owner in world.owners.items() if owner == "w3-1"] == ["2"]
    assert world.plans[JOB].replicas == replicas


# -- at once -------------------------------------------------------------------------------------


def test_it_moves_at_once_if_the_user_asks(world: SpreadWorld, leader: Leader) -> None:
    joins(world, leader)
    asks(world, leader)
    passes(world, leader, 6)
    assert counts(world) == [2, 1, 1]


def test_a_request_is_for_its_job_alone() -> None:
    world = two_jobs(4)
    leader = settled(world)
    joins(world, leader, "w2-1")
    asks(world, leader, "job-2")
    for _ in range(5):
        leader.tick(1.0)
        moves(world, leader)
    assert [p.owner for p in world.plans.values()] == ["w1-1", "w1-1", "w2-1", "w1-1"]


def test_a_request_ends_with_its_time(world: SpreadWorld, leader: Leader) -> None:
    asks(world, leader)
    passes(world, leader, 61)
    joins(world, leader)
    passes(world, leader, 30)
    assert counts(world) == [2, 2, 0]


def test_another_leader_follows_the_request(world: SpreadWorld, leader: Leader) -> None:
    joins(world, leader)
    asks(world, leader)
    leader.tick(1.0)
    other = Leader(world)
    other.look()
    other.listen()
    passes(world, other, 6)
    assert counts(world) == [2, 1, 1]


# -- what comes between --------------------------------------------------------------------------


def under_way(world: SpreadWorld, leader: Leader) -> None:
    """Fragment 0 is to move to w3-1, and waits for its checkpoint."""
    joins(world, leader)
    asks(world, leader)
    leader.tick(1.0)
    assert leader.job().transfer is not None
    world.entries[JOB] = replace(world.entries[JOB], rebalance_until_ms=None)


def not_moved(leader: Leader) -> str:
    assert leader.job().transfer is None
    return next(e for e in leader.job().health.events if e.startswith("not moved"))


def test_the_worker_goes_before_it_gets_anything(world: SpreadWorld, leader: Leader) -> None:
    under_way(world, leader)
    world.workers.remove("w3-1")
    leader.look()
    world.run(2)
    leader.listen()
    leader.tick(1.0)
    assert counts(world) == [2, 2]
    assert "the worker is gone" in not_moved(leader)


def test_a_worker_dies_meanwhile(world: SpreadWorld, leader: Leader) -> None:
    under_way(world, leader)
    lose(world, leader, "w1-1")
    leader.tick(1.0)
    assert "has changed" in not_moved(leader)
    assert counts(world) == [2, 2], "placed as after any death"
    assert world.failures[JOB].count == 1


def test_the_user_stops_the_job(world: SpreadWorld, leader: Leader) -> None:
    under_way(world, leader)
    entry = world.entries[JOB]
    world.entries[JOB] = replace(entry, desired="stopped", counter=2)
    leader.look()
    world.run(5)
    leader.listen()
    leader.tick(1.0)
    world.run(5)
    leader.listen()
    leader.tick(1.0)
    assert world.statuses[JOB].state == "stopped"
    assert leader.job().transfer is None
    assert "w3-1" not in {a.owner for p in plans(leader) for a in p.plan.assignments}


def test_a_store_that_takes_no_checkpoint(world: SpreadWorld, leader: Leader) -> None:
    under_way(world, leader)
    before = world.plans[JOB]
    for _ in range(round(rebalancing.GIVE_UP_S) + 2):
        note = PartFailed("u1", 1, newest(world).epoch, "a1", 0, "the disk is full")
        world.progress[JOB].append(note)
        leader.listen()
        world.run(2)
        leader.listen()
        leader.tick(1.0)
    assert world.plans[JOB] == before
    assert "no checkpoint for 60 s" in not_moved(leader)


def test_the_worker_dies_right_after_the_move(world: SpreadWorld, leader: Leader) -> None:
    joins(world, leader)
    asks(world, leader)
    leader.tick(1.0)
    world.run(2)
    leader.listen()
    assert world.owners["0"] == "w3-1"
    lose(world, leader, "w3-1")
    assert world.owners["0"] in ("w1-1", "w2-1")
    world.restore()
    leader.listen()
    before = leader.job().done
    epochs(world, leader, 5)
    assert leader.job().done > before + 3


def test_reports_of_the_old_owner_mean_nothing(world: SpreadWorld, leader: Leader) -> None:
    joins(world, leader)
    asks(world, leader)
    leader.tick(1.0)
    old = world.plans[JOB].of_fragment("0")
    assert isinstance(old, Assignment)
    world.run(2)
    leader.listen()
    after = world.plans[JOB]
    for state, kind in (("stopped", ""), ("failed", "FencedError")):
        late = world.report_of("0", state, generation=old.generation, incarnation="w1-1")
        world.progress[JOB][-1] = replace(late, error_kind=kind)
        leader.listen()
    assert world.plans[JOB] == after
    assert JOB not in world.failures
