"""The checkpoint store: files that no job needs go after a day, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.clocks import ManualClock
from perseid.coordinator.store_sweep import (
    GONE_MS,
    SWEEP_S,
    YOUNG_MS,
    StoreSweeper,
    user_path,
)
from perseid.errors import DamagedFile, RetryableError
from perseid.jobs.model.trees import archive_path
from perseid.records import CheckpointPointers
from perseid.registry import paths
from perseid.registry.port import Set
from support.coordinator_setting import JOB, Setting

NOW_MS = 10 * YOUNG_MS
OLD, PLANNED = "a" * 64, "b" * 64


def sweeper(setting: Setting, *, leads: bool = True, now_ms: int = NOW_MS) -> StoreSweeper:
    """`now_ms`: by the clock of the store."""
    setting.store.times_ms[user_path(setting.registry.deployment_id())] = now_ms
    return StoreSweeper(setting.registry, setting.store, lambda: leads, ManualClock())


def of_another(setting: Setting, at_ms: int) -> str:
    """The file of a deployment that looked at the store then."""
    path = user_path("0" * 32)
    setting.store.write(path, [b"x"])
    setting.store.times_ms[path] = at_ms
    return path


@pytest.fixture
def filled(setting: Setting) -> Setting:
    """A job with two revisions in use and an earlier one, and what is left of other things."""
    setting.plan(archive=PLANNED)
    setting.fenced.put_pointers(JOB, CheckpointPointers("u1"))
    for path in (
        archive_path(OLD), archive_path(PLANNED), f"jobs/{JOB}/u1/c-1-g1-t1/counts-0.part",
        f"jobs/{JOB}/u0/c-1-g1-t1/counts-0.part", "jobs/removed/u9/c-1-g1-t1/counts-0.part",
        f"jobs/{JOB}/u1/c-1-g1-t1/.counts-0.part.7-ab.tmp", "outside/file",
    ):  # fmt: skip
        setting.store.write(path, [b"x"])
    return setting


def test_earlier_archives_and_what_is_unfinished_or_of_another_uuid_go(filled: Setting) -> None:
    before = set(filled.store.written_ms())
    assert sweeper(filled).sweep() == 3
    assert before - set(filled.store.written_ms()) == {
        archive_path(OLD), f"jobs/{JOB}/u0/c-1-g1-t1/counts-0.part",
        f"jobs/{JOB}/u1/c-1-g1-t1/.counts-0.part.7-ab.tmp",
    }  # fmt: skip
    assert archive_path(filled.entry.archive) in filled.store.written_ms()
    assert sweeper(filled).sweep() == 0


def test_nothing_goes_that_another_deployment_may_need(
    filled: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Two with one folder, perhaps with jobs of one name; or ZooKeeper was lost since."""
    path = of_another(filled, NOW_MS - YOUNG_MS - 1)
    before = set(filled.store.written_ms())
    assert sweeper(filled).sweep() == 0
    assert before <= set(filled.store.written_ms())
    assert path in caplog.text
    filled.store.delete(path)  # as the line asks
    assert sweeper(filled).sweep() == 3


def test_archives_of_an_audit_horizon_stay(filled: Setting) -> None:
    filled.fenced.put_pointers(JOB, CheckpointPointers("u1", archives={"r0": OLD}))
    sweeper(filled).sweep()
    assert archive_path(OLD) in filled.store.written_ms()
    filled.fenced.put_pointers(JOB, CheckpointPointers("u1"))
    assert sweeper(filled).sweep() == 1
    assert archive_path(OLD) not in filled.store.written_ms()


def test_a_deployment_that_is_no_more_is_forgotten(filled: Setting) -> None:
    path = of_another(filled, NOW_MS)
    assert sweeper(filled, now_ms=NOW_MS + GONE_MS).sweep() == 4
    assert path not in filled.store.written_ms()


def test_a_deployment_marks_the_store_as_used_at_once(filled: Setting) -> None:
    sweeper(filled, leads=False)._look()
    assert user_path(filled.registry.deployment_id()) in filled.store.written_ms()
    assert archive_path(OLD) in filled.store.written_ms()


def test_the_clock_of_the_leader_makes_nothing_old(filled: Setting) -> None:
    sweeping = sweeper(filled, now_ms=YOUNG_MS - 1)
    sweeping._clock.sleep(GONE_MS / 1000)
    assert sweeping.sweep() == 0


def test_what_is_young_stays_for_a_job_that_is_being_applied(filled: Setting) -> None:
    filled.store.times_ms = dict.fromkeys(filled.store.content, NOW_MS - YOUNG_MS + 1)
    assert sweeper(filled).sweep() == 0


def test_an_archive_that_is_written_once_more_meanwhile_stays(
    filled: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry_jobs = filled.registry.jobs

    def applied() -> object:
        filled.store.times_ms[archive_path(OLD)] = NOW_MS
        return registry_jobs()

    monkeypatch.setattr(filled.registry, "jobs", applied)
    sweeper(filled).sweep()
    assert archive_path(OLD) in filled.store.written_ms()


def test_nothing_goes_while_an_entry_cannot_be_read(filled: Setting) -> None:
    filled.registry.coordination.write(Set(paths.spec(JOB), b"damaged"))
    with pytest.raises(DamagedFile):
        sweeper(filled).sweep()
    assert archive_path(OLD) in filled.store.written_ms()


def test_a_store_that_is_away_is_not_asked_again_and_again(filled: Setting) -> None:
    leading = sweeper(filled)
    leading._clock.sleep(SWEEP_S)
    filled.store.failing = True
    with pytest.raises(RetryableError):
        leading._look()
    assert leading._look() == SWEEP_S


def test_only_the_leader_looks_and_once_an_hour(filled: Setting) -> None:
    idle = sweeper(filled, leads=False)
    idle._clock.sleep(SWEEP_S)
    idle._look()
    assert archive_path(OLD) in filled.store.written_ms()
    leading = sweeper(filled)
    assert leading._look() == SWEEP_S
    assert archive_path(OLD) in filled.store.written_ms()
    leading._clock.sleep(SWEEP_S)
    assert leading._look() == SWEEP_S
    assert archive_path(OLD) not in filled.store.written_ms()
    entry = filled.registry.job_entry(JOB)
    assert entry is not None
    assert entry.value == replace(filled.entry)
