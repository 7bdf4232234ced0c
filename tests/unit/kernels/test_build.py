"""What compiles the kernels, what it does without a compiler, and that a stale library is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.errors import PermanentError
from perseid.kernels import build, library


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that no library is of yet."""
    for path in (build.FOLDER / "kernels.h", *build.sources()):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    return tmp_path


def test_it_is_built_once_and_again_when_a_source_changes(folder: Path) -> None:
    first = build.build()
    written_ns = first.stat().st_mtime_ns
    assert build.build() == first
    assert first.stat().st_mtime_ns == written_ns
    (folder / "folds.c").write_text((folder / "folds.c").read_text() + "/* changed */\n")
    second = build.build()
    assert second != first
    assert sorted(folder.glob("*.so")) == [second]


def test_without_a_compiler_it_names_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_compilers", lambda: iter([["false"], ["no-such-compiler"]]))
    with pytest.raises(build.BuildError, match=r"need a C compiler once .*gcc.*ziglang") as caught:
        build.build()
    assert "false: exit code 1" in str(caught.value)
    assert "no-such-compiler" in str(caught.value)
    assert list(folder.glob("*.so")) == []


def test_a_library_that_is_not_compiled_is_an_error_with_the_command(folder: Path) -> None:
    with pytest.raises(PermanentError, match=r"python -m perseid\.kernels\.build"):
        library.kernels.__wrapped__()
    assert list(folder.glob("*.so")) == []


def test_it_runs_before_perseid_is_installed(folder: Path) -> None:
    shutil.copy(Path(str(build.__file__)), folder)
    command = [sys.executable, "-I", "-S", str(folder / "build.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Path(ran.stdout.strip()).parent == folder
    assert Path(ran.stdout.strip()).is_file()
