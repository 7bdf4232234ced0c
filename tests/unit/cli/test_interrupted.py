"""The folder of an audit that `perseid replay` runs: it stays if the audit is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perseid.cli import interrupted, jobs, replay
from perseid.errors import PermanentError, RefusedError, RetryableError
from perseid.replay import auditing
from perseid.replay.auditing import Asked
from perseid.replay.progress import FILE, Progress
from support.audit_reports import example

ASKED = {"job": "shop", "--epochs": "1:9", "--rev": None}


class Auditing:
    """Stands where `Auditor` stands; `ends` with findings or an error."""

    ends: Any = example()
    asked: list[Asked] = []  # noqa: RUF012
    progress: list[Progress] = []  # noqa: RUF012

    def __init__(self, *arguments: Any) -> None:
        self.asked.append(arguments[4])
        self.progress.append(arguments[7])

    def audit(self) -> Any:
        if isinstance(self.ends, BaseException):
            raise self.ends
        return self.ends


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Auditing]:
    @contextmanager
    def connected(_: object) -> Iterator[Any]:
        yield SimpleNamespace(registry=None, topics=None)

    monkeypatch.setattr(jobs, "connected", connected)
    monkeypatch.setattr(replay, "become_a_worker", lambda: None)
    monkeypatch.setattr("perseid.embedded.deployment", lambda _: None)
    monkeypatch.setattr(auditing, "Auditor", Auditing)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Auditing, "asked", [])
    monkeypatch.setattr(Auditing, "progress", [])
    return Auditing


Run = Callable[..., Any]


def test_a_temporary_folder_is_named_and_deleted_at_the_end(
    audits: type[Auditing], run: Run, tmp_path: Path
) -> None:
    shown = run("replay", "shop", "--epochs", "1:9", code=1)
    (asked,) = audits.asked
    assert f"if it is interrupted, `perseid replay shop --resume {asked.folder}` resumes" in shown
    assert asked.folder.parent == tmp_path
    assert not asked.folder.exists()


@pytest.mark.parametrize(
    ("error", "code"), [(RetryableError("the broker is gone"), 1), (KeyboardInterrupt(), 130)]
)
def test_an_interrupted_audit_resumes_with_its_options(
    audits: type[Auditing], run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException,
    code: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(audits, "ends", error)
    given = [
        "--last",
        "1h",
        "--rev",
        "a@b",
        "--tolerance",
        "n=ulp:4",
        "--mixed",
        "out",
        "--no-sink",
    ]
    shown = run("replay", "shop", *given, "--rate", "70", code=code)
    (first,) = audits.asked
    command = f"perseid replay shop --resume {first.folder}"
    assert f"the audit was interrupted: `{command}` resumes it" in shown
    monkeypatch.setattr(audits, "ends", example())
    run(*command.split()[1:], code=1)
    second = audits.asked[1]
    assert (second.request, second.revision, second.tolerances, second.mixed, second.sinks) == (
        first.request, "a@b", first.tolerances, frozenset({"out"}), False
    )  # fmt: skip
    assert (second.folder, second.rate) == (first.folder, None)
    assert [one.attempt for one in audits.progress] == [1, 1]
    assert not first.folder.exists()


def test_other_options_are_refused_and_nothing_is_lost(
    audits: type[Auditing], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "mine")
    monkeypatch.setattr(audits, "ends", RetryableError("the broker is gone"))
    run("replay", "shop", "--epochs", "1:9", "--folder", folder, code=1)
    for words, text in [
        (("shop", "--epochs", "1:8"), "with --epochs '1:9', and --epochs '1:8' is given"),
        (("orders",), "with job 'shop', and job 'orders' is given"),
        (("shop", "--sample", "1/2"), "with --sample not given, and --sample '1/2' is given"),
        (("shop", "--rev", "x"), "with --rev not given, and --rev 'x' is given"),
    ]:
        assert text in run("replay", *words, "--resume", folder, code=3)
    assert "resume it" in run("replay", "shop", "--epochs", "1:9", "--folder", folder, code=3)
    assert len(audits.asked) == 1
    monkeypatch.setattr(audits, "ends", example())
    run("replay", "shop", "--epochs", "1:9", "--resume", folder, code=1)
    assert len(audits.asked) == 2
    assert not (tmp_path / "mine" / FILE).exists()
    assert "has no audit that was interrupted" in run(
        "replay", "shop", "--resume", folder, code=3
    )  # fmt: skip


@pytest.mark.parametrize("others", [("--folder", "x"), ("--dry-run",)])
def test_resume_is_of_an_audit_that_runs(run: Run, others: tuple[str, ...]) -> None:
    shown = run("replay", "shop", "--resume", "f", *others, code=2)
    assert "leave out --folder and --dry-run" in shown


def test_a_worker_resumes_no_folder_of_this_command(run: Run) -> None:
    shown = run("replay", "shop", "--last", "1h", "--on-worker", "--resume", "f", code=2)
    assert "--resume" in shown


def test_what_cannot_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PermanentError), interrupted.kept(ASKED, tmp_path / "mine", None):
        raise PermanentError("its code is wrong")
    assert not (tmp_path / "mine" / FILE).exists()


def test_an_interrupted_audit_that_is_refused_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Progress.begun(tmp_path, ASKED | {interrupted.TEMPORARY: False}).close()
    with pytest.raises(RefusedError), interrupted.kept(ASKED, None, tmp_path):
        raise RefusedError("its environment has changed")
    assert (tmp_path / FILE).exists()
    assert f"--resume {tmp_path}" in capsys.readouterr().err
