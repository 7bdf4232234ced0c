"""Which worker runs an audit, and what becomes of it when workers die, leave, or it is canceled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from perseid.jobs.operations import audits
from perseid.records.audits import ATTEMPTS_MAX, AuditProgress, AuditResult
from perseid.registry import paths
from perseid.registry.port import Set, UnknownOutcomeError
from perseid.replay import reports
from perseid.state.durability.store import open_store
from perseid.testing.wait import until
from perseid.worker import audit_runs
from perseid.worker.machine import Memory
from support.audit_reports import example
from support.audits import EQUAL, JOB, Audited, FakeProcess, Host

PATIENCE_S = 20.0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    monkeypatch.setattr(audit_runs, "LOOK_S", 0.01)
    monkeypatch.setattr(audit_runs, "RETRY_S", 0.01)
    return Audited(tmp_path)


def begun(host: Host, count: int = 1) -> FakeProcess:
    """The process that the host starts, which takes a moment."""
    host.runs.look()
    until(lambda: len(host.processes) == count, PATIENCE_S, "a process")
    return host.processes[-1]


def idle(host: Host) -> None:
    until(lambda: host.runs.running is None, PATIENCE_S, "the end of the run")


def test_one_worker_takes_it_and_its_report_is_in_the_store(world: Audited) -> None:
    one, other = Host(world, "w1"), Host(world, "w2")
    id_ = world.ask()
    process = begun(one)
    other.runs.look()
    assert (one.runs.running, other.runs.running) == (id_, None)
    audit = world.audit(id_)
    assert (audit.state, audit.worker, audit.attempt) == ("running", "w1-1", 1)
    process.progress(8)
    until(lambda: world.audit(id_).progress is not None, PATIENCE_S, "its progress")
    process.end()
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    audit = world.audit(id_)
    assert (audit.state, audit.result, audit.attempt) == ("done", EQUAL, 1)
    store = open_store(world.deployment.store)
    shown = reports.from_json(audits.report(store, audit, values=False))
    assert shown.redacted
    assert reports.from_json(audits.report(store, audit, values=True)) == example()
    assert not other.processes
    idle(one)
    one.runs.look()
    until(lambda: not process.folder.exists(), PATIENCE_S, "its files to be deleted")


def test_a_worker_runs_one_at_a_time_and_then_the_next(world: Audited) -> None:
    host = Host(world, "w1")
    first, second = world.ask(), world.ask()
    begun(host)
    host.runs.look()
    assert {world.state(first), world.state(second)} == {"running", "waiting"}
    host.processes[0].end()
    idle(host)
    begun(host, 2)
    assert {world.state(first), world.state(second)} == {"done", "running"}


def test_an_audit_of_a_dead_worker_is_begun_again_by_another_one(world: Audited) -> None:
    one, other = Host(world, "w1"), Host(world, "w2")
    id_ = world.ask()
    begun(one)
    one.die()
    again = begun(other)
    assert (world.audit(id_).worker, world.audit(id_).attempt) == ("w2-1", 2)
    again.end()
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    assert world.audit(id_).report.endswith(f"/{id_}/2")


def test_a_worker_that_was_taken_for_dead_writes_nothing_more(world: Audited) -> None:
    one, other = Host(world, "w1"), Host(world, "w2")
    id_ = world.ask()
    old = begun(one)
    world.registry.remove_worker("w1", 1)
    begun(other)
    taken = world.audit(id_)
    old.progress(8)
    assert old.killed.wait(PATIENCE_S), "it learns with its next write"
    idle(one)
    assert world.audit(id_) == taken
    one.runs.look()
    assert len(one.processes) == 1, "it is not live, so it takes none"


def test_an_old_result_is_not_written_over_a_newer_attempt(world: Audited) -> None:
    one, other = Host(world, "w1"), Host(world, "w2")
    id_ = world.ask()
    old = begun(one)
    world.registry.remove_worker("w1", 1)
    begun(other)
    old.end()
    idle(one)
    assert (world.state(id_), world.audit(id_).worker) == ("running", "w2-1")


def test_after_three_workers_it_has_failed(
    world: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = world.ask()
    for number in range(ATTEMPTS_MAX):
        host = Host(world, f"w{number}")
        begun(host)
        host.die()
    last = Host(world, "w9")
    last.runs.look()
    assert not last.processes
    audit = world.audit(id_)
    assert audit.state == "failed" and audit.result is not None
    assert audit.result.text == "3 workers died while they ran it, the last w2-1"
    assert audit.result.text in caplog.text


def test_a_worker_that_leaves_hands_it_over_and_this_does_not_count(world: Audited) -> None:
    one, other = Host(world, "w1"), Host(world, "w2")
    id_ = world.ask()
    process = begun(one)
    one.runs.stop()
    assert process.killed.is_set()
    assert (world.state(id_), world.audit(id_).attempt) == ("waiting", 0)
    begun(other)
    assert world.audit(id_).attempt == 1


def test_a_canceled_one_ends_its_process(world: Audited) -> None:
    host = Host(world, "w1")
    id_ = world.ask()
    process = begun(host)
    audits.cancel(world.registry, world.clock, id_, "ann")
    world.clock.sleep(audit_runs.NOTE_S)
    assert process.killed.wait(PATIENCE_S)
    idle(host)
    audit = world.audit(id_)
    assert audit.state == "canceled" and audit.result is not None
    assert audit.result.text == "canceled by ann"


def test_what_is_refused_and_what_ends_without_a_result(world: Audited) -> None:
    host = Host(world, "w1")
    refused, broken = world.ask(), world.ask()
    for number in (1, 2):
        process = begun(host, number)
        if process.folder.name == refused:
            process.end(AuditResult("refused", "epochs 7 to 9 were never committed"))
        else:
            process.end(None, code=137)
        idle(host)
    found = {id_: world.audit(id_) for id_ in (refused, broken)}
    assert [found[refused].state, found[broken].state] == ["refused", "failed"]
    assert "never committed" in (found[refused].result or EQUAL).text
    assert "code 137 and no result" in (found[broken].result or EQUAL).text
    assert not found[refused].report and not found[broken].report


def test_a_result_waits_for_zookeeper(world: Audited) -> None:
    host = Host(world, "w1")
    id_ = world.ask()
    process = begun(host)
    host.session.suspend()
    process.end()
    host.session.resume()
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    assert world.state(id_) == "done"


@pytest.mark.parametrize("outcome", ["done", "not done"])
def test_a_claim_of_unknown_outcome(world: Audited, outcome: Literal["done", "not done"]) -> None:
    host, other = Host(world, "w1"), Host(world, "w2")
    id_ = world.ask()
    host.session.unknown_next = outcome
    with pytest.raises(UnknownOutcomeError):
        host.runs.look()
    assert world.state(id_) == ("running" if outcome == "done" else "waiting")
    if outcome == "done":
        other.runs.look()
        assert not other.processes, "its worker is live"
    begun(host).end()
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    assert world.state(id_) == "done"


@pytest.mark.parametrize("outcome", ["done", "not done"])
def test_progress_of_unknown_outcome_ends_nothing(
    world: Audited, outcome: Literal["done", "not done"]
) -> None:
    host = Host(world, "w1")
    id_ = world.ask()
    process = begun(host)
    host.session.unknown_next = outcome
    process.progress(8)
    until(lambda: host.session.unknown_next is None, PATIENCE_S, "a write of unknown outcome")
    process.progress(9)
    until(lambda: world.audit(id_).progress == AuditProgress(9, 9, 0), PATIENCE_S, "progress")
    host.session.unknown_next = outcome
    process.end()
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    assert (world.state(id_), process.killed.is_set()) == ("done", False)


def test_a_report_that_is_missing_fails_it(world: Audited) -> None:
    host = Host(world, "w1")
    id_ = world.ask()
    process = begun(host)
    process.end(AuditResult("done", "equal", "equal"), reported=False)
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    audit = world.audit(id_)
    assert audit.state == "failed" and audit.result is not None and not audit.report
    assert "its worker cannot end it: " in audit.result.text


def test_where_memory_is_short_none_runs_so_that_no_job_is_stopped(world: Audited) -> None:
    host = Host(world, "w1")
    id_, fine = world.ask(), host.memory
    host.memory = Memory(64 << 20, 16 << 30)
    host.runs.look()
    assert (host.processes, world.state(id_)) == ([], "waiting")
    host.memory = fine
    process = begun(host)
    host.memory = Memory(64 << 20, 16 << 30)
    until(lambda: not world.audit(id_).is_open, PATIENCE_S, "its end")
    audit = world.audit(id_)
    assert process.killed.is_set()
    assert audit.state == "failed" and audit.result is not None
    assert audit.result.text == audit_runs.SHORT


def test_a_damaged_entry_is_left_alone(world: Audited) -> None:
    host = Host(world, "w1")
    damaged, good = world.ask(), world.ask()
    world.registry.coordination.write(Set(paths.audit(damaged), b"{}"))
    process = begun(host)
    assert process.folder.name == good


def test_without_audits_a_look_is_one_read(world: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(world, "w1")
    host.runs.look()
    read: list[str] = []
    get = host.session.get

    def reads(path: str) -> Any:
        read.append(path)
        return get(path)

    monkeypatch.setattr(host.session, "get", reads)
    monkeypatch.setattr(host.session, "children", lambda path: pytest.fail(f"asks for {path}"))
    for _ in range(3):
        host.runs.look()
    assert read == [paths.AUDITS] * 3
    assert world.registry.job_names() == (JOB,)
