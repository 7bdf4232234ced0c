"""Checkpoints of a job that is several fragments, each with a generation of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import checkpoints
from perseid.coordinator.model import JobState
from perseid.records import Assignment, PartFile, Plan
from perseid.topics.records import FragmentState, PartDone, PartFailed, Token
from support.coordinator import Leader, World, part_of
from support.spread_job import (
    JOB,
    OF_A,
    OF_B,
    SpreadWorld,
    feed,
    leading,
    lose,
    spread_world,
)

FIRST, SECOND = Assignment("0", (0,), "w1-1", 1), Assignment("1", (1,), "w2-1", 1)


@pytest.fixture
def job(world: World, leader: Leader) -> JobState:
    """It collects a checkpoint that no fragment has done; counts-0 and counts-1 are apart."""
    world.time_s += 30
    world.produce(0, 10)
    leader.poll()
    found = leader.job()
    assert found.checkpointing.collecting is not None
    assert found.plan is not None
    plan = replace(found.plan, assignments=(FIRST, SECOND))
    return replace(found, ownership=found.ownership.planned(plan))


def plan_of(job: JobState) -> Plan:
    assert job.plan is not None
    return job.plan


def part(job: JobState, partition: int, generation: int = 1, base: int | None = None) -> PartDone:
    collecting = job.checkpointing.collecting
    assert collecting is not None
    owned = replace(plan_of(job), generation=generation)
    path = part_of(owned, collecting.epoch, collecting.token_offset, f"counts-{partition}.part")
    chain = () if base is None else (PartFile("p", base, 7, 1),)
    return PartDone(
        "u1", generation, collecting.epoch, 1, "counts", partition, path, 7, 1, 0.1, chain
    )


def with_parts(job: JobState, *parts: PartDone) -> JobState:
    for one in parts:
        job = checkpoints.part_done(job, one)
    return job


def done(job: JobState, *fragments: str) -> JobState:
    ownership = job.ownership
    for fragment in fragments:
        ownership = ownership.progressed(fragment, job.chain.tip.epoch)
    return replace(job, ownership=ownership)


def placed(job: JobState, fragment: str, generation: int) -> JobState:
    """The worker of one fragment died, and another one gets it."""
    plan = plan_of(job).placed({fragment: "w3-1"}, generation)
    return checkpoints.new_owner(replace(job, ownership=job.ownership.planned(plan)), plan)


def runs(job: JobState, fragment: str, generation: int, epoch: int) -> JobState:
    record = FragmentState("u1", generation, "w3-1", "running", epoch, fragment=fragment)
    return checkpoints.superseded(job, record)


def is_collecting(job: JobState) -> bool:
    return job.checkpointing.collecting is not None


def test_it_is_complete_with_parts_of_another_generation_for_each_fragment(job: JobState) -> None:
    job = done(job, "0")
    job = placed(with_parts(job, part(job, 0)), "1", 2)
    job = with_parts(done(job, "1"), part(job, 1, generation=2))
    manifest = checkpoints.complete(job)
    assert manifest is not None
    assert [(p.partition, p.generation) for p in manifest.parts] == [(0, 1), (1, 2)]
    assert manifest.generation == 2, "the highest of its parts"


def test_the_parts_of_one_fragment_are_of_one_generation(job: JobState) -> None:
    both = replace(FIRST, gids=(0, 1)), replace(SECOND, gids=())
    plan = replace(plan_of(job), assignments=both)
    job = done(replace(job, ownership=job.ownership.planned(plan)), "0", "1")
    mixed = with_parts(job, part(job, 0, generation=1), part(job, 1, generation=2))
    assert checkpoints.complete(mixed) is None
    whole = checkpoints.complete(with_parts(mixed, part(job, 1, generation=1)))
    assert whole is not None
    assert {p.generation for p in whole.parts} == {1}


def test_it_waits_for_the_slowest_fragment(job: JobState) -> None:
    job = with_parts(job, part(job, 0), part(job, 1))
    assert checkpoints.complete(done(job, "0")) is None
    assert checkpoints.complete(done(job, "0", "1")) is not None


def test_a_fragment_whose_owner_is_lost_after_its_part_does_not_abort_it(job: JobState) -> None:
    job = placed(done(with_parts(job, part(job, 1)), "1"), "1", 2)
    assert is_collecting(job)
    assert is_collecting(runs(job, "1", 2, job.chain.tip.epoch))
    manifest = checkpoints.complete(done(with_parts(job, part(job, 0)), "0"))
    assert manifest is not None
    assert [p.generation for p in manifest.parts] == [1, 1]


def test_a_fragment_that_had_done_the_epoch_without_its_part_aborts_it(job: JobState) -> None:
    job = placed(done(with_parts(job, part(job, 0)), "1"), "1", 2)
    assert not is_collecting(job)
    assert "generation 2 took over" in job.health.events[-1]


def test_a_fragment_that_has_not_done_the_epoch_will_run_it(job: JobState) -> None:
    assert is_collecting(placed(done(job, "0"), "1", 2)), "the other one, which has, is the same"


def test_a_fragment_that_resumes_after_the_epoch_without_a_part_aborts_it(job: JobState) -> None:
    tip = job.chain.tip.epoch
    job = placed(with_parts(job, part(job, 0)), "1", 2)
    assert is_collecting(runs(job, "1", 1, tip)), "that owner is gone"
    assert is_collecting(runs(job, "0", 1, tip)), "it has delivered"
    assert is_collecting(runs(job, "1", 2, tip - 1))
    ended = runs(job, "1", 2, tip)
    assert not is_collecting(ended)
    assert "generation 2 resumes after it" in ended.health.events[-1]


def test_only_the_present_owner_of_a_partition_fails_its_part(job: JobState) -> None:
    job = placed(job, "1", 2)
    epoch = job.chain.tip.epoch

    def failed(partition: int, generation: int) -> JobState:
        record = PartFailed("u1", generation, epoch, "counts", partition, "disk full")
        return checkpoints.part_failed(job, record)

    assert is_collecting(failed(1, 1)), "its owner is gone"
    assert not is_collecting(failed(1, 2))
    assert not is_collecting(failed(0, 1)), "the plan's generation is higher"
    assert is_collecting(failed(0, 2)), "its fragment never had that generation"


def test_only_the_present_owner_of_a_partition_needs_a_base_that_is_kept(job: JobState) -> None:
    job = placed(job, "1", 2)
    assert is_collecting(with_parts(job, part(job, 1, generation=1, base=77)))
    assert not is_collecting(with_parts(job, part(job, 1, generation=2, base=77)))
    assert not is_collecting(with_parts(job, part(job, 0, generation=1, base=77)))


# -- with the leader -----------------------------------------------------------------------------


def checkpoint_token_of(world: SpreadWorld, leader: Leader) -> Token:
    world.time_s += 30
    feed(world, leader)
    token = list(world.valid(JOB).values())[-1]
    assert token.checkpoint
    return token


def finish(world: SpreadWorld, leader: Leader) -> None:
    """The fragment of `b` is lost without its part; another worker has it, and runs the epoch."""
    lose(world, leader, "w4-1")
    world.workers.append("w5-1")
    leader.look()
    leader.tick(5.0)
    world.restore()
    leader.listen()
    assert world.pointers == {}
    world.run(1, OF_B)
    leader.listen()


def generations_of(world: SpreadWorld, token: Token) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for part in world.manifests[JOB, token.epoch].parts:
        found.setdefault(part.operator, set()).add(part.generation)
    return found


def test_the_loss_of_one_part_of_a_job_costs_the_others_no_part_of_a_checkpoint() -> None:
    world = spread_world(4)
    leader = leading(world)
    token = checkpoint_token_of(world, leader)
    world.run(1, OF_A)
    leader.listen()
    finish(world, leader)
    assert generations_of(world, token) == {"a1": {1}, "a2": {1}, "b1": {2}}
    (pointer,) = world.pointers[JOB].pointers
    assert (pointer.epoch, pointer.generation) == (token.epoch, 2)


def test_another_leader_completes_what_fragments_of_several_generations_deliver() -> None:
    world = spread_world(4)
    leader = leading(world)
    token = checkpoint_token_of(world, leader)
    world.run(1, OF_A)
    leader.listen()
    successor = Leader(world)
    successor.look()
    assert is_collecting(successor.job())
    finish(world, successor)
    assert generations_of(world, token) == {"a1": {1}, "a2": {1}, "b1": {2}}
