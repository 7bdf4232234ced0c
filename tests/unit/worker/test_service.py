"""A worker and the plans of many jobs: what is wrong with one of them is its own affair."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from perseid.records import (
    WHOLE,
    Assignment,
    CheckpointPointer,
    CheckpointPointers,
    Deployment,
    JobEntry,
    Plan,
)
from perseid.registry import Registry, codec, paths
from perseid.registry.port import Create, Set
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.wait import until
from perseid.worker import service as services
from perseid.worker.fragment import Fragment
from perseid.worker.fragments import Fragments
from perseid.worker.service import WorkerService


class Running:
    """Stands where a fragment stands. It ends when it is `let`."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.name = plan, f"{plan.job}.{plan.only.fragment}"
        self.pointers: tuple[object, ...] = ()
        self.stopped, self.let = threading.Event(), threading.Event()
        self.ended = False

    def stop(self) -> None:
        self.stopped.set()
        self.ended = self.let.wait(10)


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeZooKeeper().session())


@pytest.fixture
def service(tmp_path: Path) -> WorkerService:
    settings = Deployment(
        kafka="k:1", zookeeper="z:1", redis="redis://r:1", store=str(tmp_path / "store"),
        state=str(tmp_path / "state"), logs=str(tmp_path / "logs"),
    )  # fmt: skip
    return WorkerService(settings, "w1", tmp_path / "cache", tmp_path / "scratch")


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def fragments(woken: threading.Event) -> Iterator[Fragments]:
    started: list[Running] = []

    def start(plan: Plan) -> Fragment:
        started.append(Running(plan))
        return cast(Fragment, started[-1])

    yield Fragments(start, woken.set)
    for one in started:
        one.let.set()


def placed(registry: Registry, service: WorkerService, job: str) -> None:
    registry.put_job_entry(JobEntry(job, f"u-{job}", "r", "a", "running", 1, 0), None)
    plan = Plan.fused(job, f"u-{job}", 1, service.incarnation, "r", "a", 1, 0, 0)
    registry.coordination.write(Create(paths.plan(job), codec.encode(plan)))


def placed_again(registry: Registry, job: str, generation: int, owner: str | None) -> None:
    plan = Plan.fused(job, f"u-{job}", generation, owner, "r", "a", 1, 0, 0)
    registry.coordination.write(Set(paths.plan(job), codec.encode(plan)))


def spread(registry: Registry, job: str, plan: Plan | None, *owners: str | None) -> Plan:
    """Writes a plan with one fragment for each owner; those of `plan` that differ get another life.

    Every change of one fragment comes with the plan's next version.
    """
    if plan is None:
        registry.put_job_entry(JobEntry(job, f"u-{job}", "r", "a", "running", 1, 0), None)
        own = tuple(Assignment(str(i), (i,), owner, 1, split=i) for i, owner in enumerate(owners))
        made = Plan(job, f"u-{job}", 1, "r", "a", 1, 0, 0, own)
        registry.coordination.write(Create(paths.plan(job), codec.encode(made)))
        return made
    changed = {
        a.fragment: owner
        for a, owner in zip(plan.assignments, owners, strict=True) if a.owner != owner
    }  # fmt: skip
    made = plan.placed(changed, plan.generation + 1)
    registry.coordination.write(Set(paths.plan(job), codec.encode(made)))
    return made


def look(registry: Registry, service: WorkerService, fragments: Fragments) -> dict[str, Running]:
    """What runs then, by job, and of a spread job by `job/fragment`."""
    service._reconcile(registry, fragments)
    return {
        job if fragment == WHOLE else f"{job}/{fragment}": cast(Running, running)
        for (job, fragment), running in fragments.running().items()
    }


