"""A new leader believes the end of a fragment, whatever comes late behind it."""

from __future__ import annotations

import pytest

from perseid.coordinator.lifecycle import Phase
from perseid.testing.coordinator import Leader, World, job_entry

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
    world.say(JOB, end)
    world.say(JOB, late)
    leader = Leader(world)
    leader.look()
    assert world.plans[JOB].generation == 2
    assert leader.job().phase is Phase.RESTORING


def test_a_warning_is_told_and_says_nothing_about_the_fragment() -> None:
    world = restoring()
    world.say(JOB, "running")
    world.say(JOB, "warning", events=("warning: much state",))
    leader = Leader(world)
    leader.look()
    assert leader.job().phase is Phase.RUNNING
    world.say(JOB, "warning", events=("warning: more state",))
    leader.listen()
    assert world.statuses[JOB].events[-1] == "warning: more state"
    assert leader.job().fragment == "running"


def test_a_fragment_that_says_that_it_runs_goes_on() -> None:
    world = restoring()
    world.say(JOB, "restoring")
    world.say(JOB, "running")
    leader = Leader(world)
    leader.look()
    assert world.plans[JOB].generation == 1
    assert leader.job().phase is Phase.RUNNING
