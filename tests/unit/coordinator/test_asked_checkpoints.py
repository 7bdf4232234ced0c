"""A checkpoint that the user asks for: taken at once, by any leader, until one is complete."""

from __future__ import annotations

from dataclasses import replace

from perseid.topics.records import PartFailed, Token
from support.coordinator import Leader, World

JOB = "wordcount"


def newest(world: World) -> Token:
    return list(world.valid(JOB).values())[-1]


def ask(world: World, leader: Leader, above: int | None = None) -> int:
    """`perseid checkpoint`: above the epoch that the token log ends with."""
    epoch = newest(world).epoch if above is None else above
    world.entries[JOB] = replace(world.entries[JOB], checkpoint_above=epoch)
    leader.look()
    return epoch


def one_epoch(world: World, leader: Leader) -> None:
    world.produce(0, 10)
    leader.poll()
    world.work(JOB)
    leader.listen()


def test_an_idle_job_takes_it_at_once_and_once(world: World, leader: Leader) -> None:
    one_epoch(world, leader)
    generation = world.plans[JOB].generation
    above = ask(world, leader)
    assert (newest(world).epoch, newest(world).checkpoint) == (above + 1, True)
    assert {(r.partition, r.end) for s in newest(world).splits for r in s} == {(0, 10), (1, 0)}
    world.work(JOB)
    leader.listen()
    assert world.pointers[JOB].pointers[0].epoch == above + 1
    leader.tick(1.0)
    one_epoch(world, leader)
    assert not newest(world).checkpoint
    assert (world.plans[JOB].generation, world.statuses[JOB].counter) == (generation, 1)


def test_one_that_is_under_way_is_not_the_answer(world: World, leader: Leader) -> None:
    one_epoch(world, leader)
    ask(world, leader)
    first = newest(world)
    above = ask(world, leader)
    assert above == first.epoch
    assert newest(world) == first
    world.work(JOB)
    leader.listen()
    assert (newest(world).epoch, newest(world).checkpoint) == (first.epoch + 1, True)


def test_one_that_is_aborted_is_taken_again(world: World, leader: Leader) -> None:
    one_epoch(world, leader)
    above = ask(world, leader)
    generation = world.plans[JOB].generation
    failed = PartFailed("u1", generation, above + 1, "counts", 0, "the disk is full")
    world.progress[JOB].append(failed)
    leader.listen()
    world.work(JOB)  # its parts come, and count for nothing
    leader.listen()
    assert JOB not in world.pointers
    assert (newest(world).epoch, newest(world).checkpoint) == (above + 2, True)
    world.work(JOB)
    leader.listen()
    assert world.pointers[JOB].pointers[0].epoch == above + 2


def test_an_idle_job_waits_with_it_while_its_store_is_full(world: World, leader: Leader) -> None:
    one_epoch(world, leader)
    ask(world, leader)
    for _ in range(2):
        note = PartFailed("u1", 1, newest(world).epoch, "counts", 0, "the disk is full")
        world.progress[JOB].append(note)
        leader.listen()
        world.work(JOB)
        leader.listen()
    waiting = newest(world)
    leader.tick(0.4)
    assert newest(world) == waiting  # no empty epochs meanwhile
    leader.tick(0.2)
    assert (newest(world).epoch, newest(world).checkpoint) == (waiting.epoch + 1, True)


def test_a_new_leader_takes_it(world: World, leader: Leader) -> None:
    one_epoch(world, leader)
    world.entries[JOB] = replace(world.entries[JOB], checkpoint_above=newest(world).epoch)
    other = Leader(world)
    other.look()
    other.listen()
    assert newest(world).checkpoint


def test_asking_does_not_wake_a_failed_job(world: World, leader: Leader) -> None:
    one_epoch(world, leader)
    world.report(JOB, "failed", permanent=True, error_kind="BadInputError", error="x", epoch=1)
    leader.listen()
    plan = world.plans[JOB]
    ask(world, leader)
    leader.tick(60.0)
    assert (world.statuses[JOB].state, world.plans[JOB]) == ("failed", plan)
