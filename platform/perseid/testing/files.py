"""Files in memory that crash at a step a test chooses, and lose what a power failure loses.

Every change is made in steps (create the temporary file, write a chunk, sync, link, remove the
temporary name, ...). `crash_at(n)` kills the process at the n-th step from now: of a write, half
the chunk is done; of any other step, nothing. All calls fail until `restart`. `restart(lost=rng)`
is a power failure: unsynced files are missing, truncated, zeroed or whole at random, and unsynced
removals may be undone. Renames of directories count as durable.
"""

from __future__ import annotations

import errno
import os
import random
from bisect import insort
from collections.abc import Iterable
from itertools import count
from typing import Any

from perseid.state.durability.files import TEMPORARY, faults


class Crashed(BaseException):
    """The process died here. Not an Exception: only the test may handle it."""


class MemoryFiles:
    """The fake of `perseid.state.durability.files.Files`."""

    def __init__(self, *, sync: bool = False) -> None:
        self._sync = sync
        self._directories: set[str] = set()
        self._listed: dict[str, list[str]] = {}  # cached answers of `list` until directories change
        self._files: dict[str, bytes] = {}
        self._durable: dict[str, bytes] = {}
        self._synced: set[str] = set()  # whose content is safe, while the name may not be
        self._inodes: dict[str, int] = {}  # names of one number are links to one file
        self._serial = 0
        self._numbers = count()
        self._crash_at: int | None = None
        self._faults: dict[str, int] = {}
        self.steps = 0

    # What a test sets ---------------------------------------------------------------------------

    def crash_at(self, step: int | None) -> None:
        """Dies at the `step`-th step from now, counted from 0."""
        self._crash_at = None if step is None else self.steps + step

    def fail(self, what: str, error: int = errno.EIO) -> None:
        """Lets the next step named `what` fail: make, write, sync, link, delete, rename."""
        self._faults[what] = error

    def restart(self, lost: random.Random | None = None) -> None:
        """Starts a new process; after a power failure when `lost` is given."""
        self._crash_at = None
        if lost is not None:
            self._lose(lost)

    def damage(self, path: str, content: bytes) -> None:
        """Replaces a file's content, as a bad disk or a user would."""
        assert path in self._files
        for name in [n for n in self._files if self._inodes[n] == self._inodes[path]]:
            self._files[name] = self._durable[name] = content

    def below(self, directory: str) -> list[str]:
        """Returns the paths of all files in it, at any depth."""
        return sorted(path for path in self._files if path.startswith(directory + "/"))

    # Files --------------------------------------------------------------------------------------

    def list(self, directory: str) -> list[str]:
        self._alive()
        if directory not in self._directories:
            raise FileNotFoundError(directory)
        if directory not in self._listed:
            top = directory + "/"
            paths = [*self._files, *self._directories]
            inside = [p[len(top) :] for p in paths if p.startswith(top)]
            self._listed[directory] = sorted({p.partition("/")[0] for p in inside})
        return list(self._listed[directory])

    def read(self, path: str) -> bytes:
        self._alive()
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def size(self, path: str) -> int:
        return len(self.read(path))

    def write_new(self, path: str, chunks: Iterable[Any]) -> bool:
        directory, _, name = path.rpartition("/")
        self._serial += 1
        temporary = f"{directory}/.{name}.{self._serial}{TEMPORARY}"
        with faults("write", path):
            try:
                self._write(directory, temporary, chunks)
                self._step("link")
                self._need(directory)
                if path in self._files or path in self._directories:
                    return False
                self._put(path, self._files[temporary], self._inodes[temporary])
                if temporary in self._synced:
                    self._synced.add(path)
            finally:
                if not self._dead:
                    self._drop(temporary)
            self._step("unlink")
            if self._sync:
                self._step("sync")
                for name in [n for n in self._synced if os.path.dirname(n) == directory]:
                    if name in self._files:  # syncing a directory makes all of its names durable
                        self._durable[name] = self._files[name]
        return True

    def link(self, source: str, target: str) -> bool:
        with faults("link", target):
            self._step("link")
            if source not in self._files:
                raise FileNotFoundError(source)
            self._need(os.path.dirname(target))
            if target in self._files or target in self._directories:
                return False
            self._put(target, self._files[source], self._inodes[source])
            if source in self._synced or self._durable.get(source) == self._files[source]:
                self._synced.add(target)
            if self._sync:
                self._step("sync")
                self._durable[target] = self._files[target]
        return True

    def rename(self, source: str, target: str) -> bool:
        with faults("rename", source):
            self._step("rename")
            if source not in self._files and source not in self._directories:
                return False
            if os.path.dirname(target) not in self._directories:
                return False
            if target in self._directories and (source in self._files or self.list(target)):
                return False
            self._listed.clear()
            self._move(self._files, source, target)
            self._move(self._durable, source, target)
            self._move(self._inodes, source, target)
            for names in (self._directories, self._synced):
                for path in [n for n in names if (n + "/").startswith(source + "/")]:
                    names.remove(path)
                    names.add(target + path[len(source) :])
        return True

    def delete(self, path: str) -> None:
        with faults("delete", path):
            self._step("delete")
            if self._drop(path):
                return
            self._listed.clear()
            for name in [p for p in self._files if p.startswith(path + "/")]:
                del self._files[name]
                self._step("delete")
            for name in [d for d in self._directories if (d + "/").startswith(path + "/")]:
                self._directories.remove(name)
                for held in [p for p in self._durable if p.startswith(name + "/")]:
                    del self._durable[held]

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        with faults("make directory", path):
            self._step("make")
            if path in self._directories:
                return
            self._listed.clear()
            if parents:
                self._add_directories(os.path.dirname(path))
            elif os.path.dirname(path):
                self._need(os.path.dirname(path))
            self._directories.add(path)

    # Inside -------------------------------------------------------------------------------------

    @property
    def _dead(self) -> bool:
        return self._crash_at is not None and self.steps > self._crash_at

    def _alive(self) -> None:
        if self._crash_at is not None and self._dead:
            raise Crashed

    def _step(self, what: str) -> None:
        self._alive()
        self.steps += 1
        self._alive()
        if what in self._faults:
            code = self._faults.pop(what)
            raise OSError(code, os.strerror(code))

    def _move(self, held: dict[str, Any], source: str, target: str) -> None:
        for path in [p for p in held if p == source or p.startswith(source + "/")]:
            held[target + path[len(source) :]] = held.pop(path)

    def _need(self, directory: str) -> None:
        if directory not in self._directories:
            raise FileNotFoundError(directory)

    def _write(self, directory: str, temporary: str, chunks: Iterable[Any]) -> None:
        self._step("make")
        self._need(directory)
        self._put(temporary, b"")
        for chunk in chunks:
            data = bytes(chunk)
            try:
                self._step("write")
            except BaseException:
                self._files[temporary] += data[: len(data) // 2]
                raise
            self._files[temporary] += data
        if self._sync:
            self._step("sync")
            self._synced.add(temporary)

    def _put(self, path: str, content: bytes, inode: int | None = None) -> None:
        directory, _, name = path.rpartition("/")
        if directory in self._listed and path not in self._files:
            insort(self._listed[directory], name)
        self._files[path] = content
        self._inodes[path] = next(self._numbers) if inode is None else inode

    def _drop(self, path: str) -> bool:
        """Removes the file; returns whether it existed."""
        directory, _, name = path.rpartition("/")
        found = self._files.pop(path, None) is not None
        self._inodes.pop(path, None)
        if found and directory in self._listed:
            self._listed[directory].remove(name)
        return found

    def _add_directories(self, path: str) -> None:
        while path and path != "/":
            self._directories.add(path)
            path = os.path.dirname(path)

    def _lose(self, chance: random.Random) -> None:
        self._listed.clear()
        torn: dict[int, bytes] = {}  # by inode: all names of a file have one content
        for path, content in list(self._files.items()):
            if self._durable.get(path) == content:
                continue
            fates = ["gone", "whole"] if path in self._synced else ["gone", "cut", "zeros", "whole"]
            fate = chance.choice(fates)
            if fate == "gone":
                del self._files[path]
            elif fate == "cut":
                self._files[path] = content[: chance.randrange(len(content) + 1)]
            elif fate == "zeros":
                kept = chance.randrange(len(content) + 1)
                self._files[path] = content[:kept] + bytes(len(content) - kept)
            if fate != "gone":
                self._files[path] = torn.setdefault(self._inodes[path], self._files[path])
        for path, content in self._durable.items():
            if path not in self._files and chance.random() < 0.5:
                self._files[path] = content
                self._inodes[path] = next(self._numbers)
        self._durable = dict(self._files)
        self._synced.clear()
