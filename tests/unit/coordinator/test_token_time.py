"""Token time passes as the monotonic clock does, whatever wall clocks show."""

from itertools import pairwise

import pytest

from perseid.coordinator import token_time
from perseid.coordinator.token_time import SLACK, Now, Time
from perseid.topics.records import Token
from support.coordinator import Leader, World
from support.coordinator_steps import want

JOB = "wordcount"
HOUR_S, MONTH_S = 3_600.0, 30 * 86_400.0
JUMPS_S = (HOUR_S, -HOUR_S, MONTH_S, -MONTH_S)


def issue(world: World, leader: Leader, times: int = 1, apart_s: float = 5.0) -> list[Token]:
    """That many more tokens, `apart_s` of the monotonic clock apart; all that count."""
    for _ in range(times):
        world.time_s += apart_s
        world.produce(0, 5)
        leader.poll()
        world.work(JOB)
        leader.listen()
    return list(world.valid(JOB).values())


def next_leader(world: World) -> Leader:
    """Another process, which starts now; the job's owner lives."""
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    return leader


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_jump_of_the_leaders_clock_moves_no_token(
    world: World, leader: Leader, jump_s: float
) -> None:
    issue(world, leader, 3)
    world.wall_ahead_s = jump_s
    found = issue(world, leader, 20)
    for one, after in pairwise(found):
        assert 5_000 * (1 - SLACK) - 1 <= after.time_ms - one.time_ms <= 5_000 * (1 + SLACK) + 1


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_jump_moves_no_token_across_a_change_of_leader(
    world: World, leader: Leader, jump_s: float
) -> None:
    """To a machine whose clock is right, and then to one whose clock is wrong from the start on."""
    before = issue(world, leader, 3)
    world.wall_ahead_s = jump_s
    issue(world, leader, 3)
    for ahead_s in (0.0, jump_s):
        world.wall_ahead_s = ahead_s
        leader = next_leader(world)
        issue(world, leader, 3)
    found = list(world.valid(JOB).values())
    passed_ms = 5_000 * (len(found) - len(before))
    assert len(found) == len(before) + 9
    assert found[-1].time_ms - before[-1].time_ms <= passed_ms * (1 + SLACK) + 1
    for one, after in pairwise(found):
        assert after.time_ms - one.time_ms >= 5_000 * (1 - SLACK) - 1


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_jump_of_the_brokers_clock_moves_no_token_at_a_change_of_leader(
    world: World, leader: Leader, jump_s: float
) -> None:
    before = issue(world, leader)[-1]
    world.broker_ahead_s = jump_s
    after = issue(world, next_leader(world))[-1]
    assert 0 <= after.time_ms - before.time_ms <= 5_051


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_jump_of_the_only_machines_clock_moves_no_token_when_its_coordinator_ends_later(
    world: World, leader: Leader, jump_s: float
) -> None:
    issue(world, leader)
    world.wall_ahead_s = world.broker_ahead_s = jump_s
    before = issue(world, leader, 3)[-1]
    after = issue(world, next_leader(world))[-1]
    assert 0 <= after.time_ms - before.time_ms <= 5_051


def test_a_clock_that_was_wrong_all_along_makes_nothing_older_when_it_is_set(world: World) -> None:
    """As of a machine that keeps no time while it is off: it began in the past."""
    world.time_s = 2 * MONTH_S
    world.wall_ahead_s = world.broker_ahead_s = -MONTH_S
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    issue(world, leader)
    world.wall_ahead_s = world.broker_ahead_s = 0.0
    before = issue(world, leader)[-1]
    after = issue(world, next_leader(world))[-1]
    assert 0 <= after.time_ms - before.time_ms <= 5_051


def test_time_that_passed_without_a_leader_counts(world: World, leader: Leader) -> None:
    before = issue(world, leader)[-1]
    world.time_s += MONTH_S
    after = issue(world, next_leader(world))[-1]
    assert after.time_ms - before.time_ms == (MONTH_S + 5) * 1000


def test_a_stopped_job_is_as_much_older_when_the_same_leader_starts_it_again(
    world: World, leader: Leader
) -> None:
    before = issue(world, leader)[-1]
    want(world, leader, desired="stopped")
    world.wall_ahead_s = -HOUR_S  # it is not needed: the leader has been there all the time
    world.time_s += MONTH_S
    leader.tick()
    want(world, leader, desired="running")
    world.report(JOB, "running")
    leader.listen()
    after = issue(world, leader)[-1]
    assert after.revision == before.revision
    assert after.time_ms - before.time_ms >= MONTH_S * 1000 * (1 - SLACK)


def test_slow_corrections_are_kept_up_with() -> None:
    """As a time server makes them: 500 millionths of the time, and small steps."""
    found = Time(1_000_000.0, 10.0)
    for second in range(1, 2_000):
        now = Now(10.0 + second, round(1_000_000 + 1_000 * second * 1.0005) + 20 * (second > 500))
        found = token_time.passed(found, now.wall_ms, now)
    assert found.ms == now.wall_ms


def test_people_are_reported_of_a_jump_once_and_of_its_end(world: World, leader: Leader) -> None:
    issue(world, leader)
    world.wall_ahead_s = HOUR_S
    issue(world, leader, 10)
    reported = [line for line in leader.job().health.events if "clock" in line]
    assert len(reported) == 1
    assert "is 1:00:00 ahead of token time" in reported[0]
    world.wall_ahead_s = 0.0
    issue(world, leader, 10)
    reported = [line for line in leader.job().health.events if "clock" in line]
    assert "agrees with token time again" in reported[1]
    assert len(reported) == 2
    assert leader.job().health.events == world.statuses[JOB].events
