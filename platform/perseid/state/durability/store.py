"""The checkpoint store: a directory or an object store, for parts, manifests and job archives.

A file appears whole under its path, and is durable when `write` returns. Object stores do this by
themselves; for a local directory it is done here, because `pyarrow.fs` does not sync; other file
systems get a temporary name and a move.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.fs

from perseid.errors import DamagedFile, UsageError
from perseid.state.durability.files import (
    TEMPORARY,
    LocalFiles,
    faults,
    sync_directory,
    temporary_name,
    write_file,
)

OBJECT_STORES = ("s3", "gcs", "abfs")
DELAYED = "allow_delayed_open"  # of S3: a small object, such as a piece, is sent in one request
WRITING = "/.writing-"  # in the name of an incomplete file


class Store(Protocol):
    """Files by path, such as `archives/x.tar`. Transient faults raise RetryableError."""

    def write(self, path: str, chunks: Iterable[Any]) -> tuple[int, int]:
        """Makes or replaces a file in one step; returns its bytes and CRC-32.

        Must not show a part of it, and must not return before it is durable.
        """
        ...

    def read(self, path: str) -> memoryview:
        """The whole file. DamagedFile when it is missing."""
        ...

    def list(self, prefix: str = "") -> list[str]:
        """Paths of all files in the folder `prefix` and below, sorted; empty if there is none."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file, or a folder with its contents. No effect when it does not exist."""
        ...

    def written_ms(self, path: str = "") -> dict[str, int]:
        """When the file `path`, or each in the folder and below, was written, in ms since 1970.

        By the clock of the store; unfinished files (`is_unfinished`) are included.
        """
        ...


def open_store(uri: str) -> Store:
    """The store at `uri`: a directory (made when missing), or a URI that `pyarrow.fs` knows.

    For S3-compatible stores: `s3://bucket/folder?region=...&endpoint_override=host:port`, with
    `scheme=http` without TLS; keys come from the environment (AWS_ACCESS_KEY_ID, ...).
    """
    if "://" not in uri:
        return LocalStore(uri)
    if uri.startswith("file://"):
        return LocalStore(uri.removeprefix("file://"))
    if uri.startswith("s3://") and DELAYED not in uri:
        uri += ("&" if "?" in uri else "?") + f"{DELAYED}=true"
    try:
        filesystem, root = pa.fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, ValueError) as error:
        raise UsageError(f"the checkpoint store {uri!r} cannot be opened: {error}") from error
    return ArrowStore(filesystem, root)


class LocalStore:
    """A directory of this host, or one that all hosts mount."""

    def __init__(self, root: str | Path) -> None:
        self._root = os.path.abspath(os.path.expanduser(root))
        with faults("make directory", self._root):
            os.makedirs(self._root, exist_ok=True)

    def write(self, path: str, chunks: Iterable[Any]) -> tuple[int, int]:
        target = self._path(path)
        counted = Counted(chunks)
        with faults("write", target):
            directory, name = os.path.split(target)
            make_durable_directory(directory)
            temporary = temporary_name(directory, name)
            try:
                write_file(temporary, counted, sync=True)
                os.replace(temporary, target)
            except BaseException:
                if os.path.exists(temporary):
                    os.unlink(temporary)
                raise
            sync_directory(directory)
        return counted.bytes, counted.crc

    def read(self, path: str) -> memoryview:
        target = self._path(path)
        try:
            with faults("read", target), open(target, "rb") as file:
                return memoryview(file.read())
        except FileNotFoundError as error:
            raise missing(path, self._root) from error

    def list(self, prefix: str = "") -> list[str]:
        top = Path(self._path(prefix)) if prefix else Path(self._root)
        with faults("list", str(top)):  # `walk` ignores folders that vanish meanwhile
            walked = list(os.walk(top))
        files = [Path(folder, name) for folder, _, names in walked for name in names]
        return sorted(
            path.relative_to(self._root).as_posix() for path in files if path.name[0] != "."
        )

    def delete(self, path: str) -> None:
        LocalFiles().delete(self._path(path))

    def written_ms(self, path: str = "") -> dict[str, int]:
        top = Path(self._path(path)) if path else Path(self._root)
        with faults("list", str(top)):
            walked = [(str(top.parent), [], [top.name])] if top.is_file() else list(os.walk(top))
        found = {}
        for file in (Path(folder, name) for folder, _, names in walked for name in names):
            with faults("look at", str(file)), suppress(FileNotFoundError):
                at_ms = file.stat().st_mtime_ns // 1_000_000
                found[file.relative_to(self._root).as_posix()] = at_ms
        return found

    def _path(self, path: str) -> str:
        return os.path.join(self._root, checked(path))


