"""A worker that leaves: what it waits for, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from perseid.clocks import ManualClock
from perseid.records import (
    WHOLE,
    Assignment,
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    Plan,
    WorkerInfo,
)
from perseid.registry import Registry, codec, paths
from perseid.registry.port import Create
from perseid.testing.registry import FakeZooKeeper
from perseid.worker.fragment import Fragment
from perseid.worker.leaving import Leaving, leave

ME = WorkerInfo("w1", "w1-a", "h", 1, 2, 2, "local[2]", 0)
PLAN = Plan.fused("shop", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)
ENTRY = JobEntry("shop", "uuid", "r1", "archive", "running", 1, 0)


class Ending:
    """A fragment whose epoch needs `needs_s`; `calls` is what happened to it, in order."""

    def __init__(self, clock: ManualClock, needs_s: float, plan: Plan = PLAN) -> None:
        self.clock, self.needs_s, self.plan = clock, needs_s, plan
        self.ended, self.epoch = False, 41
        self.calls: list[str] = []

    def finish(self) -> None:
        self.calls.append("finish")

    def finished(self, timeout_s: float) -> bool:
        waited_s = min(self.needs_s, max(0.0, timeout_s))
        ManualClock.sleep(self.clock, waited_s)
        self.needs_s -= waited_s
        return self.needs_s <= 0

    def stop(self, timeout_s: float) -> None:
        self.calls.append("stop")
        self.ended = True


class Clock(ManualClock):
    """Calls back in every pause."""

    paused: Callable[[], None] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.paused()


@pytest.fixture
def registry() -> Registry:
    found = Registry(FakeZooKeeper().session())
    found.register_worker(ME)
    found.put_job_entry(ENTRY, None)
    return found


def left(registry: Registry, clock: Clock, fragments: list[Ending], how: Leaving) -> float:
    """Leaves; how long it took."""
    began_s = clock.monotonic_s()
    leave(registry, ME, cast(list[Fragment], fragments), how, clock)
    return clock.monotonic_s() - began_s


def test_epochs_end_before_anything_is_stopped(registry: Registry) -> None:
    clock = Clock(0.0)
    first, second = Ending(clock, 0.4), Ending(clock, 0.3)
    assert left(registry, clock, [first, second], Leaving()) == pytest.approx(0.7)
    assert first.calls == second.calls == ["finish", "stop"]
    assert registry.workers() == (replace(ME, leaving=True),)


def test_an_epoch_that_takes_too_long_is_aborted(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(0.0)
    stuck = Ending(clock, 100.0)
    assert left(registry, clock, [stuck], Leaving(limit_s=5.0)) == pytest.approx(5.0)
    assert stuck.calls == ["finish", "stop"]
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "did not end within 5 s" in record.getMessage()
    assert (vars(record)["job"], vars(record)["epoch"]) == ("shop", 42)


def pointers(epoch: int) -> bytes:
    pointer = CheckpointPointer(epoch, 3, 1, "r1", 9, "manifest", 1, 1, 1)
    return codec.encode(CheckpointPointers("uuid", (pointer,)))


def test_a_checkpoint_is_taken_first_and_waited_for(registry: Registry) -> None:
    clock = Clock(0.0)
    fragment = Ending(clock, 0.0)

    def complete() -> None:
        assert fragment.calls == []  # its epochs continue, as the checkpoint is one of them
        stored = registry.job_entry("shop")
        assert stored is not None and stored.value.checkpoint_above == 41
        if clock.monotonic_s() >= 2.0 and registry.pointers("shop") is None:
            registry.coordination.write(Create(paths.checkpoint("shop"), pointers(43)))

    clock.paused = complete
    took_s = left(registry, clock, [fragment], Leaving(60.0, checkpoint=True))
    assert 2.0 <= took_s < 2.5
    assert fragment.calls == ["finish", "stop"]


def test_the_fragments_of_a_job_take_one_checkpoint_and_all_end(registry: Registry) -> None:
    clock = Clock(0.0)
    own = tuple(Assignment(str(i), (i,), "w1-a", 3, split=i) for i in range(2))
    plan = replace(PLAN, assignments=own)
    first, second = (Ending(clock, 0.0, one) for one in plan.for_worker("w1-a"))
    first.epoch, second.epoch = 41, 39
    written: list[int] = []

    def complete() -> None:
        stored = registry.job_entry("shop")
        assert stored is not None and stored.value.checkpoint_above == 41
        written.append(stored.version)
        if registry.pointers("shop") is None:
            registry.coordination.write(Create(paths.checkpoint("shop"), pointers(43)))

    clock.paused = complete
    left(registry, clock, [first, second], Leaving(60.0, checkpoint=True))
    assert first.calls == second.calls == ["finish", "stop"]
    assert len(set(written)) == 1


def test_a_checkpoint_that_does_not_come_leaves_time_for_the_epoch(registry: Registry) -> None:
    clock = Clock(0.0)
    fragment = Ending(clock, 2.0)
    assert left(registry, clock, [fragment], Leaving(10.0, checkpoint=True)) < 10.0
    assert fragment.needs_s == 0.0


@pytest.mark.parametrize("desired", ["stopped", "removed"])
def test_a_job_that_can_take_none_holds_nothing_up(registry: Registry, desired: str) -> None:
    stored = registry.job_entry("shop")
    assert stored is not None
    registry.put_job_entry(replace(ENTRY, desired=desired), stored.version)
    clock = Clock(0.0)
    gone = Ending(clock, 0.0, replace(PLAN, job="gone"))
    fragments = [Ending(clock, 0.0), gone]
    assert left(registry, clock, fragments, Leaving(10.0, checkpoint=True)) == 0.0


def test_a_replica_ends_and_its_job_takes_no_checkpoint_for_it(registry: Registry) -> None:
    clock = Clock(0.0)
    (plan,) = PLAN.with_replica(WHOLE, "w2-a", 4).for_worker("w2-a")
    fragment = Ending(clock, 0.5, plan)
    assert left(registry, clock, [fragment], Leaving(60.0, checkpoint=True)) == pytest.approx(0.5)
    assert fragment.calls == ["finish", "stop"]
    stored = registry.job_entry("shop")
    assert stored is not None
    assert stored.value.checkpoint_above is None


def test_without_zookeeper_the_epochs_are_ended_all_the_same() -> None:
    session = FakeZooKeeper().session()
    registry = Registry(session)
    registry.register_worker(ME)
    session.suspend()
    clock = Clock(0.0)
    fragment = Ending(clock, 1.0)
    assert left(registry, clock, [fragment], Leaving(checkpoint=True)) == pytest.approx(1.0)
    assert fragment.calls == ["finish", "stop"]
