"""Processes that die in one epoch again and again: a corrected revision gets it all the same."""

from __future__ import annotations

import contextlib

import pytest

from perseid.coordinator.corrections import DEATHS_MAX, FAILURES_MAX
from perseid.coordinator.job.positions import ranges_of
from perseid.topics.records import Rewind, Token
from support.coordinator import Crashed, Leader, World
from support.coordinator_steps import JOB, last, new_revision, run, want

LATER_S = 60.0  # than any attempt is spaced out


def in_flight(world: World, leader: Leader) -> Token:
    """Two epochs are done, and the third one runs."""
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()
    return last(world)


def die(world: World, leader: Leader, times: int, kind: str = "ProcessDied") -> None:
    """The owner's processes die, and the job is placed again, so often."""
    for _ in range(times):
        world.report(JOB, "failed", error_kind=kind, error="a process has died")
        leader.listen()
        leader.tick(LATER_S)


def taken_back(world: World) -> list[int]:
    return [record.epoch for record in world.tokens[JOB] if isinstance(record, Rewind)]


def finished(world: World, leader: Leader) -> list[Token]:
    """The tokens, once the owner has run what there is and what came then."""
    for _ in range(4):
        leader.tick(LATER_S)
        world.report(JOB, "running")
        leader.listen()
        run(world, leader)
    return list(world.valid(JOB).values())


def test_the_epoch_is_taken_back_once_another_revision_is_wanted(
    world: World, leader: Leader
) -> None:
    bad = in_flight(world, leader)
    die(world, leader, DEATHS_MAX + 1)
    assert world.plans[JOB].owner is not None, "without another revision it is retried without end"
    assert world.statuses[JOB].error is None
    new_revision(world, leader)
    die(world, leader, 1)
    assert taken_back(world) == [bad.epoch - 1]
    tokens = finished(world, leader)
    assert [t.epoch for t in tokens] == list(range(1, len(tokens) + 1))
    again = [t for t in tokens if any(r.start == 20 < r.end for r in ranges_of(t))]
    assert [t.revision for t in again] == ["r2"]
    assert world.plans[JOB].revision == "r2"
    assert world.statuses[JOB].error is None


def test_the_revision_that_waits_gets_it_after_the_third_death(
    world: World, leader: Leader
) -> None:
    in_flight(world, leader)
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX - 1)
    assert not taken_back(world)
    die(world, leader, 1)
    assert taken_back(world)
    reported = world.statuses[JOB].events
    assert f"in epoch 3 processes of revision r1 died {DEATHS_MAX} times" in "\n".join(reported)


def test_what_is_committed_in_part_is_ended(world: World, leader: Leader) -> None:
    bad = in_flight(world, leader)
    world.ledger[JOB][0] = bad.epoch
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX)
    assert not taken_back(world)
    assert world.plans[JOB].revision == "r2"
    assert bad in finished(world, leader)


def test_workers_that_are_gone_count(world: World, leader: Leader) -> None:
    in_flight(world, leader)
    new_revision(world, leader)
    for _ in range(DEATHS_MAX):
        owner = world.plans[JOB].owner
        world.workers = [name for name in ("w1-1", "w2-1") if name != owner]
        leader.look()
        leader.tick(LATER_S)
    assert taken_back(world)


def test_what_passes_does_not_count(world: World, leader: Leader) -> None:
    """Nor does what was before an epoch got done."""
    bad = in_flight(world, leader)
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX - 1)
    die(world, leader, DEATHS_MAX, "RetryableError")
    assert not taken_back(world)
    world.report(JOB, "running")
    world.work(JOB)
    leader.listen()
    assert last(world).epoch > bad.epoch, "the final token of the old revision"
    die(world, leader, 1)
    assert not taken_back(world)
    assert world.plans[JOB].revision == "r1"


@pytest.mark.parametrize("in_flight_too", [True, False])
def test_what_fails_for_as_long_as_nothing_gets_done_counts(
    world: World, leader: Leader, in_flight_too: bool
) -> None:
    """Its packages cannot be had, or a service that its code asks is no more."""
    if in_flight_too:
        in_flight(world, leader)
    else:
        run(world, leader, 2)
    new_revision(world, leader)
    die(world, leader, FAILURES_MAX - 1, "RetryableError")
    assert world.plans[JOB].revision == "r1"
    die(world, leader, 1, "RetryableError")
    text = "\n".join(world.statuses[JOB].events)
    assert f"revision r1 failed {FAILURES_MAX} times, so revision r2 takes it over" in text
    die(world, leader, FAILURES_MAX, "RetryableError")  # nor does it end without input
    tokens = finished(world, leader)
    assert world.plans[JOB].revision == "r2"
    assert tokens[-1].revision == "r2"
    assert [t.epoch for t in tokens] == list(range(1, len(tokens) + 1))


