"""Where the replica of a job runs, what its reports mean, and when it takes over."""

from __future__ import annotations

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import replicas
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.job.standby import RETRY_FIRST_S
from perseid.coordinator.lifecycle import Phase
from perseid.errors import Diverged, ReplayDataLost
from perseid.records import MAIN, PAIR, WHOLE
from support.coordinator import Leader, World, job_entry
from support.coordinator_steps import run, want
from support.replicated_job import (
    JOB,
    PROTECTED,
    lose,
    primary,
    protected,
    replica,
    replica_ends,
    replica_reports,
    replicated_spec,
    replicated_world,
)


def plans(leader: Leader) -> int:
    return sum(isinstance(a, act.PutPlan) for a in leader.performed)


@pytest.fixture
def both() -> tuple[World, Leader]:
    return protected()


def condition(leader: Leader) -> Condition:
    return leader.job().standby.of(WHOLE).condition


# -- placing -------------------------------------------------------------------------------------


def test_a_replica_is_placed_once_the_primary_runs() -> None:
    world = replicated_world("w1-1", "w2-1")
    leader = Leader(world)
    leader.look()
    assert (primary(world).owner, world.plans[JOB].replicas) == ("w1-1", ())
    world.report(JOB, "running")
    leader.listen()
    assert (replica(world).owner, replica(world).log, replica(world).generation) == (
        "w2-1", PAIR, 2,
    )  # fmt: skip
    assert (primary(world).generation, primary(world).log) == (1, MAIN), "it continues"
    assert leader.job().phase is Phase.RUNNING
    assert replicas.unprotected(leader.job()) == "its replica restores"
    replica_reports(world, "running")
    leader.listen()
    assert replicas.unprotected(leader.job()) == ""
    before = plans(leader)
    run(world, leader, 3)
    leader.tick(60)
    assert plans(leader) == before, "and it stays where it is"


def test_a_job_that_asks_for_none_gets_none() -> None:
    world = replicated_world("w1-1", "w2-1")
    world.programs["archive-1"] = replicated_spec(fault_tolerance=PROTECTED.model_copy(
        update={"replicas": 0}
    ))  # fmt: skip
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    assert world.plans[JOB].replicas == ()
    assert replicas.unprotected(leader.job()) == "job.yaml asks for no replicas"


def test_without_a_second_worker_it_is_reported_once_and_placed_later() -> None:
    world = replicated_world("w1-1")
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    for _ in range(5):
        leader.tick(60)
    assert world.plans[JOB].replicas == ()
    assert sum("needs a second worker" in e for e in leader.job().health.events) == 1
    assert replicas.unprotected(leader.job()) == replicas.NO_WORKER
    world.workers.append("w2-1")
    leader.look()
    assert replica(world).owner == "w2-1"


def test_a_leaving_worker_gets_none() -> None:
    world = replicated_world("w1-1", "w2-1")
    world.leaving = {"w2-1"}
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    assert world.plans[JOB].replicas == ()


def test_replicas_of_two_jobs_go_where_the_fewest_fragments_are() -> None:
    world = replicated_world("w1-1", "w2-1", "w3-1")
    world.programs["archive-2"] = replicated_spec(name="other")
    world.entries["other"] = job_entry("other", archive="archive-2")
    leader = Leader(world)
    leader.look()
    owners = {name: world.plans[name].owner for name in (JOB, "other")}
    assert sorted(filter(None, owners.values())) == ["w1-1", "w2-1"]
    for name in owners:
        world.report(name, "running")
    leader.listen()
    found = [world.plans[name].replicas[0].owner for name in owners]
    assert "w3-1" in found
    assert all(world.plans[n].replicas[0].owner != owner for n, owner in owners.items())


# -- reports -------------------------------------------------------------------------------------


def test_its_epochs_count_for_nothing(both: tuple[World, Leader]) -> None:
    world, leader = both
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()
    before = leader.job()
    replica_ends(world)
    leader.listen()
    after = leader.job()
    assert after.standby.of(WHOLE).done == before.chain.tip.epoch == before.done + 1
    assert (after.done, after.ownership, after.totals) == (
        before.done, before.ownership, before.totals,
    )  # fmt: skip
    assert (after.inputs, after.checkpointing, after.health) == (
        before.inputs, before.checkpointing, before.health,
    )  # fmt: skip


# -- taking over ---------------------------------------------------------------------------------


