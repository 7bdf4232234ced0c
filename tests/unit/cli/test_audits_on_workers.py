"""`perseid replay --on-worker` and `perseid audits list|show-run|cancel`, without a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perseid.cli import audit_runs, jobs
from perseid.clocks import ManualClock
from perseid.jobs.operations import audits
from perseid.jobs.operations.applying import Cluster
from perseid.records.audits import REPORT, VALUES, AuditProgress, AuditResult
from perseid.replay import reports
from perseid.replay.findings import Audit
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.store import MemoryStore
from support.audit_reports import example
from support.audits import JOB, Audited

Run = Callable[..., Any]


class Working(ManualClock):
    """A clock whose `sleep` lets the worker do the next thing."""

    def __init__(self) -> None:
        super().__init__()
        self.does: list[Callable[[], None]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.does.pop(0)()


class Deployed(Audited):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.works, self.store = Working(), MemoryStore()
        self.cluster = Cluster(self.registry, FakeTopics(ModelKafka()), self.store, self.works)

    @property
    def only(self) -> str:
        (audit,) = audits.every(self.registry)
        return audit.id

    def take(self) -> None:
        stored = audits.find(self.registry, self.only)
        running = stored.value.taken("w1-1", 1)
        self.nodes.put(running, stored.version)

    def proceed(self) -> None:
        stored = audits.find(self.registry, self.only)
        object.__setattr__(stored.value, "progress", AuditProgress(8, 9, 0))
        self.nodes.put_progress(stored.value, stored.version)

    def end(self, result: AuditResult, found: Audit | None = None) -> None:
        stored = audits.find(self.registry, self.only)
        folder = f"{audits.folder(self.registry, self.only)}/1" if found is not None else ""
        if found is not None:
            shown = reports.without_values(found)
            self.store.write(f"{folder}/{REPORT}", [reports.as_json(shown).encode()])
            self.store.write(f"{folder}/{VALUES}", [reports.as_json(found).encode()])
        self.nodes.put(stored.value.ended(result, 9, folder), stored.version)


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    world = Deployed(tmp_path)

    @contextmanager
    def connected(_data: Path | None) -> Iterator[Cluster]:
        yield world.cluster

    monkeypatch.setattr(jobs, "connected", connected)
    return world


def diverge(world: Deployed) -> Callable[[], None]:
    result = AuditResult("done", "operator spent differs", "diverged", 70, 140, 71, 9)
    return lambda: world.end(result, example())


def test_it_is_followed_and_exits_with_its_verdict(
    run: Run, deployed: Deployed, tmp_path: Path
) -> None:
    deployed.works.does = [deployed.take, deployed.proceed, diverge(deployed)]
    folder = tmp_path / "reports"
    out = run("replay", JOB, "--on-worker", "--epochs", "7:9", "--report", str(folder), code=1)
    for line in (
        f"audit {deployed.only} is asked for", "waits for a worker", "runs on w1-1",
        "epoch 8 of 9, 0 differences", "diverged: operator spent differs", f"{JOB}: diverged",
    ):  # fmt: skip
        assert line in out
    assert {path.name for path in folder.iterdir()} == {f.file for f in reports.FORMS.values()}
    assert reports.from_json((folder / "audit.json").read_text()).redacted


def test_values_are_shown_on_request(run: Run, deployed: Deployed) -> None:
    deployed.works.does = [diverge(deployed)]
    out = run("replay", JOB, "--on-worker", "--last", "1h", "--show-values", "--json", code=1)
    assert out["redacted"] is False
    (audit,) = audits.every(deployed.registry)
    assert audit.arguments == ("--last=1h", "--cores=1")
    assert audit.by == audit_runs.user()


@pytest.mark.parametrize(
    ("state", "code", "kind"), [("refused", 3, "RefusedError"), ("failed", 1, "RetryableError")]
)
def test_without_a_verdict(
    run: Run, deployed: Deployed, state: Any, code: int, kind: str
) -> None:  # fmt: skip
    deployed.works.does = [lambda: deployed.end(AuditResult(state, "nothing is there"))]
    out = run("replay", JOB, "--on-worker", "--last", "1h", "--json", code=code)
    assert out["error"]["kind"] == kind
    assert f"{state}: nothing is there" in out["error"]["message"]


def test_it_need_not_be_followed(run: Run, deployed: Deployed) -> None:
    shown = run("replay", JOB, "--on-worker", "--no-wait", "--last", "1h", "--json")
    assert (shown["id"], shown["state"]) == (deployed.only, "waiting")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--rev", "folder", "--last", "1h"), "--rev is for an audit on this machine"),
        (("--folder", "folder", "--last", "1h"), "--folder is for an audit on this machine"),
        (("--sample", "1/2", "--last", "1h"), "--sample is for an audit on this machine"),
        (("--seed", "0", "--last", "1h"), "--seed is for an audit on this machine"),
        (("--rate", "5", "--last", "1h"), "--rate is for an audit on this machine"),
        (("--dry-run", "--last", "1h"), "--dry-run is for an audit on this machine"),
        (("--epochs", "9:7"), "--epochs: the last one, 7, is below the first one, 9"),
        ((), "expected one of --epochs"),
        (("--last", "1h", "--tolerance", "x"), "--tolerance"),
    ],
)
def test_what_a_worker_cannot_run(
    run: Run, deployed: Deployed, options: tuple[str, ...], text: str
) -> None:
    assert text in run("replay", JOB, "--on-worker", *options, code=2)
    assert audits.every(deployed.registry) == []


def test_they_are_listed_shown_and_canceled(run: Run, deployed: Deployed) -> None:
    id_ = deployed.ask()
    assert id_ in run("audits", "list") and "waiting" in run("audits", "list")
    assert run("audits", "list", "--job", "other", "--json") == {"audits": []}
    assert run("audits", "show-run", id_, "--json")["state"] == "waiting"
    canceled = run("audits", "cancel", id_, "--json")
    assert canceled["state"] == "canceled" and canceled["text"].startswith("canceled by ")
    assert "has ended: canceled" in run("audits", "cancel", id_, code=3)
    assert "perseid audits list" in run("audits", "show-run", "nothing", code=2)
    assert "expected json, html" in run("audits", "show-run", id_, "--format", "pdf", code=2)


def test_the_report_of_one_that_has_ended(run: Run, deployed: Deployed) -> None:
    id_ = deployed.ask()
    diverge(deployed)()
    assert "diverged" in run("audits", "list")
    shown = run("audits", "show-run", id_, "--format", "markdown")
    assert "Diverged" in shown and "31}" not in shown
    values = run("audits", "show-run", id_, "--format", "html", "--show-values")
    assert "31}" in values
