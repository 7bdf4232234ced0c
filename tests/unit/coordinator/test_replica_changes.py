"""A job with a replica that its user changes, and leaders that adopt it in the middle of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from perseid.coordinator import invariants, view
from perseid.coordinator.api import answers, metrics
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.lifecycle import Phase
from perseid.records import MAIN, PAIR, WHOLE, LeaderInfo
from support.coordinator import Crashed, Leader, World
from support.coordinator_steps import run, want
from support.replicated_job import (
    JOB,
    lose,
    primary,
    protected,
    replica,
    replica_ends,
    replica_reports,
    replicated_spec,
)
from support.spread_job import leading, spread_world

LEADER = LeaderInfo("c1", 1, 2, "http://localhost:1")


@pytest.fixture
def both() -> tuple[World, Leader]:
    world, leader = protected()
    run(world, leader, 2)
    return world, leader


def settle(world: World, leader: Leader) -> None:
    """Whatever is placed restores and runs, until nothing is in flight."""
    for _ in range(8):
        leader.tick(2.5)
        plan = world.plans.get(JOB)
        if plan is not None and plan.owner in world.workers:
            if leader.job().phase is Phase.RESTORING:
                world.report(JOB, "running")
            world.work(JOB, 5)
        for own in plan.replicas if plan is not None else ():
            if leader.job().standby.condition(own) is Condition.RESTORING:
                replica_reports(world, "running", own)
        leader.listen()


def stops(world: World, leader: Leader) -> None:
    want(world, leader, desired="stopped", stop_checkpoint=True)
    settle(world, leader)


def revise(world: World, leader: Leader, **changes: object) -> None:
    world.programs["archive-2"] = replicated_spec(**changes)
    want(world, leader, revision="r2", archive="archive-2")
    settle(world, leader)


def switches(world: World, leader: Leader) -> None:
    revise(world, leader)


def rescales(world: World, leader: Leader) -> None:
    revise(world, leader, parallelism=3)


def corrects(world: World, leader: Leader) -> None:
    world.produce(0, 10)
    leader.poll()
    world.report(JOB, "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    revise(world, leader)


def loses(world: World, leader: Leader) -> None:
    lose(world, leader, "w1-1")
    settle(world, leader)


def loses_the_replica(world: World, leader: Leader) -> None:
    world.workers.append("w3-1")
    lose(world, leader, "w2-1")
    settle(world, leader)


def test_a_stop_leaves_no_replica(both: tuple[World, Leader]) -> None:
    world, leader = both
    stops(world, leader)
    assert world.statuses[JOB].state == "stopped"
    assert (primary(world).owner, world.plans[JOB].replicas) == (None, ())


def test_a_dead_worker_during_a_stop_is_replaced_by_the_replica(
    both: tuple[World, Leader],
) -> None:
    world, leader = both
    world.produce(0, 10)
    leader.poll()
    want(world, leader, desired="stopped", stop_checkpoint=True)
    lose(world, leader, "w1-1")
    assert primary(world).owner == "w2-1"
    settle(world, leader)
    assert world.statuses[JOB].state == "stopped"


@pytest.mark.parametrize("change", [switches, rescales, corrects])
def test_another_revision_gets_a_new_replica_once_it_runs(
    both: tuple[World, Leader], change: Callable[[World, Leader], None]
) -> None:
    world, leader = both
    before = replica(world)
    change(world, leader)
    plan = world.plans[JOB]
    assert plan.revision == "r2"
    assert replica(world).generation > plan.only.generation > before.generation
    assert replica(world).from_epoch == plan.base_epoch
    assert leader.job().phase is Phase.RUNNING
    replica_reports(world, "failed", before, error="late")
    leader.listen()
    assert leader.job().standby.of(WHOLE).condition is Condition.RUNNING


def test_the_plan_of_a_failed_job_has_no_replica(both: tuple[World, Leader]) -> None:
    world, leader = both
    world.report(JOB, "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    assert leader.job().phase is Phase.FAILED
    assert (primary(world).owner, world.plans[JOB].replicas) == (None, ())


def test_a_removed_job_is_gone(both: tuple[World, Leader]) -> None:
    world, leader = both
    want(world, leader, desired="removed")
    assert JOB not in world.plans


@pytest.mark.parametrize("change", [stops, switches, rescales, corrects, loses, loses_the_replica])
def test_a_leader_that_crashes_before_any_write_is_followed_by_one_that_completes_it(
    change: Callable[[World, Leader], None],
) -> None:
    whole, counted = protected()
    run(whole, counted, 2)
    begun = len(counted.performed)
    change(whole, counted)
    for left in range(len(counted.performed) - begun):
        world, first = protected()
        run(world, first, 2)
        first.writes_left = left
        with contextlib.suppress(Crashed):
            change(world, first)
        second = Leader(world)
        second.look()
        settle(world, second)
        if change is corrects and world.entries[JOB].archive == "archive-1":
            continue  # it crashed before the user corrected the job
        plan, wanted = world.plans[JOB], whole.plans[JOB]
        assert (plan.archive, plan.layout) == (wanted.archive, wanted.layout)
        assert (plan.only.owner is None) is (wanted.only.owner is None)
        assert len(plan.replicas) == len(wanted.replicas)
        assert world.statuses[JOB].state == whole.statuses[JOB].state


def test_a_new_leader_continues_with_the_replica_of_the_plan(both: tuple[World, Leader]) -> None:
    world, leader = both
    replica_ends(world)
    leader.listen()
    plan = world.plans[JOB]
    new = Leader(world)
    new.look()
    assert world.plans[JOB] == plan
    old, known = leader.job(), new.job()
    assert known.standby.of(WHOLE) == old.standby.of(WHOLE)
    assert (known.done, known.inputs.ending) == (old.done, ())
    assert known.totals.epochs_s == 0, "no epoch of the replica is counted"


def test_a_new_leader_finds_both_workers_dead_or_one(both: tuple[World, Leader]) -> None:
    world, _ = both
    world.workers = ["w2-1"]
    leader = Leader(world)
    leader.look()
    assert (primary(world).owner, primary(world).log) == ("w2-1", PAIR)
    world.workers = ["w4-1"]
    leader = Leader(world)
    leader.look()
    assert (primary(world).owner, primary(world).log) == ("w4-1", PAIR)


def test_a_divergence_that_no_leader_has_seen_is_found(both: tuple[World, Leader]) -> None:
    world, _ = both
    replica_reports(world, "failed", permanent=True, error_kind="Diverged", error="counts-0")
    leader = Leader(world)
    leader.look()
    assert (world.plans[JOB].replicas, world.plans[JOB].diverged) == ((), "counts-0")


def test_a_failure_of_the_replica_that_no_leader_has_seen_is_found(
    both: tuple[World, Leader],
) -> None:
    world, _ = both
    replica_reports(world, "failed", error="disk full")
    generation = replica(world).generation
    leader = Leader(world)
    leader.look()
    assert leader.job().phase is Phase.RUNNING
    assert replica(world).generation == generation, "after a delay"
    leader.tick(1.1)
    assert replica(world).generation == generation + 1


def test_a_spread_plan_gets_none() -> None:
    world = spread_world(4)
    leader = leading(world)
    assert world.plans[JOB].replicas == ()
    assert leader.job().standby.followers == {}


# -- what users see ------------------------------------------------------------------------------


def test_users_see_both_and_whether_the_job_is_protected(both: tuple[World, Leader]) -> None:
    world, leader = both
    replica_ends(world)
    leader.listen()
    shown = view.job_status(leader.job(), world.now)
    answers.JobNow.model_validate(shown)
    assert (shown["owner"], shown["protected"], shown["unprotected"]) == ("w1-1", True, None)
    assert [(o["role"], o["owner"], o["state"], o["epoch"]) for o in shown["fragments"]] == [
        ("primary", "w1-1", "running", 2), ("replica", "w2-1", "running", 2),
    ]  # fmt: skip
    workers = view.status(leader.state, LEADER, world.now)["workers"]
    assert [[one["role"] for one in w["fragments"]] for w in workers] == [["primary"], ["replica"]]
    run(world, leader, 3)
    look = view.Look(leader.state, LEADER, world.now)
    text = generate_latest(metrics.registry(lambda: look)).decode()
    assert 'perseid_replica_epoch{fragment="whole",job="wordcount"} 2.0' in text
    assert 'perseid_replica_lag_epochs{fragment="whole",job="wordcount"} 3.0' in text
    assert 'perseid_job_protected{job="wordcount"} 1.0' in text
    lose(world, leader, "w2-1")
    shown = view.job_status(leader.job(), world.now)
    assert (shown["protected"], shown["unprotected"]) == (False, "no other worker is live")


def test_a_replica_that_has_much_to_run_protects_no_job(both: tuple[World, Leader]) -> None:
    world, leader = both
    for _ in range(8):
        run(world, leader)
    shown = view.job_status(leader.job(), world.now)
    assert (shown["protected"], shown["unprotected"]) == (False, "its replica has 10 epochs to run")


# -- invariants ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"owner": "w1-1", "generation": 9}, "the worker of its primary"),
     ({"log": MAIN, "generation": 9}, "the log or the worker"),
     ({"owner": "w3-1"}, "changed under generation 2")],
)  # fmt: skip
def test_a_replica_in_a_wrong_place_is_found(
    both: tuple[World, Leader], changes: dict[str, object], text: str
) -> None:
    world, leader = both
    before = leader.job()
    wrong = replace(replica(world), **changes)  # type: ignore[arg-type]
    plan = replace(world.plans[JOB], replicas=(wrong,), generation=max(2, wrong.generation))
    job = replace(before, ownership=replace(before.ownership, plan=plan, generation=9))
    found = invariants.broken(leader.state, leader.state.with_job(job), ())
    assert any(text in one for one in found), found


def test_a_primary_with_the_replicas_log_elsewhere_is_found(both: tuple[World, Leader]) -> None:
    world, leader = both
    before = leader.job()
    plan = world.plans[JOB].promoted([WHOLE], 9)
    plan = replace(plan, assignments=(replace(plan.only, owner="w3-1"),))
    job = replace(before, ownership=before.ownership.planned(plan))
    found = invariants.broken(leader.state, leader.state.with_job(job), ())
    assert any("has the log pair of no replica" in one for one in found), found
