"""Log files are emptied after a copy while their process writes, and few copies are kept."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.embedded.rotation import OLD_FILES, old, rotate
from perseid.testing.wait import until


def test_a_log_that_is_too_large_is_emptied_after_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"
    assert not rotate(path, 10)  # nothing has been written yet
    path.write_bytes(b"0123456789")
    assert not rotate(path, 10)
    for letter in b"abcdef":
        path.write_bytes(bytes([letter]) * 11)
        assert rotate(path, 10)
        assert path.read_bytes() == b""
    kept = [old(path, number).read_bytes() for number in range(1, OLD_FILES + 1)]
    assert kept == [b"f" * 10, b"e" * 10, b"d" * 10]
    assert len(list(tmp_path.iterdir())) == 1 + OLD_FILES


def test_a_process_continues_writing_at_the_new_end(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"
    code = "import sys\nfor line in sys.stdin: print('w' * 50, line, end='', flush=True)"
    with path.open("ab") as log, subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=log, text=True
    ) as writer:  # fmt: skip
        assert writer.stdin is not None
        for number in range(20):
            writer.stdin.write(f"{number}\n")
            writer.stdin.flush()
            until(lambda n=number: f" {n}\n" in path.read_text(), 20, "the line")  # type: ignore[misc]
            rotate(path, 200)
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 1 + OLD_FILES
    assert max(sizes) < 300
    assert b"\0" not in path.read_bytes()
    whole = "".join(f.read_text() for f in (old(path, 1), path))
    assert whole.endswith(f"{'w' * 50} 19\n")


def test_a_full_disk_ends_no_supervisor_and_costs_no_more_than_the_oldest_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w1.log"
    for letter in b"abc":
        path.write_bytes(bytes([letter]) * 10)
        assert rotate(path, 5)
    path.write_bytes(b"d" * 10)

    def full(_: object, target: object) -> None:
        target.write(b"dd")  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)
        assert [rotate(path, 5) for _ in range(4)] == [False] * 4
    assert path.read_bytes() == b"d" * 10
    assert rotate(path, 5)
    kept = [old(path, number).read_bytes() for number in range(1, OLD_FILES + 1)]
    assert kept == [b"d" * 5, b"c" * 5, b"b" * 5]