@pytest.mark.parametrize("node", [paths.spec, paths.plan, paths.checkpoint])
def test_a_damaged_node_of_one_job_is_nothing_to_the_others(
    registry: Registry, service: WorkerService, fragments: Fragments, node: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for job in ("a", "b"):
        placed(registry, service, job)
    before = dict(look(registry, service, fragments))
    assert sorted(before) == ["a", "b"]
    if node is paths.checkpoint:
        registry.coordination.write(Create(node("b"), b"edited by hand"))
    else:
        registry.coordination.write(Set(node("b"), b"edited by hand"))
    placed(registry, service, "c")
    assert sorted(look(registry, service, fragments)) == ["a", "b", "c"]
    assert look(registry, service, fragments)["b"] is before["b"]
    assert not before["b"].stopped.is_set()
    placed_again(registry, "a", 2, None)
    assert sorted(look(registry, service, fragments)) == ["b", "c"]
    assert before["a"].stopped.wait(10)
    messages = [r.getMessage() for r in caplog.records]
    logged = [text for text in messages if "what runs of it continues" in text]
    assert len(logged) == (0 if node is paths.checkpoint else 1)


def test_no_job_waits_for_the_end_of_another_ones_fragment(
    registry: Registry, service: WorkerService, fragments: Fragments, woken: threading.Event
) -> None:
    for job in ("a", "b"):
        placed(registry, service, job)
    before = look(registry, service, fragments)
    placed_again(registry, "a", 2, service.incarnation)
    placed_again(registry, "b", 2, None)
    placed(registry, service, "c")
    assert sorted(look(registry, service, fragments)) == ["c"]
    assert before["a"].stopped.wait(10)
    assert before["b"].stopped.wait(10)
    assert len(list(fragments)) == 3  # a worker that leaves waits for all of them
    # The next fragment of a job waits for the end of the last one.
    assert sorted(look(registry, service, fragments)) == ["c"]
    assert not woken.is_set()
    before["a"].let.set()
    assert woken.wait(10)
    until(lambda: "a" in look(registry, service, fragments), 10, "the next fragment of a")
    assert look(registry, service, fragments)["a"].plan.generation == 2
    assert sorted(look(registry, service, fragments)) == ["a", "c"]


def test_a_fragment_that_does_not_end_is_reported_and_the_next_one_starts(
    registry: Registry, service: WorkerService, fragments: Fragments,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    placed(registry, service, "a")
    old = look(registry, service, fragments)["a"]
    setattr(old, "stop", old.stopped.set)  # noqa: B010 - returns although the fragment runs
    placed_again(registry, "a", 2, service.incarnation)
    until(lambda: "a" in look(registry, service, fragments), 10, "the next fragment of a")
    assert look(registry, service, fragments)["a"].plan.generation == 2
    assert any("generation 1 did not end in time" in r.getMessage() for r in caplog.records)


def test_what_a_job_of_a_damaged_entry_has_here_is_kept(
    registry: Registry, service: WorkerService, fragments: Fragments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its UUID is unknown then, so it looks like that of a job that was removed."""
    seen: list[set[str]] = []
    monkeypatch.setattr(service._removed, "see", lambda known, _: seen.append(set(known)))
    placed(registry, service, "b")
    look(registry, service, fragments)
    assert seen == [{"u-b"}]
    registry.coordination.write(Set(paths.spec("b"), b"edited by hand"))
    look(registry, service, fragments)
    assert seen == [{"u-b"}]


def test_a_worker_runs_those_fragments_of_a_job_that_are_its_own(
    registry: Registry, service: WorkerService, fragments: Fragments
) -> None:
    me = service.incarnation
    plan = spread(registry, "a", None, me, "w2-b", me)
    first = look(registry, service, fragments)
    assert sorted(first) == ["a/0", "a/2"]
    assert [r.plan.only.split for r in first.values()] == [0, 2]
    # The worker of another fragment died: its loss is nothing to those that run here.
    plan = spread(registry, "a", plan, me, "w3-c", me)
    assert plan.generation == 2
    assert look(registry, service, fragments) == first
    plan = spread(registry, "a", plan, me, me, me)
    then = look(registry, service, fragments)
    assert {name: r.plan.generation for name, r in then.items()} == {"a/0": 1, "a/1": 3, "a/2": 1}
    assert (then["a/0"], then["a/2"]) == (first["a/0"], first["a/2"])
    assert not any(running.stopped.is_set() for running in then.values())


def test_no_fragment_waits_for_the_end_of_another_one_of_its_job(
    registry: Registry, service: WorkerService, fragments: Fragments
) -> None:
    me = service.incarnation
    plan = spread(registry, "a", None, me, me)
    old = look(registry, service, fragments)
    renewed = plan.renewed(2)
    registry.coordination.write(Set(paths.plan("a"), codec.encode(renewed)))
    assert look(registry, service, fragments) == {}
    assert all(running.stopped.wait(10) for running in old.values())
    old["a/1"].let.set()
    until(lambda: "a/1" in look(registry, service, fragments), 10, "the next life of fragment 1")
    now = look(registry, service, fragments)
    assert {name: running.plan.generation for name, running in now.items()} == {"a/1": 2}
    old["a/0"].let.set()
    until(lambda: len(look(registry, service, fragments)) == 2, 10, "the next life of fragment 0")


def test_a_change_from_one_fragment_to_several_ends_the_one(
    registry: Registry, service: WorkerService, fragments: Fragments
) -> None:
    placed(registry, service, "a")
    whole = look(registry, service, fragments)["a"]
    own = tuple(Assignment(str(i), (i,), service.incarnation, 2, split=i) for i in range(2))
    several = Plan("a", "u-a", 2, "r", "a", 2, 0, 0, own)
    registry.coordination.write(Set(paths.plan("a"), codec.encode(several)))
    assert sorted(look(registry, service, fragments)) == ["a/0", "a/1"]
    assert whole.stopped.wait(10)
    assert len(list(fragments)) == 3  # a worker that leaves waits for all of them


def test_a_stop_ends_every_fragment_of_the_job(
    registry: Registry, service: WorkerService, fragments: Fragments
) -> None:
    me = service.incarnation
    plan = spread(registry, "a", None, me, me)
    before = look(registry, service, fragments)
    registry.coordination.write(Set(paths.plan("a"), codec.encode(plan.handed_to(None, 2))))
    assert look(registry, service, fragments) == {}
    assert all(running.stopped.wait(10) for running in before.values())


def test_all_fragments_of_a_job_know_its_checkpoints(
    registry: Registry, service: WorkerService, fragments: Fragments
) -> None:
    me = service.incarnation
    spread(registry, "a", None, me, me)
    placed(registry, service, "b")
    pointer = CheckpointPointer(8, 1, 1, "r", 9, "manifest", 1, 1, 1)
    found = codec.encode(CheckpointPointers("u-a", (pointer,)))
    registry.coordination.write(Create(paths.checkpoint("a"), found))
    known = {name: r.pointers for name, r in look(registry, service, fragments).items()}
    assert known == {"a/0": (pointer,), "a/1": (pointer,), "b": ()}


def test_queries_are_warmed_up_once_nothing_has_run_for_a_while(
    service: WorkerService, fragments: Fragments, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed, spark = list[object](), cast(Any, object())
    monkeypatch.setattr(services, "warm_up_queries", lambda *given: warmed.append(given))
    later_s = service.clock.monotonic_s() + 3600
    assert service._warm_queries(spark, fragments, later_s) == later_s
    assert service._warm_queries(spark, fragments, 0.0) == math.inf
    until(lambda: warmed == [(spark, service.scratch / "warm-up")], 10, "the warm-up")
    service._warm_queries(spark, fragments, math.inf)
    assert len(warmed) == 1


def test_queries_are_not_warmed_up_next_to_a_fragment(
    registry: Registry, service: WorkerService, fragments: Fragments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    warmed = list[object]()
    monkeypatch.setattr(services, "warm_up_queries", lambda *given: warmed.append(given))
    placed(registry, service, "a")
    look(registry, service, fragments)
    assert service._warm_queries(cast(Any, None), fragments, 0.0) == math.inf
    assert warmed == []
