"""A worker and the plans of many jobs: what is wrong with one of them is its own affair."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from perseid.records import Deployment, JobEntry, Plan
from perseid.registry import Registry, codec, paths
from perseid.registry.port import Create, Set
from perseid.testing.registry import FakeZooKeeper
from perseid.worker.service import WorkerService


class Running:
    """Stands where a fragment stands."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.stopped = plan, False
        self.pointers: tuple[object, ...] = ()

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeZooKeeper().session())


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerService:
    settings = Deployment(
        kafka="k:1", zookeeper="z:1", redis="redis://r:1", store=str(tmp_path / "store"),
        state=str(tmp_path / "state"), logs=str(tmp_path / "logs"),
    )  # fmt: skip
    found = WorkerService(settings, "w1", tmp_path / "cache", tmp_path / "scratch")

    def start(_: object, __: object, plan: Plan) -> None:
        found._fragments[plan.job] = cast(Any, Running(plan))

    monkeypatch.setattr(found, "_start", start)
    return found


def placed(registry: Registry, service: WorkerService, job: str) -> None:
    registry.put_job_entry(JobEntry(job, f"u-{job}", "r", "a", "running", 1, 0), None)
    plan = Plan(job, f"u-{job}", 1, service.incarnation, "r", "a", 1, 0, 0)
    registry.coordination.write(Create(paths.plan(job), codec.encode(plan)))


def look(registry: Registry, service: WorkerService) -> dict[str, Running]:
    service._reconcile(cast(Any, None), registry)
    return cast(dict[str, Running], service._fragments)


@pytest.mark.parametrize("node", [paths.spec, paths.plan, paths.checkpoint])
def test_a_damaged_node_of_one_job_is_nothing_to_the_others(
    registry: Registry, service: WorkerService, node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for job in ("a", "b"):
        placed(registry, service, job)
    before = dict(look(registry, service))
    assert sorted(before) == ["a", "b"]
    if node is paths.checkpoint:
        registry.coordination.write(Create(node("b"), b"edited by hand"))
    else:
        registry.coordination.write(Set(node("b"), b"edited by hand"))
    placed(registry, service, "c")
    assert sorted(look(registry, service)) == ["a", "b", "c"]
    assert look(registry, service)["b"] is before["b"]
    assert not before["b"].stopped
    registry.coordination.write(Set(paths.plan("a"), codec.encode(
        Plan("a", "u-a", 2, None, "r", "a", 1, 0, 0)
    )))  # fmt: skip
    assert sorted(look(registry, service)) == ["b", "c"]
    assert before["a"].stopped
    messages = [r.getMessage() for r in caplog.records]
    logged = [text for text in messages if "what runs of it continues" in text]
    assert len(logged) == (0 if node is paths.checkpoint else 1)


def test_what_a_job_of_a_damaged_entry_has_here_is_kept(
    registry: Registry, service: WorkerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its UUID is unknown then, so it looks like that of a job that was removed."""
    seen: list[set[str]] = []
    monkeypatch.setattr(service._removed, "see", lambda known, _: seen.append(set(known)))
    placed(registry, service, "b")
    look(registry, service)
    assert seen == [{"u-b"}]
    registry.coordination.write(Set(paths.spec("b"), b"edited by hand"))
    look(registry, service)
    assert seen == [{"u-b"}]
