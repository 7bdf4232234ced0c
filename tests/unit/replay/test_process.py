"""The process of an audit on a worker: the files that it leaves; it ends with its worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from perseid import logs
from perseid.errors import PermanentError, RefusedError, RetryableError
from perseid.records import Deployment
from perseid.records.audits import PROGRESS, REPORT, RESULT, VALUES, AuditProgress
from perseid.records.marks import mark
from perseid.registry import Registry
from perseid.replay import __main__ as process
from perseid.replay import reports
from perseid.replay.progress import FILE, Progress
from perseid.testing.wait import until
from support.audit_reports import example


class Auditing:
    """Stands where `Auditor` stands; `ends` with findings or an error."""

    ends: Any = example()
    progress: list[Progress] = []  # noqa: RUF012  of all that there were

    def __init__(self, *arguments: Any) -> None:
        self.asked, self.note = arguments[4], arguments[5]
        self.progress.append(arguments[7])

    def audit(self) -> Any:
        self.note("audited with r2")
        self.note(AuditProgress(8, 9, 1))
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(process, "Auditor", Auditing)
    monkeypatch.setattr(Auditing, "progress", [])
    monkeypatch.setattr(Registry, "connect", lambda _: open(tmp_path / "registry", "w"))
    monkeypatch.setattr(process, "TopicAdmin", lambda _: None)
    monkeypatch.setattr(process, "_end_with", lambda _: None)
    monkeypatch.setattr(process, "_yield_to_jobs", lambda: None)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    settings = Deployment(
        kafka="k:1", zookeeper="z:1", redis="redis://r:1", store=str(tmp_path / "store"),
        state=str(tmp_path), logs=str(tmp_path),
    )  # fmt: skip
    (tmp_path / "deployment.json").write_text(settings.model_dump_json())
    return [
        f"--deployment={tmp_path / 'deployment.json'}", "--job=orders", f"--folder={tmp_path}",
        "--parent=1",
    ]  # fmt: skip


def result(folder: Path) -> Any:
    return orjson.loads((folder / RESULT).read_bytes())


def test_a_verdict_with_both_reports(arguments: list[str], tmp_path: Path) -> None:
    process.main([*arguments, "--epochs=70:140", "--tolerance=total=ulp:4", "--cores=2"])
    found = result(tmp_path)
    assert (found["state"], found["verdict"], found["text"]) == (
        "done", "diverged", example().reasons[0]
    )  # fmt: skip
    assert (found["first_epoch"], found["last_epoch"]) == (70, 140)
    assert reports.from_json((tmp_path / VALUES).read_text()) == example()
    assert reports.from_json((tmp_path / REPORT).read_text()).redacted
    progress = orjson.loads((tmp_path / PROGRESS).read_bytes())
    assert progress == {"epoch": 8, "of": 9, "differences": 1}


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (RefusedError("epoch 1 is gone"), "refused", "epoch 1 is gone"),
        (PermanentError("a file is damaged"), "failed", "PermanentError: a file is damaged"),
    ],
)
def test_what_ends_without_one(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    error: Exception, state: str, text: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(Auditing, "ends", error)
    process.main([*arguments, "--last=1h"])
    assert (result(tmp_path)["state"], result(tmp_path)["text"]) == (state, text)
    assert not (tmp_path / REPORT).exists()


def test_a_range_that_is_none_is_refused_here_too(arguments: list[str], tmp_path: Path) -> None:
    process.main([*arguments, "--epochs=9:7"])
    assert result(tmp_path)["state"] == "refused"
    with pytest.raises(SystemExit):
        process.main([*arguments, "--last=1h", "--rev=https://evil.example/x.git"])


def interrupted(arguments: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(Auditing, "ends", RetryableError("the broker is gone"))
    process.main([*arguments, "--last=1h"])
    (folder / "runs.1").mkdir()
    monkeypatch.setattr(Auditing, "ends", example())


def test_an_attempt_of_the_same_worker_resumes(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(arguments, monkeypatch, tmp_path)
    process.main([*arguments, "--last=1h"])
    assert [one.attempt for one in Auditing.progress] == [1, 2]
    assert result(tmp_path)["state"] == "done"


@pytest.mark.parametrize("damaged", [False, True])
def test_it_begins_again_where_it_cannot_resume(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    interrupted(arguments, monkeypatch, tmp_path)
    if damaged:
        (tmp_path / FILE).write_bytes(b"?")
    process.main([*arguments, "--last=1h" if damaged else "--last=2h"])
    assert [one.attempt for one in Auditing.progress] == [1, 1]
    assert not list(tmp_path.glob("runs.*"))
    assert result(tmp_path)["state"] == "done"


_CHILD = "import sys; from perseid.replay.__main__ import _end_with; _end_with(int(sys.argv[1]))"
_PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_when_its_worker_is_killed() -> None:
    command = [sys.executable, "-c", _PARENT, _CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            assert mark(child) is not None
        finally:
            parent.kill()
    until(lambda: mark(child) is None, 60, "the end of the process")
