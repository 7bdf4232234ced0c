from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import failing, placement
from support.coordinator import Leader, World, job_entry, job_spec, worker_info
from support.coordinator_steps import JOB, run, want


def fail(world: World, leader: Leader, **how: object) -> None:
    world.report(JOB, "failed", error="java.net.SocketTimeoutException", **how)
    leader.listen()


@pytest.mark.parametrize(
    ("workers", "loads", "avoid", "chosen"),
    [
        (["w1-1", "w2-1"], {}, [], "w1-1"),
        (["w1-1", "w2-1"], {"w1-1": 1}, [], "w2-1"),
        (["w1-1", "w2-1"], {"w2-1": 5}, ["w1-1"], "w2-1"),
        (["w1-1"], {}, ["w1-1"], "w1-1"),
        ([], {}, [], None),
    ],
)
def test_the_least_loaded_worker_is_chosen(
    workers: list[str], loads: dict[str, int], avoid: list[str], chosen: str | None
) -> None:
    assert placement.choose({w: worker_info(w) for w in workers}, loads, avoid) == chosen


@pytest.mark.parametrize(
    ("workers", "near", "chosen"),
    [
        (["w1-1", "w2-1"], "w2-1", "w2-1"),
        (["w1-1", "w2-2"], "w2-1", "w2-2"),  # the same worker's next life
        (["w1-1", "w3-1"], "w2-1", "w1-1"),  # it is unknown where it was
        (["w1-1", "w2-1"], None, "w1-1"),
    ],
)
def test_the_host_of_an_owner_is_preferred(
    workers: list[str], near: str | None, chosen: str
) -> None:
    infos = {w: worker_info(w) for w in workers}
    loads = {"w2-1": 5, "w2-2": 5}
    assert placement.choose(infos, loads, [], near) == chosen
    other = [w for w in workers if w != chosen]
    assert placement.choose(infos, loads, [chosen], near) in other, "not where it is not wanted"


def test_a_worker_on_the_same_host_will_do() -> None:
    infos = {w: worker_info(w) for w in ("w1-1", "w2-1", "w3-1")}
    infos["w3-1"] = replace(infos["w3-1"], host=infos["w2-1"].host)
    assert placement.choose(infos, {"w2-1": 5, "w3-1": 2}, ["w2-1"], "w2-1") == "w3-1"


def test_a_failed_job_that_is_started_again_goes_where_there_is_room(
    world: World, leader: Leader
) -> None:
    """It may have failed for want of memory there."""
    run(world, leader)
    world.produce(0, 10)
    leader.poll()
    fail(world, leader, permanent=True)
    world.workers = ["w0-1", "w1-1"]
    want(world, leader)
    assert world.plans[JOB].owner == "w0-1"


def test_jobs_are_spread_over_the_workers(world: World) -> None:
    world.workers = ["w1-1", "w2-1"]
    for number in range(4):
        world.entries[f"job-{number}"] = job_entry(f"job-{number}", uuid=f"u{number}")
    del world.entries[JOB]
    leader = Leader(world)
    leader.look()
    assert sorted(p.owner or "" for p in world.plans.values()) == ["w1-1"] * 2 + ["w2-1"] * 2


def test_a_lost_owner_is_replaced_under_a_higher_generation(world: World, leader: Leader) -> None:
    before = world.plans[JOB]
    world.workers = ["w2-1"]
    leader.look()
    after = world.plans[JOB]
    assert (after.owner, after.generation) == ("w2-1", before.generation + 1)
    assert world.statuses[JOB].state == "restoring"
    world.report(JOB, "running")
    leader.listen()
    assert world.statuses[JOB].state == "running"


def test_a_new_life_of_the_same_worker_is_another_owner(world: World, leader: Leader) -> None:
    world.workers = ["w1-2"]
    leader.look()
    assert world.plans[JOB].owner == "w1-2"


def test_without_a_worker_the_job_waits_and_then_resumes(world: World, leader: Leader) -> None:
    world.workers = []
    leader.look()
    assert world.statuses[JOB].state == "waiting"
    leader.tick(60)
    world.workers = ["w2-1"]
    leader.look()
    assert world.plans[JOB].owner == "w2-1"


def test_workers_that_come_do_not_move_a_running_job(world: World, leader: Leader) -> None:
    before = world.plans[JOB]
    world.workers = ["w0-1", "w1-1"]
    leader.look()
    assert world.plans[JOB] == before


def test_a_transient_failure_is_tried_again_elsewhere_with_a_higher_generation(
    world: World, leader: Leader
) -> None:
    world.workers = ["w1-1", "w2-1"]
    leader.look()
    before = world.plans[JOB]
    fail(world, leader)
    after = world.plans[JOB]
    assert (after.owner, after.generation) == ("w2-1", before.generation + 1)
    assert world.failures[JOB].count == 1
    assert "SocketTimeout" in world.failures[JOB].text


