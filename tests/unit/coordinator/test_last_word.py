"""A new leader believes the end of a fragment, whatever comes late after it."""

from __future__ import annotations

import pytest

from perseid.coordinator.actions import LoadJob
from perseid.coordinator.events import ProgressLost
from perseid.coordinator.lifecycle import Phase
from support.coordinator import Leader, World, job_entry

JOB = "wordcount"


def restoring() -> World:
    """A job that was placed on its worker; the leader that did it is gone."""
    world = World(entries={JOB: job_entry()}, workers=["w1-1"])
    world.ends["lines", 0] = 0
    Leader(world).look()
    assert world.plans[JOB].generation == 1
    return world


@pytest.mark.parametrize("end", ["failed", "stopped"])
@pytest.mark.parametrize("late", ["running", "restoring"])
def test_a_fragment_that_has_ended_does_not_run(end: str, late: str) -> None:
    world = restoring()
    world.report(JOB, end)
    world.report(JOB, late)
    leader = Leader(world)
    leader.look()
    assert world.plans[JOB].generation == 2
    assert leader.job().phase is Phase.RESTORING


def test_a_warning_is_reported_and_changes_nothing_about_the_fragment() -> None:
    world = restoring()
    world.report(JOB, "running")
    world.report(JOB, "warning", events=("warning: much state",))
    leader = Leader(world)
    leader.look()
    assert leader.job().phase is Phase.RUNNING
    world.report(JOB, "warning", events=("warning: more state",))
    leader.listen()
    assert world.statuses[JOB].events[-1] == "warning: more state"


def test_a_fragment_that_reports_running_continues() -> None:
    world = restoring()
    world.report(JOB, "restoring")
    world.report(JOB, "running")
    leader = Leader(world)
    leader.look()
    assert world.plans[JOB].generation == 1
    assert leader.job().phase is Phase.RUNNING


# -- words that the progress topic has lost ------------------------------------------------------


def collecting() -> tuple[World, Leader]:
    """A job that runs, with a checkpoint of epoch 1 of which no part was reported yet."""
    world = restoring()
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    world.entries[JOB] = job_entry(checkpoint_above=0)
    leader.look()
    assert leader.job().checkpointing.collecting is not None
    return world, leader


def test_a_job_whose_progress_lost_its_end_is_read_again() -> None:
    world, leader = collecting()
    world.progress[JOB] = []
    leader.feed(ProgressLost(JOB, "perseid.wordcount.progress[0] was cut"))
    assert leader.job().phase is Phase.LOADING
    leader.tick(1)
    job = leader.job()
    assert job.phase is Phase.RESTORING  # its owner lives, and none of its reports is there
    assert "perseid.wordcount.progress[0] was cut" in job.health.events
    # Parts may have been reported that no task will report again.
    assert job.checkpointing.collecting is None
    world.work(JOB)
    leader.listen()
    assert leader.job().phase is Phase.RUNNING
    assert world.plans[JOB].generation == 1


def test_a_failure_that_was_reported_into_what_was_lost_is_reported_again() -> None:
    world, leader = collecting()
    world.report(JOB, "failed", error="boom", error_kind="RetryableError")
    world.progress[JOB] = []
    leader.feed(ProgressLost(JOB, "cut"))
    leader.tick(1)
    assert world.plans[JOB].generation == 1
    world.report(JOB, "failed", error="boom", error_kind="RetryableError")  # `engine.last_word`
    leader.listen()
    assert world.plans[JOB].generation == 2


def test_an_owner_that_reports_again_ends_what_its_lost_reports_held_up() -> None:
    world, leader = collecting()
    assert leader.job().in_flight == 1
    world.report(JOB, "repeated", epoch=1)
    leader.listen()
    job = leader.job()
    assert (job.done, job.chain.tip.epoch) == (1, 2)  # so the next one could begin
    assert job.checkpointing.collecting is not None
    assert job.checkpointing.collecting.epoch == 2  # another one was begun at once
    assert "generation 1 reported its state again" in job.health.events


def test_an_owner_that_was_fenced_by_somebody_else_has_the_job_read_again() -> None:
    world = restoring()
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    loads = sum(isinstance(a, LoadJob) for a in leader.performed)
    world.report(JOB, "failed", error_kind="FencedError", error="the token log has a begin")
    leader.listen()
    leader.tick(0.1)
    assert sum(isinstance(a, LoadJob) for a in leader.performed) == loads + 1
    assert leader.job().phase is not Phase.LOADING  # the same word is not heard a second time
    leader.tick(60.0)
    assert world.plans[JOB].generation > 1
    assert leader.job().phase is Phase.RESTORING
