"""A worker reads the token log: it may report on a token before its append is answered."""

from __future__ import annotations

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from support.coordinator import Leader, World, job_entry

JOB = "wordcount"


class Late(Leader):
    """The owner runs each token, and its reports are decided on, before the append is answered."""

    def _perform(self, action: act.Action) -> ev.Event | None:
        outcome = super()._perform(action)
        if isinstance(action, act.AppendToken):
            self.world.work(JOB)
            self.listen()
            assert self.job().chain.appending
        return outcome


def played(kind: type[Leader]) -> Leader:
    """Ten epochs; some have checkpoints."""
    world = World(workers=["w1-1"], entries={JOB: job_entry()})
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    world.starts = {("lines", 0): 0, ("lines", 1): 0}
    leader = kind(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    for _ in range(10):
        world.time_s += 12.0
        world.produce(0, 10)
        leader.poll()
        world.work(JOB)
        leader.listen()
    return leader


@pytest.fixture
def late() -> Leader:
    return played(Late)


def test_its_reports_count_as_if_they_had_come_after_the_answer(late: Leader) -> None:
    prompt = played(Leader)
    assert prompt.job().done == prompt.job().chain.tip.epoch >= 10
    assert prompt.job().newest is not None
    assert late.job() == prompt.job()
    assert late.world.tokens == prompt.world.tokens


def test_a_job_without_further_input_is_not_left_in_flight(late: Leader) -> None:
    assert (late.job().in_flight, late.job().chain.deferred) == (0, ())
    late.world.entries[JOB] = job_entry(desired="stopped", counter=2)
    late.look()
    assert late.world.statuses[JOB].state == "stopped"