def test_repeated_failures_are_spaced_out_and_progress_forgets_them(
    world: World, leader: Leader
) -> None:
    for count in range(1, 5):
        fail(world, leader)
        assert world.failures[JOB].count == count
        delay_s = failing.delay_s(count)
        generation = world.plans[JOB].generation
        if delay_s:
            leader.tick(delay_s - 0.1)
            assert world.plans[JOB].generation == generation
            assert world.statuses[JOB].state == "waiting"
            leader.tick(0.1)
            assert world.plans[JOB].generation == generation + 1
    world.produce(0, 1)
    leader.poll()
    world.work(JOB)
    leader.listen()
    assert world.failures[JOB].count == 0


def test_delays_grow_to_a_limit() -> None:
    delays = [failing.delay_s(count) for count in range(1, 20)]
    assert delays[:4] == [0.0, 0.5, 1.0, 2.0]
    assert delays == sorted(delays)
    assert delays[-1] == failing.RETRY_MAX_S


def test_a_new_leader_keeps_the_count(world: World, leader: Leader) -> None:
    fail(world, leader)
    fail(world, leader)
    successor = Leader(world)
    successor.look()
    fail(world, successor)
    assert world.failures[JOB].count == 3


def test_failures_of_an_older_generation_mean_nothing(world: World, leader: Leader) -> None:
    world.workers = ["w2-1"]
    leader.look()
    before = world.plans[JOB]
    fail(world, leader, generation=before.generation - 1)
    assert world.plans[JOB] == before
    assert world.failures[JOB].count == 1  # of the lost owner


def test_a_permanent_failure_stops_the_job_until_it_is_asked_for_again(
    world: World, leader: Leader
) -> None:
    fail(world, leader, permanent=True, error_kind="BadInputError")
    status = world.statuses[JOB]
    assert status.state == "failed"
    assert status.error is not None
    assert (status.error["kind"], status.error["epoch"]) == ("BadInputError", 0)
    assert "perseid jobs apply REPO" in status.error["next"]
    assert world.plans[JOB].owner is None
    plan = world.plans[JOB]
    leader.tick(3600)
    world.workers.append("w2-1")
    leader.look()
    leader = Leader(world)  # another coordinator leads: it stays failed
    leader.look()
    assert world.plans[JOB] == plan

    world.entries[JOB] = job_entry(counter=2)
    leader.look()
    assert world.plans[JOB].owner is not None
    assert world.plans[JOB].generation == plan.generation + 1
    assert world.statuses[JOB].error is None


def test_the_fragments_events_are_reported(world: World, leader: Leader) -> None:
    world.report(JOB, "running", restored_from="checkpoint:5", events=("part 1 was damaged",))
    leader.listen()
    assert "part 1 was damaged" in world.statuses[JOB].events
    assert any("restored from checkpoint:5" in e for e in world.statuses[JOB].events)


def test_jobs_of_one_cluster_do_not_share_failures(world: World, leader: Leader) -> None:
    world.programs["archive-2"] = job_spec("grep")
    world.entries["grep"] = job_entry("grep", uuid="u2", archive="archive-2")
    leader.look()
    fail(world, leader, permanent=True)
    assert world.statuses["grep"].state == "restoring"


def test_a_worker_that_leaves_gets_nothing() -> None:
    workers = {w: worker_info(w) for w in ("w1-1", "w2-1")}
    workers["w1-1"] = replace(workers["w1-1"], leaving=True)
    assert placement.choose(workers, {"w2-1": 9}, ["w2-1"]) == "w2-1"
    del workers["w2-1"]
    assert placement.choose(workers, {}) is None


def test_a_worker_that_leaves_hands_its_job_over_without_a_failure(
    world: World, leader: Leader
) -> None:
    world.workers = ["w1-1", "w2-1"]
    world.leaving = {"w1-1"}
    leader.look()
    assert world.plans[JOB].owner == "w1-1"  # until it has ended its epoch
    world.produce(0, 10)
    leader.poll()
    world.work(JOB)
    world.report(JOB, "stopped")
    leader.listen()
    plan = world.plans[JOB]
    assert (plan.owner, plan.generation) == ("w2-1", 2)
    assert world.failures == {}
    assert world.statuses[JOB].events == ("worker w1-1 leaves and hands it over after epoch 1",)


def test_a_worker_that_left_before_its_word_was_heard_is_no_failure(
    world: World, leader: Leader
) -> None:
    """What it reports of its jobs and its end come by two ways, Kafka's and ZooKeeper's."""
    world.workers = ["w1-1", "w2-1"]
    world.leaving = {"w1-1"}
    leader.look()
    world.workers = ["w2-1"]
    world.report(JOB, "stopped")
    leader.look()
    plan = world.plans[JOB]
    assert (plan.owner, plan.generation) == ("w2-1", 2)
    leader.listen()
    assert world.plans[JOB] == plan
    assert world.failures == {}
    assert world.statuses[JOB].events == ("worker w1-1 has left, as announced",)


def test_the_only_worker_leaves_and_its_next_life_continues(world: World, leader: Leader) -> None:
    world.leaving = {"w1-1"}
    leader.look()
    world.report(JOB, "stopped")
    leader.listen()
    assert world.statuses[JOB].state == "waiting"
    assert world.plans[JOB].generation == 1  # it is not placed where it just left
    world.workers = []
    leader.look()
    world.workers = ["w1-2"]
    leader.look()
    assert (world.plans[JOB].owner, world.plans[JOB].generation) == ("w1-2", 2)
    assert world.failures == {}
