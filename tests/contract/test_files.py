"""The file port: the fake and this host's files keep the same contract."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perseid.errors import RetryableError
from perseid.state.durability import files as state_files
from perseid.state.durability.files import Files, LocalFiles
from perseid.testing.files import MemoryFiles


@pytest.fixture(params=["memory", "memory-sync", "local", "local-sync", "mapped"])
def files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Files:
    kind, _, sync = request.param.partition("-")
    if kind == "mapped":
        monkeypatch.setattr(state_files, "MAPPED_BYTES", 1)
        return LocalFiles(mapped=True)
    if kind == "memory":
        return MemoryFiles(sync=bool(sync))
    return LocalFiles(sync=bool(sync))


@pytest.fixture
def top(files: Files, tmp_path: Path) -> str:
    path = f"{tmp_path}/top"
    files.make_directory(path, parents=True)
    return path


def test_a_new_file_is_read_back(files: Files, top: str) -> None:
    assert files.write_new(f"{top}/a", [b"one", memoryview(b"two"), bytearray(b"")])
    assert files.read(f"{top}/a") == b"onetwo"
    assert files.write_new(f"{top}/b", [])
    assert files.list(top) == ["a", "b"]


def test_write_new_never_replaces(files: Files, top: str) -> None:
    files.write_new(f"{top}/a", [b"first"])
    assert not files.write_new(f"{top}/a", [b"second"])
    files.make_directory(f"{top}/d")
    assert not files.write_new(f"{top}/d", [b"second"])
    assert files.read(f"{top}/a") == b"first"
    assert files.list(top) == ["a", "d"]


def test_write_new_makes_no_directory(files: Files, top: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.write_new(f"{top}/gone/a", [b"x"])
    assert files.list(top) == []


def test_a_writer_that_fails_leaves_nothing(files: Files, top: str) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"part"
        assert len(files.list(top)) == 1  # the temporary file
        assert "a" not in files.list(top)
        raise KeyError("no more")

    with pytest.raises(KeyError):
        files.write_new(f"{top}/a", chunks())
    assert files.list(top) == []


def test_missing_files(files: Files, top: str) -> None:
    files.write_new(f"{top}/a", [b"x"])
    for path in (f"{top}/gone", f"{top}/a"):
        with pytest.raises(FileNotFoundError):
            files.list(path)
    with pytest.raises(FileNotFoundError):
        files.read(f"{top}/gone")
    files.delete(f"{top}/gone")
    assert not files.rename(f"{top}/gone", f"{top}/b")


def test_directories(files: Files, top: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.make_directory(f"{top}/x/y")
    files.make_directory(f"{top}/x/y/z", parents=True)
    files.make_directory(f"{top}/x/y")
    files.write_new(f"{top}/x/y/a", [b"1"])
    assert files.list(f"{top}/x") == ["y"]
    assert files.list(f"{top}/x/y") == ["a", "z"]
    files.delete(f"{top}/x")
    assert files.list(top) == []
    with pytest.raises(FileNotFoundError):
        files.list(f"{top}/x/y")


def test_a_renamed_directory_moves_whole_and_fences_its_old_name(files: Files, top: str) -> None:
    files.make_directory(f"{top}/old/log", parents=True)
    files.write_new(f"{top}/old/log/a", [b"1"])
    assert files.rename(f"{top}/old", f"{top}/new")
    assert files.read(f"{top}/new/log/a") == b"1"
    assert files.list(top) == ["new"]
    with pytest.raises(FileNotFoundError):
        files.write_new(f"{top}/old/log/b", [b"2"])
    with pytest.raises(FileNotFoundError):
        files.make_directory(f"{top}/old/log")
    assert not files.rename(f"{top}/old", f"{top}/other")


def test_rename_makes_no_directory(files: Files, top: str) -> None:
    """It would give a fenced owner its own back."""
    files.write_new(f"{top}/a", [b"1"])
    assert not files.rename(f"{top}/a", f"{top}/gone/b")
    assert not files.rename(f"{top}/gone/a", f"{top}/gone/b")
    assert files.list(top) == ["a"]


def test_rename_does_not_replace_a_directory_in_use(files: Files, top: str) -> None:
    for name in ("one", "two", "empty"):
        files.make_directory(f"{top}/{name}")
    files.write_new(f"{top}/one/a", [b"1"])
    files.write_new(f"{top}/two/a", [b"2"])
    assert not files.rename(f"{top}/one", f"{top}/two")
    assert not files.rename(f"{top}/one/a", f"{top}/two")
    assert files.read(f"{top}/two/a") == b"2"
    assert files.rename(f"{top}/one", f"{top}/empty")
    assert files.read(f"{top}/empty/a") == b"1"


def test_files_are_renamed_too(files: Files, top: str) -> None:
    files.write_new(f"{top}/a", [b"1"])
    assert files.rename(f"{top}/a", f"{top}/a.damaged")
    assert files.list(top) == ["a.damaged"]


def test_a_link_is_a_second_name_of_one_file(files: Files, top: str) -> None:
    files.make_directory(f"{top}/branch")
    files.write_new(f"{top}/a", [b"one"])
    assert files.link(f"{top}/a", f"{top}/branch/a")
    assert (files.read(f"{top}/branch/a"), files.size(f"{top}/branch/a")) == (b"one", 3)
    files.delete(f"{top}/a")
    files.write_new(f"{top}/a", [b"two"])
    assert files.read(f"{top}/branch/a") == b"one"
    assert files.rename(f"{top}/branch", f"{top}/other")
    assert files.link(f"{top}/other/a", f"{top}/other/b")
    files.delete(f"{top}/other/a")
    assert (files.list(f"{top}/other"), files.read(f"{top}/other/b")) == (["b"], b"one")


def test_a_link_never_replaces_and_makes_no_directory(files: Files, top: str) -> None:
    files.write_new(f"{top}/a", [b"one"])
    files.write_new(f"{top}/b", [b"two"])
    files.make_directory(f"{top}/d")
    assert not files.link(f"{top}/a", f"{top}/b")
    assert not files.link(f"{top}/a", f"{top}/d")
    for source, target in (("gone", "c"), ("a", "gone/c")):
        with pytest.raises(FileNotFoundError):
            files.link(f"{top}/{source}", f"{top}/{target}")
    assert (files.read(f"{top}/b"), files.list(top)) == (b"two", ["a", "b", "d"])


def test_what_was_read_outlives_the_file(files: Files, top: str) -> None:
    files.write_new(f"{top}/a", [b"one" * 1000])
    found = files.read(f"{top}/a")
    files.delete(f"{top}/a")
    files.write_new(f"{top}/a", [b"two"])
    assert found == b"one" * 1000


def test_of_many_writers_one_wins(tmp_path: Path) -> None:
    files, start = LocalFiles(), threading.Barrier(8)
    won: list[int] = []

    def write(number: int) -> None:
        start.wait()
        if files.write_new(f"{tmp_path}/a", [b"%d" % number] * 1000):
            won.append(number)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(won) == 1
    assert files.read(f"{tmp_path}/a") == b"%d" % won[0] * 1000
    assert files.list(str(tmp_path)) == ["a"]


def test_a_directory_that_cannot_be_listed_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RetryableError, match=r"cannot list .*/loop: Too many levels of symbolic"):
        LocalFiles().list(f"{tmp_path}/loop")


def test_a_failed_fsync_voids_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RetryableError, match=r"cannot write .*/a: Input/output error"):
        LocalFiles(sync=True).write_new(f"{tmp_path}/a", [b"x"])
    assert len(calls) == 1
    assert os.listdir(tmp_path) == []


_WRITES_SHORT = """
import resource, signal, sys
from perseid.errors import RetryableError
from perseid.state.durability.files import LocalFiles

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that the kernel writes a part, and then fails
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
chunks = [b"x" * 60_000] * 3  # the second is written in part
try:
    LocalFiles(sync=sys.argv[2] == "sync").write_new(f"{sys.argv[1]}/a", chunks)
