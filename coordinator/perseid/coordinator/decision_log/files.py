"""The files of one coordinator's decisions: a folder with a bound on its bytes.

    <logs>/decisions/<coordinator>/<coordinator epoch>-<number>.jsonl

Names sort by time. The oldest files are deleted to make room; the newest one never is. A line is
written by one call of the system, so a kill of the process takes none of those before it.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

FOLDER = "decisions"
SUFFIX = ".jsonl"


def found(logs: Path) -> list[Path]:
    """All files of all coordinators that log in `logs`, each coordinator's in their order."""
    return sorted((logs / FOLDER).glob(f"*/*{SUFFIX}"))


class DecisionFiles:
    """One term's files; `begin` opens the next one. All methods may raise OSError."""

    def __init__(self, folder: Path, epoch: int, bytes_max: int) -> None:
        self._folder, self._epoch, self._bytes_max = folder, epoch, bytes_max
        self._number = 0
        self._path = folder
        self._file: int | None = None
        self._older: deque[tuple[Path, int]] = deque()  # the closed files and their bytes
        self.bytes = 0  # of the open file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def begin(self) -> None:
        """Opens a new file, after the open one was closed."""
        self.close()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._older = deque((p, p.stat().st_size) for p in sorted(self._folder.glob(f"*{SUFFIX}")))
        while self._file is None:
            self._number += 1
            self._path = self._folder / f"{self._epoch:08}-{self._number:05}{SUFFIX}"
            with suppress(FileExistsError):  # of a deployment that was set up again
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
                self._file = os.open(self._path, flags, 0o600)
        self.bytes = 0

    def append(self, line: bytes) -> None:
        """Writes the whole line or, with OSError, nothing of it."""
        assert self._file is not None
        self._make_room(len(line))
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            self._take_back()
            raise
        self.bytes += written

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
            if self.bytes == 0:  # its first line could not be written
                self._path.unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        used = self.bytes + wanted + sum(size for _, size in self._older)
        while used > self._bytes_max and self._older:
            path, size = self._older.popleft()
            path.unlink(missing_ok=True)
            used -= size

    def _take_back(self) -> None:
        """Removes a part of a line; if that fails, too, nothing may follow it in this file."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self.bytes)
        except OSError:
            self.close()
