"""`--resume FILE` runs what has not passed yet, on the commit that the file is of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.resuming import open_for

TESTS_FOLDER = Path(__file__).parents[2]  # where `support` is
TESTS = """
import os
def test_good(): pass
def test_other(): assert "BROKEN" not in os.environ
"""


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *own, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    git(folder, "init")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "tests")
    return folder


def run(checkout: Path, kept: Path, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.resuming",
               "-p", "no:schemathesis", f"--resume={kept}"]  # fmt: skip
    ran = subprocess.run(
        command, check=False, cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(TESTS_FOLDER), **environment},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


def test_what_has_passed_is_left_out_and_what_failed_runs_again(
    checkout: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "passed"
    code, shown = run(checkout, kept, BROKEN="1")
    assert code == 1, shown
    assert kept.read_text().splitlines()[1:] == ["test_it.py::test_good"]
    code, shown = run(checkout, kept)
    assert (code, "1 passed, 1 deselected" in shown) == (0, True), shown
    code, shown = run(checkout, kept)
    assert (code, "2 deselected" in shown) == (5, True), shown


def test_changed_files_are_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / "test_it.py").write_text(TESTS + "# changed\n")
    code, shown = run(checkout, tmp_path / "passed")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "uncommitted changes" in shown
    assert not (tmp_path / "passed").exists()


def test_a_file_of_another_commit_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "passed"
    open_for(kept, "a" * 40)
    open_for(kept, "a" * 40)
    with pytest.raises(pytest.UsageError, match="is of commit aaaaaaaaaaaa, this is bbbbbbbbbbbb"):
        open_for(kept, "b" * 40)
