"""The watermark that tokens carry: from workers' reports, partition by partition."""

from __future__ import annotations

import pytest

from perseid.coordinator import view
from perseid.coordinator.watermark import IDLE_MS
from perseid.jobs.model.spec import EventTimeSpec, SourceSpec
from perseid.records import LeaderInfo
from perseid.topics.records import EventTime, EventTimes, Token
from support.coordinator import Leader, World, job_entry, job_spec

JOB = "wordcount"
TIMED = EventTimeSpec(column="timestamp", delay_ms=500)


@pytest.fixture
def world() -> World:
    """A row at offset o has the event time 1000 o; the source's delay is 500 ms."""
    source = SourceSpec(topic="lines", format="text", event_time=TIMED)
    world = World({"archive-1": job_spec(sources={"lines": source})}, {JOB: job_entry()}, ["w1-1"])
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    return world


def run(world: World, leader: Leader, *rows: tuple[int, int]) -> int | None:
    """Writes and runs, until nothing is left to do; the last token's watermark."""
    for partition, count in rows:
        world.produce(partition, count)
    leader.poll()
    while world.work(JOB):
        leader.listen()
    return last(world).watermark_ms


def last(world: World) -> Token:
    return list(world.valid(JOB).values())[-1]


def test_it_is_the_lowest_partition_less_the_delay(world: World, leader: Leader) -> None:
    assert run(world, leader, (0, 10)) is None  # partition 1 may still have anything
    assert run(world, leader, (1, 5)) == 3500
    assert run(world, leader, (0, 10)) == 3500
    assert run(world, leader, (1, 10)) == 13_500


def test_what_an_epoch_reports_is_in_the_next_token_at_once(world: World, leader: Leader) -> None:
    world.produce(0, 3)
    world.produce(1, 3)
    leader.poll()
    assert last(world).watermark_ms is None
    world.work(JOB)
    leader.listen()  # no tick, no input: windows should not wait ten seconds for an idle token
    assert (last(world).watermark_ms, last(world).records) == (1500, 0)
    world.work(JOB)
    leader.listen()
    leader.tick(5)
    assert last(world).epoch == 2


def test_a_quiet_partition_is_left_out_after_a_while(world: World, leader: Leader) -> None:
    run(world, leader, (0, 10), (1, 5))
    leader.tick(IDLE_MS / 1000 - 1)
    assert run(world, leader, (0, 10)) == 3500
    leader.tick(2)
    assert run(world, leader, (0, 1)) == 19_500
    assert run(world, leader, (1, 1)) == 19_500  # late, and the watermark never falls


def test_a_partition_is_not_quiet_while_the_leader_hears_of_nothing(
    world: World, leader: Leader
) -> None:
    """ZooKeeper is away; the end of the epoch in flight is heard before the rows that came."""
    run(world, leader, (0, 10), (1, 5))
    world.produce(0, 10)
    leader.poll()
    world.work(JOB)
    world.time_s += IDLE_MS / 1000 + 10
    world.produce(1, 5)
    leader.listen()
    assert last(world).watermark_ms == 3500
    assert run(world, leader) == 8500


def test_when_all_are_quiet_the_highest_counts(world: World, leader: Leader) -> None:
    assert run(world, leader, (0, 10), (1, 5)) == 3500
    leader.tick(IDLE_MS / 1000)
    assert run(world, leader) == 8500


def test_a_partition_with_waiting_rows_is_not_quiet(world: World, leader: Leader) -> None:
    run(world, leader, (0, 10), (1, 5))
    world.workers.clear()
    leader.look()
    world.produce(0, 5)
    world.produce(1, 5)
    leader.poll()
    leader.tick(IDLE_MS / 1000 * 3)
    world.workers.append("w2-1")
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    assert last(world).records == 10
    assert last(world).watermark_ms == 3500
    assert run(world, leader) == 8500


def test_a_new_leader_resumes_from_the_tokens_and_reports(world: World, leader: Leader) -> None:
    assert run(world, leader, (0, 10), (1, 5)) == 3500
    second = Leader(world)
    second.look()
    assert run(world, second, (0, 1), (1, 1)) == 4500
    world.progress.clear()  # retention
    third = Leader(world)
    third.look()
    assert run(world, third, (0, 1)) == 4500
    assert run(world, third, (1, 10)) == 10_500  # partition 0 is at offset 11 now


def test_reports_of_tokens_rolled_back_or_of_another_job_mean_nothing(
    world: World, leader: Leader
) -> None:
    run(world, leader, (0, 10), (1, 5))
    offset, token = list(world.valid(JOB).items())[-1]
    times = (EventTime("lines", 0, 10**9), EventTime("lines", 1, 10**9))
    world.progress[JOB] += [
        EventTimes("u1", 1, token.epoch, offset + 1, 7, times),
        EventTimes("u0", 1, token.epoch, offset, 7, times),
        EventTimes("u1", 1, token.epoch + 5, offset, 7, times),
    ]
    leader.listen()
    assert leader.job().inputs.late == 0
    leader.tick(10)
    assert last(world).watermark_ms == 3500


def test_late_rows_are_counted_once(world: World, leader: Leader) -> None:
    run(world, leader, (0, 10), (1, 5))
    offset, token = list(world.valid(JOB).items())[-1]
    again = EventTimes("u1", 1, token.epoch, offset, 7, (EventTime("lines", 0, 1),))
    world.progress[JOB] += [again, again]
    leader.listen()
    shown = view.status(leader.state, LeaderInfo("c", 1, 0, ""), world.now)["jobs"][0]
    assert (shown["late_records"], shown["watermark_ms"]) == (7, 3500)
