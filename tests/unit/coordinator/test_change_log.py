"""What the leader's log has of a job's life."""

from __future__ import annotations

import logging

from perseid.coordinator import change_log
from perseid.coordinator.job.health import EVENTS_MAX
from perseid.coordinator.model import TRANSITIONS_MAX, JobState
from support.coordinator import Leader, World

JOB = "wordcount"
Seen = list[tuple[int, str, dict[str, object]]]


def new_lines(leader: Leader, before: dict[str, JobState]) -> Seen:
    return list(change_log.log_lines(before, leader.state.jobs))


def test_each_change_of_phase_and_each_event_is_logged_once(world: World, leader: Leader) -> None:
    before = dict(leader.state.jobs)
    world.report(JOB, "failed", error_kind="ValueError", error="it is bad", permanent=True)
    leader.listen()
    seen = new_lines(leader, before)
    assert [(level, about) for level, _, about in seen] == [
        (logging.ERROR, {"job": JOB, "generation": 2, "epoch": 0}),
        (logging.INFO, {"job": JOB, "generation": 2, "epoch": 0}),
    ]
    assert seen[0][1] == "RUNNING -> FAILED: ValueError: it is bad"
    assert seen[1][1] == "failed: ValueError"
    assert new_lines(leader, dict(leader.state.jobs)) == []


def test_a_new_leader_does_not_repeat_what_was_logged(world: World, leader: Leader) -> None:
    world.report(JOB, "failed", error="first")
    leader.listen()
    after = Leader(world)
    after.look()
    texts = [text for _, text, _ in new_lines(after, {})]
    assert texts and all("->" in text for text in texts)


def test_lines_are_found_when_the_oldest_have_been_dropped(world: World, leader: Leader) -> None:
    job = leader.job(JOB).with_events(*(f"event {i}" for i in range(EVENTS_MAX)))
    more = job.with_events("one more", "and another")
    assert [text for _, text, _ in change_log.log_lines({JOB: job}, {JOB: more})] == [
        "one more", "and another",
    ]  # fmt: skip
    flood = job.with_events(*(f"line {i}" for i in range(TRANSITIONS_MAX)))
    assert len(list(change_log.log_lines({JOB: job}, {JOB: flood}))) == EVENTS_MAX