def test_at_a_death_it_becomes_the_primary_in_one_write(both: tuple[World, Leader]) -> None:
    world, leader = both
    run(world, leader, 2)
    before, was = plans(leader), replica(world)
    lose(world, leader, "w1-1")
    assert plans(leader) == before + 1, "at once"
    now = primary(world)
    assert (now.owner, now.log, now.generation, now.role) == ("w2-1", PAIR, 3, "primary")
    assert now.fragment == was.fragment == WHOLE
    assert world.plans[JOB].replicas == ()
    assert leader.job().phase is Phase.RESTORING
    text = "worker w1-1 is gone: the replica of fragment whole on w2-1 takes over"
    assert text in leader.job().health.events
    assert world.failures[JOB].count == 1
    assert leader.job().totals.takeovers == 1
    world.report(JOB, "running", restored_from="replica after epoch 2")
    leader.listen()
    assert leader.job().phase is Phase.RUNNING
    tip = leader.job().chain.tip.epoch
    run(world, leader, 2)
    assert leader.job().done == tip + 2
    assert list(world.valid(JOB).values())[-1].generation == 3
    assert world.failures[JOB].count == 0


def test_then_a_new_one_is_placed_with_the_other_log(both: tuple[World, Leader]) -> None:
    world, leader = both
    lose(world, leader, "w1-1")
    world.report(JOB, "running")
    leader.listen()
    world.workers.append("w1-2")
    leader.look()
    assert (replica(world).owner, replica(world).log) == ("w1-2", MAIN)


def test_it_takes_over_while_it_restores(both: tuple[World, Leader]) -> None:
    world, _ = both
    leader = Leader(world)
    world.progress[JOB].clear()
    leader.look()
    assert condition(leader) is Condition.RESTORING
    lose(world, leader, "w1-1")
    assert primary(world).owner == "w2-1"


def test_it_takes_over_during_the_delay_after_failures(both: tuple[World, Leader]) -> None:
    world, leader = both
    for _ in range(4):
        world.workers = ["w1-1", "w2-1", "w3-1"]
        leader.look()
        world.report(JOB, "failed", error="reset")
        leader.listen()
        if leader.job().phase is Phase.WAITING:
            break
        world.report(JOB, "running")
        leader.listen()
    assert leader.job().phase is Phase.WAITING
    lose(world, leader, primary(world).owner or "")
    assert leader.job().phase is Phase.RESTORING
    assert primary(world).owner == "w2-1"


def test_when_both_workers_die_the_job_is_placed_as_ever(both: tuple[World, Leader]) -> None:
    world, leader = both
    world.workers = ["w3-1"]
    leader.look()
    assert (primary(world).owner, primary(world).log) == ("w3-1", MAIN)
    world.report(JOB, "running")
    leader.listen()
    world.workers.append("w4-1")
    leader.look()
    assert (replica(world).owner, replica(world).log) == ("w4-1", PAIR)


def test_a_failure_that_is_no_death_leaves_the_replica(both: tuple[World, Leader]) -> None:
    world, leader = both
    world.workers.append("w3-1")
    leader.look()
    kept = replica(world)
    world.report(JOB, "failed", error="reset by peer")
    leader.listen()
    assert (primary(world).owner, primary(world).log) == ("w3-1", MAIN)
    assert replica(world) == kept


def test_without_a_third_worker_it_takes_over_from_a_failed_primary(
    both: tuple[World, Leader],
) -> None:
    world, leader = both
    world.report(JOB, "failed", error="reset by peer")
    leader.listen()
    assert (primary(world).owner, primary(world).log) == ("w2-1", PAIR)
    assert world.plans[JOB].replicas == ()
    text = "reset by peer: the replica of fragment whole on w2-1 takes over"
    assert text in leader.job().health.events


# -- workers that die or leave -------------------------------------------------------------------


def test_the_death_of_its_worker_is_no_failure_of_the_job(both: tuple[World, Leader]) -> None:
    world, leader = both
    world.workers.append("w3-1")
    before = plans(leader)
    lose(world, leader, "w2-1")
    assert (replica(world).owner, replica(world).log) == ("w3-1", PAIR)
    assert plans(leader) == before + 1
    assert leader.job().phase is Phase.RUNNING
    assert JOB not in world.failures
    assert primary(world).generation == 1


def test_the_primarys_worker_leaves_and_the_replica_takes_over(both: tuple[World, Leader]) -> None:
    world, leader = both
    world.workers.append("w0-1")
    world.leaving = {"w1-1"}
    leader.look()
    assert primary(world).owner == "w1-1", "until it has ended its epoch"
    world.report(JOB, "stopped")
    leader.listen()
    assert (primary(world).owner, primary(world).log) == ("w2-1", PAIR)
    assert JOB not in world.failures


def test_the_replicas_worker_leaves(both: tuple[World, Leader]) -> None:
    world, leader = both
    world.leaving = {"w2-1"}
    leader.look()
    replica_reports(world, "stopped")
    leader.listen()
    assert replicas.unprotected(leader.job()) == replicas.NO_WORKER
    world.workers.append("w3-1")
    leader.look()
    assert replica(world).owner == "w3-1"