except RetryableError as error:
    print(error)
"""


@pytest.mark.parametrize("sync", ["sync", "no-sync"])
def test_a_file_that_is_written_in_part_is_none(tmp_path: Path, sync: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WRITES_SHORT, str(tmp_path), sync],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "cannot write" in ran.stdout
    assert "File too large" in ran.stdout
    assert os.listdir(tmp_path) == []


def test_a_folder_goes_in_which_a_file_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`jobs remove --purge`, while a worker that is asked to end still writes a part of it."""
    folder, writes = tmp_path / "job", iter(["part-1", "part-2"])
    remove_one = os.rmdir

    def rmdir(path: Any, **given: Any) -> None:
        if (name := next(writes, None)) is not None:
            (folder / name).write_bytes(b"late")
        remove_one(path, **given)

    folder.mkdir()
    (folder / "part-0").write_bytes(b"0")
    monkeypatch.setattr(os, "rmdir", rmdir)
    LocalFiles().delete(str(folder))
    assert not folder.exists() and next(writes, None) is None


def test_a_folder_that_cannot_be_deleted_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rmdir(path: Any, **_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    (tmp_path / "job").mkdir()
    monkeypatch.setattr(os, "rmdir", rmdir)
    with pytest.raises(RetryableError, match=r"cannot delete .*job: Input/output error"):
        LocalFiles().delete(str(tmp_path / "job"))
