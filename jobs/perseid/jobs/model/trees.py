"""A job's files as one value, its deterministic archive, and the archives in the store.

The same files always give the same bytes and so the same SHA-256. Hidden files and bytecode are no
part of a job; symbolic links and special files are refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perseid.errors import BadInputError, DamagedFile, RetryableError
from perseid.state.durability.files import faults

JOB_FILE = "job.yaml"
FILE_BYTES_MAX = 4 << 20  # code and schemas; data belongs in topics
TREE_BYTES_MAX = 16 << 20  # each worker process that runs the revision reads it as a whole
FILES_MAX = 1000
_PART = re.compile(r"^[^\x00-\x1f\x7f/\\.][^\x00-\x1f\x7f/\\]{0,199}\Z")
_SHA = re.compile(r"^[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class JobTree:
    """The files of one job folder.

    `name` is the folder's, for messages; `revision` a commit id or, for a directory, "dir-" and the
    first digits of the archive's hash.
    """

    name: str
    files: Mapping[str, bytes]
    revision: str


class ArchiveReader(Protocol):
    """Where archives are read."""

    def read(self, path: str, /) -> Any: ...


class ArchiveStore(ArchiveReader, Protocol):
    """What archives need of the checkpoint store; `write` must be atomic."""

    def write(self, path: str, chunks: Iterable[Any]) -> Any: ...


def kept(path: str) -> bool:
    """Whether a file of a folder or commit is part of a job."""
    parts = path.split("/")
    return not any(p.startswith(".") or p == "__pycache__" for p in parts) and not path.endswith(
        (".pyc", ".pyo")
    )


def check_files(name: str, files: Mapping[str, bytes]) -> None:
    """Raises BadInputError for too many or too large files, and for unsuitable names."""
    if len(files) > FILES_MAX:
        raise BadInputError(f"{name}: has {len(files)} files, expected {FILES_MAX} at most")
    for path, content in files.items():
        if not all(_PART.match(part) for part in path.split("/")):
            raise BadInputError(f"{name}: the file name {path[:80]!r} is not accepted; rename it")
        if len(content) > FILE_BYTES_MAX:
            raise BadInputError(
                f"{name}/{path}: has {len(content)} bytes, expected {FILE_BYTES_MAX} at most; "
                "data belongs in a topic"
            )
    total = sum(map(len, files.values()))
    if total > TREE_BYTES_MAX:
        raise BadInputError(f"{name}: has {total} bytes, expected {TREE_BYTES_MAX} at most")


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files of a job folder by path. Links and special files are refused."""
    found: dict[str, bytes] = {}
    for root, folders, names in os.walk(folder, followlinks=False):
        inner = Path(root).relative_to(folder)
        folders[:] = sorted(f for f in folders if kept(f))
        for name in sorted([*names, *(f for f in folders if Path(root, f).is_symlink())]):
            path = (inner / name).as_posix()
            if not kept(path):
                continue
            info = os.lstat(Path(root, name))
            if not stat.S_ISREG(info.st_mode):
                kind = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "no regular file"
                raise BadInputError(f"{folder.name}/{path}: is {kind}; put the file itself there")
            if info.st_size > FILE_BYTES_MAX or len(found) >= FILES_MAX:
                raise BadInputError(
                    f"{folder.name}/{path}: a job has at most {FILES_MAX} files of at most "
                    f"{FILE_BYTES_MAX} bytes; data belongs in a topic"
                )
            found[path] = Path(root, name).read_bytes()
    check_files(folder.name, found)
    return found


def folder_tree(folder: Path, name: str) -> JobTree:
    """A job folder as it is now."""
    files = read_folder(folder)
    return JobTree(name, files, f"dir-{sha256(archive(files))[:12]}")


def archive(files: Mapping[str, bytes]) -> bytes:
    """The tar file of a job: sorted, without times, owners or permissions."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(files[path]), 0o644
            tar.addfile(member, io.BytesIO(files[path]))
    return out.getvalue()


def unarchive(content: bytes) -> dict[str, bytes]:
    """The files of an archive; DamagedFile when `archive` did not make it."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isreg() else None
                if data is None:
                    raise DamagedFile(f"archive member {member.name[:80]!r} is no regular file")
                found[member.name] = data.read()
        check_files("archive", found)
    except (tarfile.TarError, BadInputError, ValueError, EOFError) as error:
        raise DamagedFile(f"not an archive of a job: {error}") from None
    return found


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes a job's files into `folder`, which must not be the user's."""
    check_files(folder.name, files)
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


ARCHIVES = "archives"  # their folder in the checkpoint store


def archive_path(sha: str) -> str:
    if not _SHA.match(sha):
        raise BadInputError(f"archive {sha[:80]!r}: expected 64 hexadecimal digits")
    return f"{ARCHIVES}/{sha}.tar"


def store_archive(store: ArchiveStore, tree: JobTree) -> str:
    """Puts the tree into the store and returns its SHA-256; a damaged archive is replaced."""
    content = archive(tree.files)
    sha = sha256(content)
    store.write(archive_path(sha), [content])
    return sha


def open_archive(store_uri: str, sha: str, cache: Path) -> Path:
    """The folder of the job with this hash below `cache`; fetched and checked when needed.

    Raises DamagedFile when the store's file does not have the hash. A cached folder that no longer
    has it is replaced.
    """
    from perseid.state.durability.store import open_store

    return fetch_archive(open_store(store_uri), sha, cache)


def fetch_archive(store: ArchiveReader, sha: str, cache: Path) -> Path:
    """The same from an open store."""
    path, folder = archive_path(sha), cache / sha
    if _intact(folder, sha):
        return folder
    content = bytes(store.read(path))
    if sha256(content) != sha:
        raise DamagedFile(
            f"{path} in the checkpoint store has SHA-256 {sha256(content)}, expected {sha}; "
            "apply the job again to write it again"
        )
    with faults("make directories in", str(cache)):
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache))
    try:
        unpack(unarchive(content), fresh)
        if folder.exists() and not _intact(folder, sha):
            folder.rename(fresh.with_name(f"{fresh.name}-damaged"))
        fresh.rename(folder)
    except OSError as error:
        # Another process was faster: renaming onto its folder, which is not empty, fails.
        if not _intact(folder, sha):
            raise RetryableError(f"cannot unpack {path} into {folder}: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(fresh.with_name(f"{fresh.name}-damaged"), ignore_errors=True)
    return folder


def _intact(folder: Path, sha: str) -> bool:
    try:
        return folder.is_dir() and sha256(archive(read_folder(folder))) == sha
    except (OSError, BadInputError):
        return False


def inside(folder: Path, name: str) -> Path | None:
    """The regular file `name` in `folder`, or None; symlinks and their targets are refused."""
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return None
    return path if path.resolve().is_relative_to(folder.resolve()) else None