# -- failures of a replica -----------------------------------------------------------------------


def test_a_replica_that_fails_is_placed_again_after_delays_that_grow(
    both: tuple[World, Leader],
) -> None:
    world, leader = both
    run(world, leader)
    for count in range(3):
        delay_s = RETRY_FIRST_S * 2**count
        generation = replica(world).generation
        replica_reports(world, "failed", error="disk full", permanent=True)
        leader.listen()
        assert "disk full" in replicas.unprotected(leader.job())
        leader.tick(delay_s - 0.01)
        assert replica(world).generation == generation
        leader.tick(0.02)
        assert replica(world).generation == generation + 1
    assert leader.job().phase is Phase.RUNNING
    assert JOB not in world.failures
    assert sum("disk full" in e for e in leader.job().health.events) == 1
    replica_reports(world, "running")
    leader.listen()
    assert leader.job().standby.of(WHOLE).failures == 3
    run(world, leader)
    replica_ends(world)
    leader.listen()
    assert leader.job().standby.of(WHOLE).failures == 0


def test_a_replica_that_is_too_late_is_not_explained_as_a_lost_job(
    both: tuple[World, Leader],
) -> None:
    """The error's own advice is to start the job from scratch."""
    world, leader = both
    generation = replica(world).generation
    replica_reports(
        world, "failed", permanent=True, error_kind=ReplayDataLost.__name__,
        error="tokens are deleted; start over with `--from scratch`",
    )  # fmt: skip
    leader.listen()
    (event,) = [e for e in leader.job().health.events if "was so late" in e]
    assert event.endswith("it restores from a newer checkpoint")
    assert not any("scratch" in e for e in leader.job().health.events)
    leader.tick(RETRY_FIRST_S)
    assert replica(world).generation == generation + 1


def test_a_replica_that_has_failed_does_not_take_over_at_once(both: tuple[World, Leader]) -> None:
    world, leader = both
    replica_reports(world, "failed", error="disk full")
    leader.listen()
    world.workers.append("w3-1")
    lose(world, leader, "w1-1")
    assert (primary(world).owner, primary(world).log) == ("w3-1", MAIN)


def test_a_replica_that_had_diverged_when_it_took_over_is_left_with_its_log(
    both: tuple[World, Leader],
) -> None:
    world, leader = both
    run(world, leader)
    world.workers.append("w3-1")
    lose(world, leader, "w1-1")
    assert (primary(world).owner, primary(world).log) == ("w2-1", PAIR)
    generation = primary(world).generation
    world.report(
        JOB, "failed", permanent=True, error_kind=Diverged.__name__, error="counts-0: 3 and 4"
    )
    leader.listen()
    assert leader.job().phase is not Phase.FAILED
    assert (primary(world).owner, primary(world).log) == (None, MAIN)
    leader.tick(1.0)
    assert primary(world).owner in world.workers
    assert primary(world).log == MAIN
    assert primary(world).generation > generation
    assert (world.plans[JOB].replicas, world.plans[JOB].diverged) == ((), "counts-0: 3 and 4")
    assert any("when it took over" in event for event in leader.job().health.events)
    world.report(JOB, "running")
    leader.listen()
    leader.tick(600)
    assert world.plans[JOB].replicas == ()
    assert replicas.unprotected(leader.job()) == "a replica has diverged: counts-0: 3 and 4"


def test_after_a_divergence_the_plan_has_none_until_another_revision(
    both: tuple[World, Leader],
) -> None:
    world, leader = both
    run(world, leader)
    replica_reports(
        world, "failed", permanent=True, error_kind=Diverged.__name__,
        error="counts-0 epoch 1: 3 records, and the ledger has 4",
    )  # fmt: skip
    leader.listen()
    assert world.plans[JOB].replicas == ()
    assert "counts-0" in world.plans[JOB].diverged
    assert replicas.unprotected(leader.job()).startswith("a replica has diverged: counts-0")
    leader.tick(600)
    leader = Leader(world)
    leader.look()
    lose(world, leader, "w1-1")
    world.report(JOB, "running")
    leader.listen()
    world.workers.append("w3-1")
    leader.look()
    assert world.plans[JOB].replicas == (), "also under a new leader and a new owner"
    run(world, leader)
    world.programs["archive-2"] = replicated_spec()
    want(world, leader, revision="r2", archive="archive-2")
    for _ in range(3):
        leader.tick(2.5)
        world.work(JOB)
        leader.listen()
    assert world.plans[JOB].revision == "r2"
    world.report(JOB, "running")
    leader.listen()
    assert replica(world).owner in world.workers
