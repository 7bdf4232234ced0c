from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import issue
from perseid.coordinator.actions import AppendToken
from perseid.coordinator.events import EndsSeen
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.model import JobState
from perseid.topics.records import EpochDone, Token
from support.coordinator import Leader, World, job_spec

JOB = "wordcount"


def tokens(world: World) -> list[Token]:
    return list(world.valid(JOB).values())


def records(token: Token) -> int:
    return sum(r.end - r.start for r in ranges_of(token))


def learn(world: World, leader: Leader) -> None:
    """An epoch of one record, after which the leader knows how large records are."""
    world.produce(0, 1)
    leader.poll()
    run_one(world, leader)


def run_one(world: World, leader: Leader, duration_ms: int = 100) -> None:
    world.work(JOB, 1, duration_ms=duration_ms)
    leader.listen()


def test_input_is_named_at_once_while_a_credit_is_free(world: World, leader: Leader) -> None:
    world.produce(0, 3)
    leader.poll()
    assert [records(t) for t in tokens(world)] == [3]


def test_without_backlog_one_epoch_is_in_flight(world: World, leader: Leader) -> None:
    for _ in range(3):
        world.produce(0, 3)
        leader.poll()
    assert [records(t) for t in tokens(world)] == [3]
    run_one(world, leader)
    assert [records(t) for t in tokens(world)] == [3, 6]


def test_with_backlog_two_epochs_are_in_flight(world: World, leader: Leader) -> None:
    learn(world, leader)
    world.produce(0, 10 * issue.SIZE_FIRST)
    leader.poll()
    assert [records(t) for t in tokens(world)] == [1, issue.SIZE_FIRST, issue.SIZE_FIRST]
    assert leader.job().in_flight == issue.CREDITS_BACKLOG
    run_one(world, leader)
    assert leader.job().in_flight == issue.CREDITS_BACKLOG


def test_an_idle_job_gets_a_token_every_ten_seconds(world: World, leader: Leader) -> None:
    leader.tick(issue.IDLE_TOKEN_S - 0.1)
    assert tokens(world) == []
    leader.tick(0.1)
    assert [records(t) for t in tokens(world)] == [0]
    leader.tick(60)  # the first one is still in flight
    assert len(tokens(world)) == 1
    run_one(world, leader)
    leader.tick(60)
    assert len(tokens(world)) == 2


def test_the_first_token_names_all_partitions_and_later_ones_what_has_input(
    world: World, leader: Leader
) -> None:
    world.produce(0, 5)
    leader.poll()
    run_one(world, leader)
    world.produce(0, 5)
    leader.poll()
    first, second = tokens(world)
    assert [(r.partition, r.start, r.end) for r in ranges_of(first)] == [(0, 0, 5), (1, 0, 0)]
    assert [(r.partition, r.start, r.end) for r in ranges_of(second)] == [(0, 5, 10)]


def test_nothing_is_issued_without_a_live_owner(world: World, leader: Leader) -> None:
    world.workers.clear()
    leader.look()
    world.produce(0, 5)
    leader.poll()
    leader.tick(60)
    assert tokens(world) == []


def test_time_never_falls(world: World, leader: Leader) -> None:
    world.produce(0, 5)
    leader.poll()
    run_one(world, leader)
    world.time_s -= 50  # another leader's clock
    world.produce(0, 5)
    leader.poll()
    first, second = tokens(world)
    assert second.time_ms == first.time_ms


def test_a_token_is_the_next_one_of_the_chain(world: World, leader: Leader) -> None:
    world.produce(0, 5)
    actions = leader.feed(EndsSeen(dict(world.ends)))
    (append,) = [a for a in actions if isinstance(a, AppendToken)]
    tip = leader.job().chain.base
    assert (append.token.epoch, append.token.previous_offset) == (tip.epoch + 1, tip.offset)


@pytest.mark.parametrize(
    ("waiting", "room", "shares"),
    [
        ({0: 10, 1: 10}, 100, {0: 10, 1: 10}),
        ({0: 100, 1: 100}, 50, {0: 25, 1: 25}),
        ({0: 5, 1: 1000, 2: 1000}, 105, {0: 5, 1: 50, 2: 50}),
        ({0: 10}, 1, {0: 1}),
        ({}, 10, {}),
    ],
)
def test_partitions_share_the_room(
    waiting: dict[int, int], room: int, shares: dict[int, int]
) -> None:
    keyed = {("lines", p): n for p, n in waiting.items()}
    assert issue.share(keyed, room) == {("lines", p): n for p, n in shares.items()}


def test_room_smaller_than_the_partitions_is_not_exceeded() -> None:
    shares = issue.share({("lines", p): 100 for p in range(10)}, 4)
    assert sum(shares.values()) == 4


def epoch_of(rows: int, duration_ms: int) -> EpochDone:
    return EpochDone("u1", 1, "w1-1", 1, 0, rows, rows, duration_ms, bytes_in={"lines": 100 * rows})


def sized(job: JobState, size: int) -> JobState:
    return replace(job, inputs=replace(job.inputs, size=size))


@pytest.mark.parametrize(
    ("rows", "duration_ms", "size"),
    [
        (20_000, 250, 40_000),  # twice as fast as it should be: twice as large
        (20_000, 10, 40_000),  # but never more than doubled at once
        (20_000, 1000, 10_000),
        (20_000, 60_000, 10_000),
        (9_000, 5000, 20_000),  # a small epoch shows nothing
        (20_000, 0, 20_000),
    ],
)
def test_the_size_of_epochs_follows_their_duration(
    leader: Leader, rows: int, duration_ms: int, size: int
) -> None:
    job = sized(leader.job(), 20_000)
    assert issue.adapted_size(job, epoch_of(rows, duration_ms)) == size


def test_the_size_stays_within_its_limits(world: World, leader: Leader) -> None:
    most = job_spec().epoch.max_records
    job = sized(leader.job(), most * 9 // 10)
    assert issue.adapted_size(job, epoch_of(job.inputs.size, 1)) == most
    slow = epoch_of(600, 100_000)
    assert issue.adapted_size(sized(job, 600), slow) == issue.SIZE_MIN


def test_an_epoch_never_holds_more_than_max_records(world: World, leader: Leader) -> None:
    spec = job_spec(epoch=job_spec().epoch.model_copy(update={"max_records": 100}))
    world.programs["archive-1"] = spec
    second = Leader(world)
    second.look()
    world.produce(0, 1000)
    second.poll()
    assert [records(t) for t in tokens(world)] == [100, 100]
