"""Which fragments a worker starts, ends and promotes as its plans change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from perseid.records import WHOLE, CheckpointPointer, Plan
from perseid.testing.wait import until
from perseid.worker.fragment import Fragment
from perseid.worker.fragments import Fragments, promotes

PLAN = Plan.fused("shop", "u", 3, "w1-a", "r", "a", 1, 7, 0).with_replica(WHOLE, "w2-a", 4)
NEXT = PLAN.promoted([WHOLE], 5)


def own(plan: Plan) -> Plan:
    """As w2-a sees it."""
    (found,) = plan.for_worker("w2-a")
    return found


def test_a_replica_becomes_the_primary_of_the_same_job() -> None:
    assert promotes(own(PLAN), own(NEXT))
    pointer = CheckpointPointer(8, 1, 1, "r", 9, "m", 1, 1, 1)
    later = replace(NEXT, checkpoints=(pointer,), reason="worker w1 is gone")
    assert promotes(own(PLAN), own(later)), "of these nothing depends"


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "r2"}, {"archive": "b"}, {"layout": 2}, {"job_uuid": "v"}, {"base_epoch": 8},
        {"base_offset": 1}, {"rescaled": True},
    ],
)  # fmt: skip
def test_nothing_else_may_differ(change: dict[str, Any]) -> None:
    assert not promotes(own(PLAN), replace(own(NEXT), **change))


@pytest.mark.parametrize("change", [{"log": "main"}, {"gids": (0,)}, {"split": 0}, {"owner": "x"}])
def test_nor_may_the_assignment(change: dict[str, Any]) -> None:
    wanted = own(NEXT)
    other = replace(wanted, assignments=(replace(wanted.only, **change),))
    assert not promotes(own(PLAN), other)


def test_neither_a_primary_nor_an_older_plan_promotes() -> None:
    renewed = own(NEXT.renewed(6))
    assert not promotes(own(NEXT), renewed), "it runs as the primary"
    assert not promotes(own(PLAN), own(PLAN.with_replica(WHOLE, "w2-a", 6))), "a replica again"
    assert not promotes(replace(own(PLAN), generation=5), own(NEXT)), "it is not newer"


class Running:
    """`able`: whether it is restored; it then has the new plan after `promoted`."""

    def __init__(self, plan: Plan, *, able: bool) -> None:
        self.plan, self.name, self.able = plan, "f", able
        self.asked: list[Plan] = []
        self.stopped, self.ended = threading.Event(), True

    def promote(self, plan: Plan) -> bool:
        self.asked.append(plan)
        return self.able

    def promoted(self) -> None:
        self.plan = self.asked[-1]

    def stop(self) -> None:
        self.stopped.set()


class Worker:
    def __init__(self) -> None:
        self.started: list[Running] = []
        self.able = True
        self.fragments = Fragments(self._start, lambda: None)

    def _start(self, plan: Plan) -> Fragment:
        self.started.append(Running(plan, able=self.able))
        return cast(Fragment, self.started[-1])

    def sees(self, plan: Plan) -> None:
        self.fragments.follow({"shop": plan.for_worker("w2-a")})


@pytest.fixture
def worker() -> Iterator[Worker]:
    found = Worker()
    found.sees(PLAN)
    yield found


def test_the_replica_continues_as_the_primary(worker: Worker) -> None:
    (replica,) = worker.started
    worker.sees(NEXT)
    worker.sees(NEXT)
    assert replica.asked == [own(NEXT), own(NEXT)], "until it has begun"
    replica.promoted()
    worker.sees(NEXT)
    worker.sees(NEXT.with_replica(WHOLE, "w3-a", 6))
    assert (len(replica.asked), worker.started) == (2, [replica])
    assert not replica.stopped.is_set()


def test_one_that_still_restores_or_has_ended_is_replaced_by_a_primary(worker: Worker) -> None:
    (replica,) = worker.started
    replica.able = False
    worker.sees(NEXT)
    assert replica.stopped.wait(10)

    def started() -> bool:
        worker.sees(NEXT)
        return len(worker.started) == 2

    until(started, 10, "the primary")
    assert worker.started[-1].plan == own(NEXT)


def test_another_revision_is_another_life(worker: Worker) -> None:
    (replica,) = worker.started
    worker.sees(replace(NEXT, revision="r2"))
    assert replica.asked == []
    assert replica.stopped.wait(10)


def test_a_replica_that_is_not_wanted_ends(worker: Worker) -> None:
    (replica,) = worker.started
    worker.sees(PLAN.without_replicas([WHOLE], 5))
    assert replica.stopped.wait(10)
    assert replica.asked == []


def test_a_primary_that_is_placed_again_elsewhere_leaves_its_replica_alone(worker: Worker) -> None:
    (replica,) = worker.started
    worker.sees(PLAN.placed({WHOLE: "w3-a"}, 5))
    assert worker.started == [replica]
    assert not replica.stopped.is_set()
