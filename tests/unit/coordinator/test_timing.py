"""Checkpoints at moments of small state: what the core does with the sizes that workers report."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perseid.coordinator.core import LOAD_RETRY_S
from perseid.coordinator.events import ActionFailed, ManifestFailed
from perseid.coordinator.planners.live_timing import Timing
from perseid.jobs.model.spec import CheckpointSpec, FaultToleranceSpec
from perseid.topics.records import OperatorState
from support.coordinator import Leader, World, job_spec
from support.coordinator_steps import want

JOB = "wordcount"
PERIOD_S = 30.0
WINDOW_S = 20  # the state grows for so long and is dropped; an epoch a second


def timed(size_timed: bool) -> FaultToleranceSpec:
    return FaultToleranceSpec(checkpoint=CheckpointSpec(period_s=PERIOD_S, size_timed=size_timed))


@pytest.fixture
def sized(world: World) -> World:
    """The world before its leader has looked: the job has `sizeTimed: true`."""
    world.programs["archive-1"] = job_spec(fault_tolerance=timed(True))
    return world


def state_bytes(time_s: float) -> int:
    return 1000 * (int(time_s) % WINDOW_S)


def run(world: World, leader: Leader, seconds: int) -> list[float]:
    """An epoch a second; the times at which a token asked for a checkpoint."""
    asked = []
    for _ in range(seconds):
        world.time_s += 1.0
        world.produce(0, 10)
        leader.poll()
        if list(world.valid(JOB).values())[-1].checkpoint:
            asked.append(world.time_s)
        world.states = (
            OperatorState("counts", state_bytes(world.time_s), 1000),
            OperatorState("table", 50_000, 500),
        )
        world.work(JOB)
        leader.listen()
    return asked


def timing(leader: Leader) -> Timing:
    found = leader.job().checkpointing.timing
    assert found is not None
    return found


def test_a_checkpoint_is_taken_after_the_drop(sized: World) -> None:
    leader = Leader(sized)
    leader.look()
    asked = run(sized, leader, 300)
    assert 9 <= len(asked) <= 10
    assert all(state_bytes(at_s) <= 3000 for at_s in asked[3:])  # after the first profile
    assert {p.bytes for p in sized.pointers[JOB].pointers} == {20}  # of a part 10


def test_without_size_timed_sizes_change_nothing(world: World, leader: Leader) -> None:
    world.programs["archive-1"] = job_spec(fault_tolerance=timed(False))
    fixed = Leader(world)
    fixed.look()
    begin_s = world.time_s
    asked = run(world, fixed, 100)
    assert [at_s - begin_s for at_s in asked] == [PERIOD_S, 2 * PERIOD_S, 3 * PERIOD_S]
    assert fixed.job().checkpointing.timing is None


def test_a_new_leader_has_period_and_newest_sizes_back(sized: World) -> None:
    leader = Leader(sized)
    leader.look()
    before = run(sized, leader, 110)
    successor = Leader(sized)
    successor.look()
    old, new = timing(leader), timing(successor)
    assert new.last_s == before[-1]
    assert new.begin_s == max(before[-1], sized.time_s - PERIOD_S)
    reported = {s.time_s: s.bytes for s in old.samples}
    assert len(new.samples) >= 5
    for sample in new.samples[:-1]:
        assert sample.bytes == reported[sample.time_s]
    after = run(sized, successor, 190)
    both = [*before, *after]
    assert max(b - a for a, b in pairwise(both)) <= 2 * PERIOD_S
    assert all(state_bytes(at_s) <= 3000 for at_s in after[3:])


def test_a_leader_that_reads_its_job_again_keeps_the_profile(sized: World) -> None:
    leader = Leader(sized)
    leader.look()
    run(sized, leader, 110)
    before = timing(leader).samples
    leader.feed(ActionFailed(JOB, "PutStatus", "no answer"))
    leader.tick(LOAD_RETRY_S)
    assert timing(leader).samples == before
    after = run(sized, leader, 150)
    assert all(state_bytes(at_s) <= 3000 for at_s in after)


def test_a_job_that_is_started_again_has_a_new_profile(sized: World) -> None:
    """It may have been stopped for hours."""
    leader = Leader(sized)
    leader.look()
    run(sized, leader, 110)
    stopped_s = sized.time_s
    want(sized, leader, desired="stopped")
    sized.work(JOB)
    leader.listen()
    sized.time_s += 7200.0
    want(sized, leader, desired="running")
    run(sized, leader, 20)
    assert timing(leader).policy is None
    assert timing(leader).samples[0].time_s >= stopped_s - PERIOD_S


def test_leaders_that_change_within_every_period_still_take_checkpoints(sized: World) -> None:
    """Each begins a period where the newest checkpoint was, and not where it began to lead."""
    leader = Leader(sized)
    leader.look()
    asked = run(sized, leader, 40)
    for _ in range(8):
        leader = Leader(sized)
        leader.look()
        asked += run(sized, leader, 20)
    assert max(b - a for a, b in pairwise(asked)) <= 2 * PERIOD_S


def test_a_checkpoint_that_came_to_nothing_is_taken_again_at_once(sized: World) -> None:
    leader = Leader(sized)
    leader.look()
    run(sized, leader, 29)
    sized.time_s += 1.0
    sized.produce(0, 10)
    leader.poll()
    token = list(sized.valid(JOB).values())[-1]
    assert token.checkpoint
    leader.feed(ManifestFailed(JOB, "u1", token.epoch, "store is away"))
    sized.work(JOB)
    leader.listen()
    assert run(sized, leader, 1) == [sized.time_s]
