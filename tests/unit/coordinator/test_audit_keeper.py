"""Continuous audits: which intervals are drawn, each once; and what the leader reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseid.coordinator import audit_keeper
from perseid.coordinator.audit_keeper import AuditKeeper, Interval, drawn
from perseid.coordinator.model import JobState
from perseid.jobs.model.spec import AuditSpec
from perseid.jobs.operations import audits
from perseid.records import CheckpointPointer, CheckpointPointers
from perseid.records.audits import AuditRequest, AuditResult
from perseid.registry import codec, paths
from perseid.registry.port import Create, Set
from perseid.testing.store import MemoryStore
from support.audits import EQUAL, JOB, Audited


def pointers(*epochs: int) -> tuple[CheckpointPointer, ...]:
    return tuple(CheckpointPointer(e, 1, 1, "r", e, "m", 1, 1, 0) for e in epochs)


@pytest.fixture
def world(tmp_path: Path) -> Audited:
    return Audited(tmp_path)


def keeper(world: Audited, share: float, *, leads: bool = True) -> AuditKeeper:
    job = SimpleNamespace(
        program=SimpleNamespace(spec=SimpleNamespace(audit=AuditSpec(continuous=share))),
        entry=SimpleNamespace(uuid="u1"),
    )
    jobs = cast(Mapping[str, JobState], {JOB: cast(Any, job)})
    return AuditKeeper(world.registry, MemoryStore(), lambda: jobs, lambda: leads, world.clock)


def checkpointed(world: Audited, *epochs: int) -> None:
    path, data = paths.checkpoint(JOB), codec.encode(CheckpointPointers("u1", pointers(*epochs)))
    there = world.registry.coordination.get(path) is not None
    world.registry.coordination.write(Set(path, data) if there else Create(path, data))


def end(world: Audited, id_: str, result: AuditResult) -> None:
    stored = audits.find(world.registry, id_)
    world.nodes.put(stored.value.ended(result, 1), stored.version)


def intervals(job_uuid: str, share: float) -> list[Interval]:
    """Those that are drawn of 4000, each of ten epochs."""
    found = (drawn(job_uuid, pointers(e + 10, e), share) for e in range(0, 40_000, 10))
    return [one for one in found if one is not None]


def test_the_share_is_drawn_and_everyone_draws_the_same() -> None:
    every = intervals("u1", 1.0)
    assert [(one.first, one.last) for one in every[:2]] == [(1, 10), (11, 20)]
    assert len({one.id for one in every}) == 4000
    few = intervals("u1", 0.05)
    assert 140 < len(few) < 260, "200 of 4000 are expected"
    assert few == intervals("u1", 0.05)
    assert [one.last for one in intervals("u2", 0.05)] != [o.last for o in few], "not together"
    assert intervals("u1", 0.0) == []


def test_one_checkpoint_or_none_has_no_interval() -> None:
    assert drawn("u1", pointers(), 1.0) is drawn("u1", pointers(5), 1.0) is None


def test_each_interval_is_asked_for_once_and_one_at_a_time(world: Audited) -> None:
    checkpointed(world, 30, 20, 10)
    first = keeper(world, 1.0)
    for _ in range(3):
        first._look()
    (asked,) = audits.every(world.registry)
    assert asked.arguments == ("--epochs=21:30", "--cores=1")
    assert (asked.continuous, asked.by, asked.job) == (True, "continuous", JOB)
    second = keeper(world, 1.0)  # of another leader
    checkpointed(world, 40, 30, 20)
    second._look()
    assert len(audits.every(world.registry)) == 1, "one is open"
    end(world, asked.id, EQUAL)
    for _ in range(3):
        second._look()
    ranges = {one.arguments[0] for one in audits.every(world.registry)}
    assert ranges == {"--epochs=21:30", "--epochs=31:40"}


def test_no_share_a_standby_and_another_life_ask_for_nothing(world: Audited) -> None:
    checkpointed(world, 30, 20)
    keeper(world, 0.0)._look()
    keeper(world, 1.0, leads=False)._look()
    data = codec.encode(CheckpointPointers("an older life", pointers(30, 20)))
    world.registry.coordination.write(Set(paths.checkpoint(JOB), data))
    keeper(world, 1.0)._look()
    assert audits.every(world.registry) == []


def test_a_verdict_other_than_equal_is_an_error_in_the_log_once(
    world: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [world.ask() for _ in range(3)]
    watch = keeper(world, 0.0)
    watch._look()
    end(world, ids[0], EQUAL)
    end(world, ids[1], AuditResult("done", "operator spent differs", "diverged"))
    end(world, ids[2], AuditResult("failed", "its process ended with code 137"))
    for _ in range(2):
        watch._look()
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(errors) == 2
    assert any("diverged: operator spent differs" in text for text in errors)
    assert any("failed: its process ended" in text for text in errors)


def test_old_ones_are_deleted_once_an_hour(world: Audited) -> None:
    id_ = world.ask()
    end(world, id_, EQUAL)
    watch = keeper(world, 0.0)
    world.clock.sleep(audits.KEPT_MS / 1000 + 1)
    watch._look()
    assert audits.every(world.registry) == []
    assert audit_keeper.CLEAR_S < audits.KEPT_MS / 1000


def test_seen_is_what_there_is(world: Audited) -> None:
    id_ = world.ask()
    watch = keeper(world, 0.0)
    watch._look()
    assert [type(one) for one in watch.seen] == [AuditRequest]
    assert watch.seen[0].id == id_
