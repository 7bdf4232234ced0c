"""Near the bound of its buffer topics a job takes no input until a checkpoint has freed them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import buffer_bound, view
from perseid.coordinator.job.buffers import Buffers
from perseid.coordinator.model import JobState
from perseid.jobs.model.spec import PlacementSpec
from perseid.topics.records import PartFailed, Token
from support.coordinator import Leader, World, job_spec
from support.coordinator_steps import run
from support.spread_job import (
    JOB,
    SpreadWorld,
    epochs,
    feed,
    leading,
    lose,
    spread_spec,
    spread_world,
)

BOUND = 1000


def bounded(bound: int = BOUND, **sends: int) -> SpreadWorld:
    """Four fragments; `sends`: of each, by reader."""
    world = spread_world(4)
    placement = PlacementSpec(spread=4, buffer_bytes=bound)
    world.programs["archive-1"] = spread_spec(placement=placement)
    world.sends = sends
    return world


def issued(world: SpreadWorld) -> list[Token]:
    return list(world.valid(JOB).values())


def frees(token: Token) -> bool:
    return token.checkpoint and token.whole and not token.records


def shown(world: SpreadWorld, job: JobState) -> str | None:
    held: str | None = view.job_status(job, world.now)["held_back"]
    return held


def test_near_the_bound_only_a_checkpoint_without_input_is_issued() -> None:
    world = bounded(a1=50)
    leader = leading(world)
    epochs(world, leader, 4)
    assert buffer_bound.held(leader.job()) == {"a1": 800}
    assert [frees(token) for token in issued(world)] == [False] * 4 + [True]
    assert "buffer topic of a1 is near its bound of 1000 bytes" in (
        shown(world, leader.job()) or ""
    )
    feed(world, leader)
    assert len(issued(world)) == 5, "nothing else, before it is complete"
    world.run()
    leader.listen()
    assert [pointer.epoch for pointer in leader.job().kept] == [5]


def test_two_checkpoints_at_most_make_room_and_all_input_is_taken() -> None:
    world = bounded(a1=50, a2=20)
    leader = leading(world)
    for _ in range(40):
        epochs(world, leader)
        assert max(buffer_bound.held(leader.job()).values(), default=0) <= BOUND
    tokens = issued(world)
    freeing = [token.epoch for token in tokens if frees(token)]
    assert len(freeing) > 4
    for token in tokens:
        if token.epoch in freeing and token.epoch - 1 in freeing:
            assert token.epoch + 1 not in freeing
    world.run(2)
    leader.listen()
    job = leader.job()
    assert job.inputs.backlog <= 70, "of one more feed"
    assert not any(token.whole for token in tokens if token.epoch not in freeing)


def test_an_epoch_above_the_bound_runs_between_two_checkpoints() -> None:
    world = bounded(a1=500)
    leader = leading(world)
    epochs(world, leader, 30)
    kinds = "".join("f" if frees(token) else "d" for token in issued(world))
    assert kinds.count("d") >= 8, kinds
    assert "fff" not in kinds


def test_what_waits_for_a_dead_reader_counts_and_its_return_frees_it() -> None:
    world = bounded(b1=60, a1=10)
    leader = leading(world)
    epochs(world, leader)
    lost = world.owners["0"]
    assert lost is not None
    lose(world, leader, lost)
    epochs(world, leader, 30)
    tokens = issued(world)
    assert frees(tokens[-1]), "the parts without it have continued up to the bound"
    assert len([token for token in tokens if frees(token)]) == 1
    assert any("no input is taken" in event for event in leader.job().health.events)
    world.restore()
    leader.listen()
    world.run(40)
    leader.listen()
    epochs(world, leader, 2)
    assert shown(world, leader.job()) is None
    assert leader.job().newest is not None


def test_a_checkpoint_that_fails_is_seen_and_another_one_without_input_follows() -> None:
    world = bounded(a1=50)
    leader = leading(world)
    epochs(world, leader, 4)
    token = issued(world)[-1]
    assert frees(token)
    positions = leader.job().inputs.positions
    generation = world.generations_of["0"]
    world.progress[JOB].append(
        PartFailed("u1", generation, token.epoch, "a1", 0, "no space left")
    )  # fmt: skip
    leader.listen()
    assert any("no space left" in event for event in leader.job().health.events)
    leader.tick(60)
    assert len(issued(world)) == 5, "it runs yet"
    world.run()
    leader.listen()
    leader.tick(60)
    assert [frees(token) for token in issued(world)][4:] == [True, True]
    assert leader.job().inputs.positions == positions
    world.run()
    leader.listen()
    assert leader.job().newest is not None


def test_a_new_leader_counts_what_was_reported() -> None:
    world = bounded(bound=100_000, a1=50, b1=7)
    leader = leading(world)
    epochs(world, leader, 3)
    leader.tick(60)
    epochs(world, leader, 5)
    assert leader.job().newest is not None
    held = buffer_bound.held(leader.job())
    assert held["a1"] > 0
    after = Leader(world)
    after.look()
    assert buffer_bound.held(after.job()) == held
    assert view.buffers(after.job()) == {"bytes_max": 100_000, "bytes": held}


def test_a_job_that_is_one_fragment_counts_nothing(world: World, leader: Leader) -> None:
    run(world, leader)
    job = leader.job()
    assert job.buffers == Buffers()
    assert buffer_bound.bytes_max(job) is None
    assert not buffer_bound.is_near(job)
    assert view.buffers(job) is None
    assert job_spec().placement.buffer_bytes == 10 << 30


@pytest.mark.parametrize(("oldest", "held"), [(0, 16), (5, 15), (9, 12), (10, 0)])
def test_what_was_sent_before_the_oldest_kept_checkpoint_is_gone(oldest: int, held: int) -> None:
    buffers = Buffers()
    for after, size in ((0, 1), (5, 3), (9, 4), (9, 8)):
        buffers = buffers.counted("0", {"a1": size}, after, 0)
    assert buffers.held(oldest).get("a1", 0) == held
    later = buffers.counted("1", {"a1": 2}, max(oldest, 5), oldest)
    assert later.held(oldest)["a1"] == held + 2
    assert min(later.sent) >= oldest
    assert replace(later, last={}).counted("1", {"a1": 2}, 0, 1).sent == {
        epoch: sent for epoch, sent in later.sent.items() if epoch
    }
