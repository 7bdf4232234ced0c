"""How a replica catches up: a checkpoint for it, and another beginning."""

from __future__ import annotations

from perseid.coordinator import replicas
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.replicas import FAR
from perseid.errors import FencedError
from perseid.jobs.model.spec import CheckpointSpec
from perseid.records import WHOLE
from support.coordinator import Leader, World
from support.coordinator_steps import last, run, want
from support.replicated_job import (
    JOB,
    PROTECTED,
    protected,
    replica,
    replica_reports,
    replicated_spec,
)

RARELY = PROTECTED.model_copy(update={"checkpoint": CheckpointSpec(period_s=1e9)})


def placed_far(ran: int = FAR + 2, restored: int = 0) -> tuple[World, Leader]:
    """A replica is placed at that epoch, without a checkpoint; it runs from the beginning on.

    `restored`: epochs that its primary has run during its restore.
    """
    world, leader = protected()
    world.programs["archive-2"] = replicated_spec(fault_tolerance=RARELY)
    want(world, leader, revision="r2", archive="archive-2")
    for _ in range(3):
        leader.tick(2.5)
        world.work(JOB)
        leader.listen()
    world.report(JOB, "running")
    leader.listen()
    base = world.plans[JOB].base_epoch
    replica_reports(world, "failed", error="disk full")
    leader.listen()
    run(world, leader, ran)
    leader.tick(60)
    world.work(JOB)
    leader.listen()
    assert leader.job().standby.of(WHOLE).condition is Condition.RESTORING
    run(world, leader, restored)
    assert checkpoints(world, base) == []
    replica_reports(world, "running", epoch=base)
    leader.listen()
    leader.tick(0.1)
    return world, leader


def checkpoints(world: World, above: int) -> list[int]:
    return [t.epoch for t in world.valid(JOB).values() if t.checkpoint and t.epoch > above]


def test_a_replica_that_begins_far_from_the_tip_has_one_checkpoint_and_begins_there() -> None:
    world, leader = placed_far()
    base, own = world.plans[JOB].base_epoch, replica(world)
    found = checkpoints(world, base)
    assert found == [last(world).epoch], "a token without input, at once"
    world.work(JOB)
    leader.listen()
    leader.tick()
    again = replica(world)
    assert (again.owner, again.log) == (own.owner, own.log)
    assert again.generation > own.generation
    assert world.plans[JOB].checkpoints[0].epoch == found[0]
    replica_reports(world, "running", epoch=found[0])
    leader.listen()
    leader.tick(60)
    world.work(JOB)
    leader.listen()
    assert checkpoints(world, base) == found
    assert replica(world) == again


def test_a_replica_with_a_log_of_its_own_needs_no_checkpoint() -> None:
    world, leader = placed_far(ran=FAR - 2)
    assert checkpoints(world, world.plans[JOB].base_epoch) == []
    assert replicas.checkpoint_above(leader.job()) == -1


def test_a_replica_does_not_begin_again_when_its_restore_takes_longer_than_its_way() -> None:
    world, leader = placed_far(restored=FAR + 20)
    own = replica(world)
    found = checkpoints(world, world.plans[JOB].base_epoch)
    assert len(found) == 1
    world.work(JOB)
    leader.listen()
    leader.tick()
    assert leader.job().newest is not None
    assert replica(world) == own
    run(world, leader)
    assert len(checkpoints(world, world.plans[JOB].base_epoch)) == 1


def test_a_new_name_of_its_revision_takes_a_checkpoint_for_the_next_replica() -> None:
    """A replica runs tokens of one revision, and no checkpoint was due."""
    world, leader = protected()
    run(world, leader, 3)
    old = replica(world)
    want(world, leader, revision="r2")
    replica_reports(world, "failed", error_kind=FencedError.__name__, error="its plan is over")
    leader.listen()
    assert (last(world).revision, last(world).checkpoint) == ("r2", True)
    leader.tick(2.0)
    assert replica(world) == old, "no replica begins before that checkpoint"
    assert "the first checkpoint of revision r2" in replicas.unprotected(leader.job())
    world.work(JOB)
    leader.listen()
    leader.tick()
    assert replica(world).generation > old.generation
    assert world.plans[JOB].checkpoints[0].revision == "r2"
    run(world, leader)
    assert not last(world).checkpoint
