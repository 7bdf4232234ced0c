"""The checkpoint store: fake, local directory, `pyarrow.fs` and S3 keep the same contract."""

from __future__ import annotations

import itertools
import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

from perseid.errors import DamagedFile, RetryableError, UsageError
from perseid.state.durability.store import ArrowStore, LocalStore, Store, is_unfinished, open_store
from perseid.testing.store import MemoryStore


@pytest.fixture(scope="module")
def s3_uri() -> Iterator[Callable[[], str]]:
    """URIs of new buckets of an S3 server, which speaks HTTP as the real one does."""
    names = (f"bucket-{number}" for number in itertools.count(1))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()

    def bucket() -> str:
        name = next(names)
        made = httpx.put(f"http://{host}:{port}/{name}", trust_env=False)
        assert made.status_code == httpx.codes.OK, made.text
        return f"s3://{name}/root?region=us-east-1&scheme=http&endpoint_override={host}:{port}"

    yield bucket
    server.stop()


@pytest.fixture(params=["memory", "local", "arrow", "arrow-objects", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "s3":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        return open_store(request.getfixturevalue("s3_uri")())
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    if request.param == "arrow":
        return ArrowStore(pafs.LocalFileSystem(), f"{tmp_path}/arrow/")
    filesystem = pafs._MockFileSystem()
    filesystem.create_dir("bucket/root")
    return ArrowStore(filesystem, "bucket/root")


def test_a_file_is_read_back_and_counted(store: Store) -> None:
    chunks = [b"one", memoryview(b"two"), b""]
    assert store.write("jobs/a/x.part", chunks) == (6, zlib.crc32(b"onetwo"))
    assert bytes(store.read("jobs/a/x.part")) == b"onetwo"


def test_a_file_is_replaced_whole(store: Store) -> None:
    store.write("a/x", [b"a longer first one"])
    store.write("a/x", [b"second"])
    assert bytes(store.read("a/x")) == b"second"
    assert store.list() == ["a/x"]


def test_list_goes_down_from_a_folder(store: Store) -> None:
    for path in ("jobs/a/1/x", "jobs/a/2/y", "jobs/ab/z", "top"):
        store.write(path, [b"1"])
    assert store.list() == ["jobs/a/1/x", "jobs/a/2/y", "jobs/ab/z", "top"]
    assert store.list("jobs/a") == ["jobs/a/1/x", "jobs/a/2/y"]
    assert store.list("jobs/a/") == ["jobs/a/1/x", "jobs/a/2/y"]
    assert store.list("nothing/here") == []


def test_delete_takes_files_and_folders(store: Store) -> None:
    for path in ("jobs/a/1/x", "jobs/a/2/y", "jobs/ab/z"):
        store.write(path, [b"1"])
    store.delete("jobs/a/1/x")
    assert store.list() == ["jobs/a/2/y", "jobs/ab/z"]
    store.delete("jobs/a")
    store.delete("jobs/a")
    store.delete("gone/file")
    assert store.list() == ["jobs/ab/z"]


def test_a_missing_file_is_named(store: Store) -> None:
    with pytest.raises(DamagedFile, match=r"a/b\.part is missing from the checkpoint store"):
        store.read("a/b.part")


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", "./a"])
def test_paths_stay_inside(store: Store, path: str) -> None:
    for call in (store.read, store.delete, lambda p: store.write(p, [b""])):
        with pytest.raises(UsageError, match="not a path in the checkpoint store"):
            call(path)


def test_nothing_shows_until_all_is_written(store: Store) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"part"
        assert store.list() == []
        with pytest.raises(DamagedFile):
            store.read("d/x")
        raise KeyError("no more")

    with pytest.raises(KeyError):
        store.write("d/x", chunks())
    assert store.list() == []


def test_local_files_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, done = LocalStore(tmp_path), list[str]()
    fsync, replace = os.fsync, os.replace

    def seen_fsync(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def seen_replace(source: str, target: str) -> None:
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    store.write("d/e/x", [b"1"])
    renamed = done.index("replace")
    assert done[renamed - 1].startswith(f"{tmp_path}/d/e/.x.")
    assert done[renamed + 1 :] == [f"{tmp_path}/d/e"]
    assert done[: renamed - 1] == [str(tmp_path), f"{tmp_path}/d"]


def test_a_full_disk_is_transient_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.write("d/x", [b"old"])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RetryableError, match=r"d/x: No space left on device"):
            store.write("d/x", [b"new"])
    assert os.listdir(tmp_path / "d") == ["x"]
    assert bytes(store.read("d/x")) == b"old"
    store.write("d/x", [b"new"])
    assert bytes(store.read("d/x")) == b"new"


def test_open_store_takes_directories_and_uris(tmp_path: Path) -> None:
    open_store(str(tmp_path / "a")).write("x", [b"1"])
    assert bytes(open_store(f"file://{tmp_path}/a").read("x")) == b"1"
    with pytest.raises(UsageError, match="cannot be opened"):
        open_store("nosuch://bucket/x")


def test_it_knows_when_files_were_written(store: Store) -> None:
    store.write("archives/a.tar", [b"a"])
    store.write("jobs/b/c/d.part", [b"d"])
    found = store.written_ms()
    assert sorted(found) == ["archives/a.tar", "jobs/b/c/d.part"]
    assert store.written_ms("jobs") == {"jobs/b/c/d.part": found["jobs/b/c/d.part"]}
    assert store.written_ms("archives/a.tar") == {"archives/a.tar": found["archives/a.tar"]}
    assert store.written_ms("archives/b.tar") == {}
    if not isinstance(store, MemoryStore) and "Mock" not in repr(store):
        written = [ms for ms in found.values() if ms > 0]
        assert all(abs(ms - time.time_ns() // 1_000_000) < 60_000 for ms in written)


def test_files_of_writers_that_were_killed_are_reported_and_can_be_deleted(tmp_path: Path) -> None:
    local, arrow = LocalStore(tmp_path / "l"), ArrowStore(pafs.LocalFileSystem(), f"{tmp_path}/a")
    names: dict[Store, str] = {local: ".x.part.17-abcd.tmp", arrow: ".writing-x.part"}
    for store, name in names.items():
        store.write("jobs/b/c/y.part", [b"y"])
        folder = tmp_path / ("l" if store is local else "a") / "jobs/b/c"
        (folder / name).write_bytes(b"half")
        assert store.list() == ["jobs/b/c/y.part"]
        unfinished = [path for path in store.written_ms() if is_unfinished(path)]
        assert unfinished == [f"jobs/b/c/{name}"]
        store.delete(unfinished[0])
        assert list(store.written_ms()) == ["jobs/b/c/y.part"]