class ArrowStore:
    """A store on any file system of `pyarrow.fs`."""

    def __init__(self, filesystem: pa.fs.FileSystem, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._moves = filesystem.type_name not in OBJECT_STORES

    def write(self, path: str, chunks: Iterable[Any]) -> tuple[int, int]:
        target = self._path(path)
        folder, _, name = target.rpartition("/")
        written = f"{folder}{WRITING}{name}" if self._moves else target
        counted = Counted(chunks)
        with faults("write", target):
            if self._moves:
                self._filesystem.create_dir(folder, recursive=True)
            # Closing a stream makes an object of the bytes written so far: so all that can fail
            # comes first.
            buffers = [pa.py_buffer(chunk) for chunk in counted]
            with self._filesystem.open_output_stream(written, compression=None) as stream:
                for buffer in buffers:
                    stream.write(buffer)
            if self._moves:
                self._filesystem.move(written, target)
        return counted.bytes, counted.crc

    def read(self, path: str) -> memoryview:
        target = self._path(path)
        try:
            with (
                faults("read", target),
                self._filesystem.open_input_stream(target, compression=None) as stream,
            ):
                return memoryview(stream.readall())
        except FileNotFoundError as error:
            raise missing(path, self._root) from error

    def list(self, prefix: str = "") -> list[str]:
        top = self._path(prefix) if prefix else self._root
        selector = pa.fs.FileSelector(top, recursive=True, allow_not_found=True)
        with faults("list", top):
            found = self._filesystem.get_file_info(selector)
        files = [i.path for i in found if i.type == pa.fs.FileType.File and WRITING not in i.path]
        return sorted(cast(str, path)[len(self._root) + 1 :] for path in files)

    def delete(self, path: str) -> None:
        target = self._path(path)
        with faults("delete", target):
            kind = self._filesystem.get_file_info(target).type
            if kind == pa.fs.FileType.Directory:
                self._filesystem.delete_dir(target)
            elif kind == pa.fs.FileType.File:
                self._filesystem.delete_file(target)

    def written_ms(self, path: str = "") -> dict[str, int]:
        top = self._path(path) if path else self._root
        with faults("list", top):
            found = [self._filesystem.get_file_info(top)]
            if found[0].type != pa.fs.FileType.File:
                selector = pa.fs.FileSelector(top, recursive=True, allow_not_found=True)
                found = self._filesystem.get_file_info(selector)
        files = [i for i in found if i.type == pa.fs.FileType.File]
        return {str(i.path)[len(self._root) + 1 :]: i.mtime_ns // 1_000_000 for i in files}

    def _path(self, path: str) -> str:
        return f"{self._root}/{checked(path)}"


class Counted:
    """Passes chunks on and counts their bytes and CRC-32."""

    def __init__(self, chunks: Iterable[Any]) -> None:
        self._chunks = chunks
        self.bytes = 0
        self.crc = 0

    def __iter__(self) -> Iterator[memoryview]:
        for chunk in self._chunks:
            view = memoryview(chunk).cast("B")
            self.bytes += len(view)
            self.crc = zlib.crc32(view, self.crc)
            yield view


def is_unfinished(path: str) -> bool:
    """Whether the file is unfinished: it has another name until its writer is done."""
    name = f"/{path}".rpartition("/")[2]
    return f"/{name}".startswith(WRITING) or (name[:1] == "." and name.endswith(TEMPORARY))


def checked(path: str) -> str:
    """`path`; UsageError when it would leave the store."""
    parts = path.rstrip("/").split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"{path!r} is not a path in the checkpoint store: use folder/name")
    return "/".join(parts)


def missing(path: str, root: str) -> DamagedFile:
    return DamagedFile(f"{path} is missing from the checkpoint store {root}")


def make_durable_directory(path: str) -> None:
    """Makes `path` with its parents; each new name survives a power failure."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_durable_directory(parent)
    os.makedirs(path, exist_ok=True)
    sync_directory(parent)
