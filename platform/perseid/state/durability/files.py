"""Files as a port: the few operations on which the state log's guarantees rest.

A new file appears whole or not at all and never replaces another; a directory is renamed in one
step, after which every use of the old name fails. `LocalFiles` is the adapter for a local file
system; `perseid.testing.files` has a fake that crashes at a given point.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable
from mmap import ACCESS_READ, mmap
from typing import Any, Protocol

from perseid.errors import RetryableError

TEMPORARY = ".tmp"
DELETE_TRIES = 4  # of a folder into which other processes write
MAPPED_BYTES = 1 << 20  # reading a smaller file takes less time than mapping it


class Files(Protocol):
    """A file system. Faults other than those named raise RetryableError with the path."""

    def list(self, directory: str) -> list[str]:
        """Names in `directory`, sorted, temporary files too.

        FileNotFoundError when it does not exist.
        """
        ...

    def read(self, path: str) -> bytes | memoryview:
        """The whole file. FileNotFoundError when it does not exist."""
        ...

    def size(self, path: str) -> int:
        """Bytes of the file. FileNotFoundError when it does not exist."""
        ...

    def write_new(self, path: str, chunks: Iterable[Any]) -> bool:
        """Makes a file of the chunks; False, and nothing changed, when `path` exists.

        Must not show a part of the file under `path`, and must not make the directory:
        FileNotFoundError when that does not exist.
        """
        ...

    def link(self, source: str, target: str) -> bool:
        """Gives a file a second name; False, and nothing changed, when `target` exists.

        Each name is deleted or renamed without effect on the other. FileNotFoundError when `source`
        or the directory of `target` does not exist.
        """
        ...

    def rename(self, source: str, target: str) -> bool:
        """Renames a file or directory in one step.

        False, and nothing changed, when `source` or the directory of `target` does not exist, or
        `target` is a non-empty directory. Makes no directory: that would return a fenced owner its
        directory.
        """
        ...

    def delete(self, path: str) -> None:
        """Removes a file, or a directory with its contents. No effect when it does not exist."""
        ...

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        """Makes a directory unless it exists. FileNotFoundError when its parent is missing."""
        ...


class LocalFiles:
    """Files of this host.

    `sync`: each change is on the disk before the call returns, so it survives a power failure.
    State logs do not use it: they are in memory by default, the death of a process loses nothing
    that was written, and after a power failure damaged files are found by their CRC and computed
    again. The checkpoint store uses it.
    `mapped`: large files are mapped, without a copy in memory. If the disk cannot read a page, the
    process dies, so use it only in a process that may die.
    """

    def __init__(self, *, sync: bool = False, mapped: bool = False) -> None:
        self._sync, self._mapped = sync, mapped

    def list(self, directory: str) -> list[str]:
        with faults("list", directory):
            try:
                return sorted(os.listdir(directory))
            except NotADirectoryError as error:
                raise FileNotFoundError(directory) from error

    def read(self, path: str) -> bytes | memoryview:
        with faults("read", path), open(path, "rb") as file:
            if self._mapped and os.fstat(file.fileno()).st_size >= MAPPED_BYTES:
                return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            return file.read()

    def size(self, path: str) -> int:
        with faults("look at", path):
            return os.stat(path).st_size

    def write_new(self, path: str, chunks: Iterable[Any]) -> bool:
        # 1. Write a file of another name in the same directory. 2. Give it the name by `link`,
        #    which, unlike rename, fails when the name exists. 3. Remove the other name.
        directory, name = os.path.split(path)
        temporary = temporary_name(directory, name)
        with faults("write", path):
            try:
                write_file(temporary, chunks, sync=self._sync)
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            if self._sync:
                sync_directory(directory)
        return True

    def link(self, source: str, target: str) -> bool:
        with faults("link", target):
            try:
                os.link(source, target)
            except FileExistsError:
                return False
            if self._sync:
                sync_directory(os.path.dirname(target))
        return True

    def rename(self, source: str, target: str) -> bool:
        with faults("rename", source):
            try:
                os.rename(source, target)
            except FileNotFoundError:
                return False
            except OSError:
                if os.path.isdir(target):
                    return False
                raise
            if self._sync:
                sync_directory(os.path.dirname(target))
        return True

    def delete(self, path: str) -> None:
        with faults("delete", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):
                if not os.path.isdir(path):
                    raise
                _delete_folder(path)

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        with faults("make directory", path):
            if parents:
                os.makedirs(path, exist_ok=True)
                return
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)


def _delete_folder(path: str) -> None:
    """Deletes a folder with its contents.

    Retried, since a late checkpoint part may still be written.
    """
    for _ in range(DELETE_TRIES - 1):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def temporary_name(directory: str, name: str) -> str:
    """A name next to `name` that no other process or thread uses."""
    return os.path.join(directory, f".{name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")


def write_file(path: str, chunks: Iterable[Any], *, sync: bool, mode: int = 0o644) -> None:
    """Writes a file that must not exist. A failed fsync is never repeated: the file is void.

    With `sync` the file leaves the page cache: it is read only after a crash, and would displace
    data of Kafka and the epochs.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        if sync:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sync_directory(path: str) -> None:
    """Makes new names in `path` survive a power failure."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class faults:
    """Turns errors of a file system, except a missing file, into RetryableError."""

    __slots__ = ("_path", "_what")

    def __init__(self, what: str, path: str) -> None:
        self._what, self._path = what, path

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise RetryableError(
                f"cannot {self._what} {self._path}: {error.strerror or error}; look at the space "
                "and health of that volume; the work continues when it can be written again"
            ) from error
