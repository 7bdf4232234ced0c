"""Memory of process trees and of files on tmpfs, looked at from time to time.

Forked Python workers share most of their pages: each page counts once, even if all map it.
"""

from __future__ import annotations

import os
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from perseid.errors import PermanentError

_EVERY_S = 2.0  # the kernel walks all page tables for one look
_BLOCK_BYTES = 512  # of `st_blocks`


def tree_bytes(roots: Iterable[int]) -> int:
    """Proportional bytes of the roots and everything below them, each process once."""
    return sum(by_program(roots).values())


def by_program(roots: Iterable[int]) -> Counter[str]:
    """The same by what a process runs, "java" or "python"."""
    import psutil

    seen: set[int] = set()
    found: Counter[str] = Counter()
    for pid in roots:
        try:
            root = psutil.Process(pid)
            family = [root, *root.children(recursive=True)]
        except psutil.Error:
            continue
        for process in (p for p in family if p.pid not in seen):
            try:
                program = "java" if process.name() == "java" else "python"
                found[program] += process.memory_full_info().pss
            except psutil.Error:
                continue
            seen.add(process.pid)
    return found


def trees(roots: Callable[[], Iterable[int]]) -> Callable[[], int]:
    """What `PeakMemory` looks at: the trees of the roots that there are then."""
    return lambda: tree_bytes(roots())


def tmpfs_bytes(folder: Path, mounts: Path = Path("/proc/mounts")) -> int:
    """What the files below a folder occupy, 0 where they lie on a disk: those are no memory."""
    return allocated_bytes(folder) if _filesystem(folder, mounts) == "tmpfs" else 0


def allocated_bytes(folder: Path) -> int:
    """What the files below a folder occupy; folders may go away meanwhile."""
    return sum(
        _allocated(Path(below, name)) for below, _, names in os.walk(folder) for name in names
    )


def _filesystem(folder: Path, mounts: Path) -> str:
    """The type of the innermost mount that holds the folder."""
    place = folder.resolve()
    fields = [line.split() for line in mounts.read_text().splitlines()]
    holding = [f for f in fields if place.is_relative_to(f[1])]
    return max(holding, key=lambda f: len(f[1]))[2] if holding else ""


def _allocated(file: Path) -> int:
    try:
        return file.lstat().st_blocks * _BLOCK_BYTES
    except FileNotFoundError:  # removed meanwhile
        return 0


class PeakMemory:
    """`with PeakMemory(look) as peak: ...; peak.mb` afterwards; `look` gives bytes."""

    def __init__(self, look: Callable[[], int], every_s: float = _EVERY_S) -> None:
        self._look, self._every_s = look, every_s
        self.seen: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    @property
    def peak_bytes(self) -> int:
        """PermanentError when no process was ever seen: 0 MB would be no answer."""
        most = max(self.seen, default=0)
        if not most:
            raise PermanentError("no process of the system was seen while its memory was watched")
        return most

    @property
    def settled_bytes(self) -> int:
        """The median of what was seen."""
        return round(statistics.median(self.seen)) if self.peak_bytes else 0

    @property
    def mb(self) -> float:
        """The peak in MB."""
        return round(self.peak_bytes / 1e6, 1)

    def _watch(self) -> None:
        while True:
            self.seen.append(self._look())
            if self._stop.wait(self._every_s):
                return
