"""A job that fails again and again: what is counted, and what people are shown of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator import view
from perseid.coordinator.core import LOAD_REPORTED_S, LOAD_RETRY_S, decide
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.records.entries import FAILING_MIN
from support.coordinator import Leader, World, job_entry
from support.coordinator_steps import JOB, new_revision, run, want

TEXT = """PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "encode.py", line 7, in column
ArrowTypeError: Expected bytes, got a 'decimal.Decimal' object
"""
LATER_S = 60.0  # than any attempt is spaced out


def fail(world: World, leader: Leader, times: int = 1) -> None:
    for _ in range(times):
        world.report(JOB, "failed", error=TEXT, error_kind="RetryableError")
        leader.listen()
        leader.tick(LATER_S)


def shown(world: World, leader: Leader) -> dict[str, object] | None:
    found: dict[str, object] | None = view.job_status(leader.job(), world.now)["failing"]
    return found


def test_one_that_fails_again_and_again_is_reported_with_the_cause_and_how_long(
    world: World, leader: Leader
) -> None:
    run(world, leader)
    world.produce(0, 1)
    leader.poll()
    fail(world, leader, FAILING_MIN - 1)
    assert shown(world, leader) is None, "so much comes with any worker that dies"
    fail(world, leader)
    assert shown(world, leader) == {
        "failures": FAILING_MIN, "for_s": FAILING_MIN * LATER_S,
        "text": "ArrowTypeError: Expected bytes, got a 'decimal.Decimal' object",
    }  # fmt: skip
    assert view.failing_s(leader.job(), world.now) == FAILING_MIN * LATER_S
    assert world.failures[JOB].counter == world.entries[JOB].counter
    reported = world.statuses[JOB].events
    assert f"failure {FAILING_MIN}: ArrowTypeError: Expected bytes, got" in "\n".join(reported)
    world.report(JOB, "running")
    world.work(JOB)
    leader.listen()
    assert shown(world, leader) is None
    assert view.failing_s(leader.job(), world.now) == 0


class Denied(Leader):
    """It may read the token log, and not write to it."""

    def _perform(self, action: act.Action) -> ev.Event | None:
        if isinstance(action, act.AppendToken):
            self.performed.append(action)
            return ev.ActionFailed(action.job, "AppendToken", "the broker denies access")
        return super()._perform(action)


def test_a_token_log_that_takes_nothing_is_reported_and_asked_less_and_less(world: World) -> None:
    leader = Denied(world)
    world.produce(0, 1)
    leader.look()
    for _ in range(600):
        leader.tick(1.0)
        leader.poll()
        found = shown(world, leader)
    assert found is not None
    assert found["text"] == "the broker denies access"
    assert len([a for a in leader.performed if isinstance(a, act.AppendToken)]) < 40
    allowed = Leader(world)
    allowed.look()
    world.work(JOB)
    allowed.listen()
    assert shown(world, allowed) is None


def test_it_is_known_to_the_next_leader(world: World, leader: Leader) -> None:
    fail(world, leader, FAILING_MIN)
    leader = Leader(world)
    leader.look()
    world.time_s += 7
    found = shown(world, leader)
    assert found is not None
    assert found["for_s"] == FAILING_MIN * LATER_S + 7


def test_a_job_that_was_stopped_fails_no_more(world: World, leader: Leader) -> None:
    fail(world, leader, FAILING_MIN)
    want(world, leader, desired="stopped")
    assert shown(world, leader) is None


def test_another_revision_begins_without_the_failures_of_the_one_before(
    world: World, leader: Leader
) -> None:
    """Its first attempt comes at once, and what it fails at is its own."""
    fail(world, leader, 8)
    world.report(JOB, "failed", error=TEXT, error_kind="PermanentError", permanent=True)
    leader.listen()
    world.codes = {"archive-1": "code", "archive-2": "code"}
    new_revision(world, leader)
    assert world.plans[JOB].revision == "r2"
    assert world.failures[JOB].count == 0
    assert shown(world, leader) is None


@pytest.mark.parametrize("ahead_s", [30 * 86_400.0, -30 * 86_400.0])
def test_for_how_long_is_independent_of_a_clock_that_is_set_meanwhile(
    world: World, leader: Leader, ahead_s: float
) -> None:
    """Back by a month it would keep the alarm quiet for a month."""
    fail(world, leader, FAILING_MIN)
    world.wall_ahead_s = ahead_s
    fail(world, leader)
    now = replace(world.now, time_ms=leader.state.time.after(world.now))
    for_s = view.failing_s(leader.job(), now)
    assert for_s == pytest.approx((FAILING_MIN + 1) * LATER_S, rel=0.02)


def test_a_job_that_cannot_even_be_read_is_reported_too(world: World, leader: Leader) -> None:
    """Kafka or the store are away while it is loaded."""
    world.entries["other"] = job_entry("other")
    leader.feed(ev.RegistrySeen(dict(world.entries), ()))
    job = replace(leader.job("other"), phase=Phase.LOADING)
    away = ev.JobLoadFailed("other", job.entry, "RetryableError", "the store is away", False)
    for _ in range(FAILING_MIN):
        state, _ = decide(leader.state.with_job(job), away, world.now)
        job = state.jobs["other"]
        world.time_s += 1
    found = view.job_status(job, world.now)["failing"]
    assert found == {"failures": FAILING_MIN, "for_s": FAILING_MIN, "text": "the store is away"}


def test_a_load_that_never_ends_is_reported_while_the_other_jobs_run(
    world: World, leader: Leader
) -> None:
    """A network share that is away, or a client that hangs, gives neither answer nor error."""
    job = JobState("other", job_entry("other"), loading_s=world.now.monotonic_s)
    state = leader.state.with_job(job)
    for minute in range(1, FAILING_MIN + 1):
        world.time_s += LOAD_REPORTED_S
        state, actions = decide(state, ev.Tick(), world.now)
        assert act.LoadJob("other", job.entry) not in actions  # that would take one more thread
        shown = view.job_status(state.jobs["other"], world.now)
        assert ["is being read, and for 60 s" in line for line in shown["events"]] == [True]
        assert (shown["failing"] is not None) == (minute >= FAILING_MIN)
    ended = ev.JobLoadFailed("other", job.entry, "RetryableError", "the store is back", False)
    state, _ = decide(state, ended, world.now)
    world.time_s += LOAD_RETRY_S
    state, actions = decide(state, ev.Tick(), world.now)
    assert act.LoadJob("other", job.entry) in actions
    before = state.jobs["other"]
    state, _ = decide(state, ev.Tick(), world.now)
    assert state.jobs["other"] == before  # it counts from there
