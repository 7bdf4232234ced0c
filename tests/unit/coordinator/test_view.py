from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from perseid.coordinator import view
from perseid.coordinator.api import answers
from perseid.coordinator.api.server import Api
from perseid.coordinator.events import EndsSeen
from perseid.coordinator.job.ownership import Condition
from perseid.records import Assignment, LeaderInfo
from support.coordinator import Crashed, Leader, World
from support.served import Served

JOB = "wordcount"
LEADER = LeaderInfo("c1", 1, 4711, "http://127.0.0.1:1")


def job(leader: Leader) -> dict[str, object]:
    found: dict[str, object] = view.status(leader.state, LEADER, leader.world.now)["jobs"][0]
    return found


def run(world: World, leader: Leader, records: int) -> None:
    world.produce(0, records)
    leader.poll()
    world.work(JOB, duration_ms=500)
    leader.listen()


def test_a_job_shows_what_the_contract_names(world: World, leader: Leader) -> None:
    run(world, leader, 10)
    world.time_s += 30
    run(world, leader, 10)
    shown = job(leader)
    assert shown["name"] == JOB
    assert (shown["state"], shown["revision"], shown["mode"]) == ("running", "r1", "exact")
    assert (shown["epoch"], shown["committed_epoch"], shown["generation"]) == (2, 2, 1)
    assert shown["checkpoint"] == {"epoch": 2, "age_s": 0.0, "bytes": 20}
    world.time_s += 4.5
    assert job(leader)["checkpoint"] == {"epoch": 2, "age_s": 4.5, "bytes": 20}


def test_lag_is_what_is_not_committed(world: World, leader: Leader) -> None:
    run(world, leader, 10)
    world.produce(0, 50_000)
    leader.poll()
    shown = job(leader)
    assert (shown["lag"], shown["backlog"], shown["epochs_in_flight"]) == (50_000, 10_000, 2)
    while world.work(JOB, 10):
        leader.listen()
    assert job(leader)["lag"] == 0


def test_the_time_of_the_last_look_at_all_ends_is_shown(world: World, leader: Leader) -> None:
    """A lag of 0 is of the input that was there then, not of what was written since."""

    def looked_ms() -> int | None:
        found: int | None = view.status(leader.state, LEADER, world.now)["leader"]["looked_ms"]
        return found

    assert looked_ms() is None
    world.time_s += 10.0
    asked = world.now
    leader.feed(EndsSeen({}, asked.monotonic_s, all_asked=True))
    world.time_s += 3.0
    leader.feed(EndsSeen({("lines", 0): 7}, world.now.monotonic_s))  # of one job alone
    assert looked_ms() == asked.wall_ms


def test_what_is_not_known_yet_is_not_zero(world: World) -> None:
    leader = Leader(world, writes_left=0)
    with pytest.raises(Crashed):  # in front of loading
        leader.look()
    shown = job(leader)
    assert (shown["state"], shown["lag"], shown["committed_epoch"]) == ("waiting", None, None)


def test_rates_are_of_the_last_seconds(world: World, leader: Leader) -> None:
    assert job(leader)["records_in_per_s"] == 0.0
    for _ in range(20):
        world.time_s += 0.5
        run(world, leader, 100)
    assert job(leader)["records_in_per_s"] == pytest.approx(200, rel=0.1)
    assert job(leader)["epochs_per_s"] == pytest.approx(2, rel=0.1)
    assert job(leader)["epoch_ms"] == 500
    world.time_s += 60
    assert job(leader)["records_in_per_s"] == 0.0


def test_workers_show_what_they_run(world: World, leader: Leader) -> None:
    (worker,) = view.status(leader.state, LEADER, world.now)["workers"]
    assert worker["id"] == "w1"
    assert worker["fragments"] == [
        {"job": JOB, "fragment": "whole", "role": "primary", "generation": 1, "state": "running"}
    ]


def test_a_job_of_several_fragments_shows_each(world: World, leader: Leader) -> None:
    run(world, leader, 10)
    assert job(leader)["fragments"] == []
    found = leader.job()
    assert found.plan is not None
    plan = replace(found.plan, assignments=(
        Assignment("0", (0,), "w1-1", 1, split=0),
        Assignment("1", (1,), None, 2, from_epoch=0, split=1),
    ))  # fmt: skip
    ownership = replace(
        found.ownership, plan=plan, done_by={"0": 1}, conditions={"0": Condition.RUNNING}
    )
    leader.state = leader.state.with_job(replace(found, ownership=ownership))
    shown = job(leader)
    assert (shown["owner"], shown["committed_epoch"]) == (None, 0)
    assert shown["fragments"] == [
        {"name": "0", "role": "primary", "state": "running", "partitions": "counts 0",
         "owner": "w1-1", "generation": 1, "epoch": 1},
        {"name": "1", "role": "primary", "state": "waiting", "partitions": "counts 1",
         "owner": None, "generation": 2, "epoch": 0},
    ]  # fmt: skip
    answers.JobNow.model_validate(shown)
    (worker,) = view.status(leader.state, LEADER, world.now)["workers"]
    assert worker["fragments"] == [
        {"job": JOB, "fragment": "0", "role": "primary", "generation": 1, "state": "running"}
    ]


def test_it_is_served_over_http(tmp_path: Path) -> None:
    """By a real server, at a free port that is known before the server runs."""
    served = Served(tmp_path, tokens=False)
    api = Api(served.app)
    api.start()
    try:
        # The socket is bound before the server runs, so an early connection waits in its backlog.
        with httpx.Client(base_url=api.url, timeout=20, trust_env=False) as client:
            look = served.look()
            assert look is not None
            shown = view.status(look.state, look.leader, look.now)
            assert client.get("/api/v1/status").json() == shown
            assert client.get("/healthz").json() == {"ok": True, "leader": True}
            served.leads = False
            assert client.get("/healthz").json() == {"ok": True, "leader": False}
    finally:
        api.stop()