def test_what_died_without_an_epoch_gives_nothing_away(world: World, leader: Leader) -> None:
    run(world, leader, 2)
    for _ in range(DEATHS_MAX):
        leader.tick(2)  # no checkpoint is due
        world.report(JOB, "failed", error_kind="ProcessDied", error="a process has died")
        leader.listen()
    leader.performed.clear()
    new_revision(world, leader)
    assert "LoadJob" not in [type(action).__name__ for action in leader.performed]


def test_the_failure_stays_in_the_status_until_its_epoch_is_dealt_with(
    world: World, leader: Leader
) -> None:
    """The job is loaded while other work is done, and a leader may die meanwhile."""
    in_flight(world, leader)
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX - 1)
    leader.performed.clear()
    die(world, leader, 1)
    done = [type(action).__name__ for action in leader.performed]
    assert done[:4] == ["PutFailures", "PutStatus", "LoadJob", "AppendRewind"]


@pytest.mark.parametrize("crash", range(10))
def test_it_survives_a_crash_between_any_two_writes(world: World, crash: int) -> None:
    leader = Leader(world)
    leader.look()
    in_flight(world, leader)
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX - 1)
    leader.writes_left = crash
    with contextlib.suppress(Crashed):
        die(world, leader, 1)
        finished(world, leader)
    leader = Leader(world)
    leader.look()
    die(world, leader, DEATHS_MAX)
    tokens = finished(world, leader)
    assert [t.epoch for t in tokens] == list(range(1, len(tokens) + 1))
    covered = [(r.start, r.end) for t in tokens for r in ranges_of(t)
               if r.partition == 0 and r.end > r.start]  # fmt: skip
    assert [start for start, _ in covered] == [0, *(end for _, end in covered[:-1])]
    assert world.plans[JOB].revision == "r2"


@pytest.mark.parametrize("committed", [True, False])
def test_a_revision_that_cannot_end_the_epoch_keeps_waiting(
    world: World, leader: Leader, committed: bool
) -> None:
    """Machines may have been lost three times: the job is all right, and its change a usual one.

    The epoch is committed in part, or it is the last one of the old revision, without input.
    """
    if committed:
        bad = in_flight(world, leader)
        world.ledger[JOB][0] = bad.epoch
        new_revision(world, leader, parallelism=3)
    else:
        run(world, leader, 2)
        new_revision(world, leader, parallelism=3)
        bad = last(world)
        assert (bad.final, bad.records) == (True, 0)
    for _ in range(2):
        die(world, leader, DEATHS_MAX)
        assert world.statuses[JOB].state != "failed"
        assert not taken_back(world)
        assert last(world) == bad
        plan = world.plans[JOB]
        assert (plan.revision, plan.owner) == ("r1", "w1-1")
    assert "revision r2 cannot: operators, their" in "".join(world.statuses[JOB].events)
    assert bad in finished(world, leader)
    assert world.plans[JOB].revision == "r2"


def test_it_can_be_stopped_meanwhile(world: World, leader: Leader) -> None:
    bad = in_flight(world, leader)
    world.ledger[JOB][0] = bad.epoch
    leader.loads = False
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX)
    want(world, leader, desired="stopped")
    status = world.statuses[JOB]
    assert (status.state, status.counter) == ("stopped", world.entries[JOB].counter)
    assert status.error is not None
    leader.loads = True
    want(world, leader, desired="running")
    leader.tick(1)
    assert (world.plans[JOB].revision, last(world)) == ("r2", bad)


def test_a_job_that_is_to_stop_stops(world: World, leader: Leader) -> None:
    in_flight(world, leader)
    new_revision(world, leader)
    die(world, leader, DEATHS_MAX - 1)
    want(world, leader, desired="stopped")
    die(world, leader, 1)
    assert world.statuses[JOB].state == "stopped"
    assert not taken_back(world)
