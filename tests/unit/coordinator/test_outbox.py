"""Actions of one job are performed in order, those of several jobs at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator.outbox import Outbox
from perseid.coordinator.performing import StepDown
from perseid.records import JobStatus
from perseid.testing.wait import until

LIMIT_S = 20.0


def status(job: str, number: int) -> act.PutStatus:
    return act.PutStatus(job, JobStatus("u", "running", number, 1, 1))


class Acting:
    """Performs by noting; `held` jobs wait, `failing` actions fail."""

    def __init__(self) -> None:
        self.done: list[act.Action] = []
        self.events: SimpleQueue[ev.Event | StepDown] = SimpleQueue()
        self.held: dict[str, Event] = {}
        self.failing: list[act.Action] = []
        self.raises: dict[act.Action, BaseException] = {}
        self.lease = True
        self.threads = ThreadPoolExecutor(4)
        self.box = Outbox(self.perform, self.events.put, self.spawn, lambda: self.lease)

    def spawn(self, run: Callable[[], None]) -> None:
        self.threads.submit(run)

    def perform(self, action: act.Action) -> ev.Event | None:
        if action.job in self.held:
            assert self.held[action.job].wait(LIMIT_S)
        if action in self.raises:
            raise self.raises[action]
        self.done.append(action)
        if action in self.failing:
            return ev.ActionFailed(action.job, "PutStatus", "refused")
        return None

    def of(self, job: str) -> list[act.Action]:
        return [action for action in self.done if action.job == job]

    def wait(self, *actions: act.Action) -> None:
        until(lambda: all(a in self.done for a in actions), LIMIT_S, "the actions")


@pytest.fixture
def acting() -> Acting:
    return Acting()


def test_a_job_that_waits_delays_no_other_and_keeps_its_order(acting: Acting) -> None:
    acting.held["a"] = Event()
    slow = [status("a", n) for n in range(5)]
    acting.box.put(slow[:3])
    acting.box.put([status("b", 1), slow[3]])
    acting.wait(status("b", 1))
    assert acting.of("a") == []
    acting.box.put(slow[4:])
    acting.held["a"].set()
    acting.wait(*slow)
    assert acting.of("a") == slow


def test_after_a_failure_nothing_is_done_until_the_core_has_heard(acting: Acting) -> None:
    acting.held["a"] = Event()
    acting.failing.append(status("a", 1))
    acting.box.put([status("a", 1), status("a", 2)])
    acting.box.put([status("a", 3), status("b", 1)])
    acting.held["a"].set()
    failed = acting.events.get(timeout=LIMIT_S)
    assert isinstance(failed, ev.ActionFailed)
    acting.box.put([status("a", 4)])  # decided before the core hears
    acting.box.heard(failed)
    acting.box.put([status("a", 5)])
    acting.wait(status("a", 5), status("b", 1))
    assert acting.of("a") == [status("a", 1), status("a", 5)]


def test_what_repeats_the_last_action_is_done_once(acting: Acting) -> None:
    acting.held["a"] = Event()
    for _ in range(3):
        acting.box.put([status("a", 1)])
    acting.box.put([status("a", 2), status("a", 2), status("a", 1)])
    acting.held["a"].set()
    until(lambda: len(acting.done) == 3, LIMIT_S, "the actions")
    acting.box.put([status("a", 9)])
    acting.wait(status("a", 9))
    assert acting.of("a") == [status("a", n) for n in (1, 2, 1, 9)]


def test_without_a_lease_nothing_is_done(acting: Acting) -> None:
    acting.lease = False
    acting.box.put([status("a", 1)])
    acting.box.put([status("b", 1)])
    acting.lease = True
    acting.wait(status("a", 1), status("b", 1))
    acting.lease = False
    acting.box.put([status("a", 2)])
    acting.box.close()
    acting.threads.shutdown(wait=True)  # its thread ends although there is no lease
    assert acting.of("a") == [status("a", 1)]


def test_when_the_leader_steps_down_nothing_follows(acting: Acting) -> None:
    acting.raises[status("a", 1)] = StepDown("another leads")
    acting.box.put([status("a", 1), status("a", 2)])
    reason = acting.events.get(timeout=LIMIT_S)
    assert isinstance(reason, StepDown)
    acting.box.put([status("a", 3), status("b", 1)])
    acting.threads.shutdown(wait=True)
    assert acting.done == []
