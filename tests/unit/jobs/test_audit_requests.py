"""Audits on workers as users ask for them, cancel them, and as they are deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.errors import RefusedError
from perseid.jobs.operations import audits
from perseid.jobs.operations.steering import UnknownJob
from perseid.records.audits import TEXT_MAX, AuditRequest, AuditResult
from perseid.registry import ConflictError
from perseid.registry.facade import Stored
from perseid.testing.store import MemoryStore
from support.audits import EQUAL, JOB, Audited


@pytest.fixture
def world(tmp_path: Path) -> Audited:
    return Audited(tmp_path)


def ended(world: Audited, id_: str, at_ms: int = 5) -> None:
    stored = audits.find(world.registry, id_)
    report = f"{audits.folder(world.registry, id_)}/1"
    world.nodes.put(stored.value.ended(EQUAL, at_ms, report), stored.version)


def test_asking_lists_and_shows_it(world: Audited) -> None:
    id_ = world.ask()
    shown = audits.document(world.audit(id_))
    assert (shown["job"], shown["state"], shown["by"]) == (JOB, "waiting", "ann")
    assert shown["arguments"] == ["--epochs=7:9", "--cores=1"]
    assert [one.id for one in audits.every(world.registry)] == [id_]
    assert audits.every(world.registry, "other") == []


def test_a_job_or_an_audit_that_is_not_there(world: Audited) -> None:
    with pytest.raises(UnknownJob, match="did you mean orders"):
        audits.ask(world.registry, world.clock, "order", (), "ann")
    for call in (audits.find, lambda r, i: audits.cancel(r, world.clock, i, "ann")):
        with pytest.raises(audits.UnknownAudit, match="perseid audits list"):
            call(world.registry, "nothing")


def test_so_many_may_be_open(world: Audited) -> None:
    ids = [world.ask() for _ in range(audits.OPEN_MAX)]
    with pytest.raises(RefusedError, match=f"20 audits are open, .* audits cancel {min(ids)}|"):
        world.ask()
    ended(world, ids[0])
    world.ask()


def test_an_id_that_is_given_is_asked_for_once(world: Audited) -> None:
    for _ in range(2):
        try:
            audits.ask(world.registry, world.clock, JOB, (), "c", id_="c1", continuous=True)
        except ConflictError as error:
            assert error.path == "/audits/c1"
    assert [one.id for one in audits.every(world.registry)] == ["c1"]


def test_what_has_ended_is_not_canceled(world: Audited) -> None:
    id_ = world.ask()
    ended(world, id_)
    with pytest.raises(RefusedError, match=f"audit {id_} has ended: done"):
        audits.cancel(world.registry, world.clock, id_, "ann")


def test_a_report_is_refused_before_there_is_one(world: Audited) -> None:
    id_ = world.ask()
    with pytest.raises(RefusedError, match=r"no report \(waiting: it has not ended yet\)"):
        audits.report(MemoryStore(), world.audit(id_), values=False)
    audits.cancel(world.registry, world.clock, id_, "bob")
    with pytest.raises(RefusedError, match=r"no report \(canceled: canceled by bob\)"):
        audits.report(MemoryStore(), world.audit(id_), values=False)


def stored(number: int, ended_ms: int | None) -> Stored[AuditRequest]:
    made = AuditRequest(f"a{number}", JOB, (), 0, "ann")
    return Stored(made if ended_ms is None else made.ended(EQUAL, ended_ms), 1)


def test_those_that_are_old_or_too_many_expire_and_open_ones_never() -> None:
    old, young = stored(1, 0), stored(2, 1)
    waiting = stored(3, None)
    assert audits.expired([old, young, waiting], audits.KEPT_MS) == [old]
    many = [stored(n, n) for n in range(audits.KEPT_MAX + 2)]
    assert audits.expired([*many, waiting], 1) == many[1::-1]


def test_expired_ones_are_deleted_with_their_reports(world: Audited) -> None:
    store = MemoryStore()
    old, new = world.ask(), world.ask()
    for id_, at_ms in ((old, 0), (new, audits.KEPT_MS)):
        ended(world, id_, at_ms)
        for name in ("audit.json", "values.json"):
            store.write(f"{world.audit(id_).report}/{name}", [b"{}"])
    store.failing = True
    with pytest.raises(Exception, match="does not answer"):
        audits.delete_expired(world.registry, store, audits.KEPT_MS)
    assert len(audits.every(world.registry)) == 2, "the entry is deleted last"
    store.failing = False
    assert audits.delete_expired(world.registry, store, audits.KEPT_MS) == 1
    assert [one.id for one in audits.every(world.registry)] == [new]
    assert {path.split("/")[2] for path in store.list("audits")} == {new}


def test_a_long_reason_is_cut() -> None:
    made = AuditRequest("a", JOB, (), 0, "ann").ended(AuditResult("failed", "x" * 9999), 1)
    assert made.result == replace(AuditResult("failed", "x" * TEXT_MAX))
