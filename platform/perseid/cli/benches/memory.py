"""Peak memory of process trees: the sum of proportional resident sets, looked at from time to time.

Forked Python workers share most of their pages: each page counts once, whoever has it mapped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from perseid.errors import PermanentError

_EVERY_S = 2.0  # the kernel walks all page tables for one look


def tree_bytes(roots: Iterable[int]) -> int:
    """Proportional bytes of the roots and everything below them, each process once."""
    import psutil

    found: dict[int, int] = {}
    for pid in roots:
        try:
            root = psutil.Process(pid)
            family = [root, *root.children(recursive=True)]
        except psutil.Error:
            continue
        for process in family:
            try:
                found[process.pid] = process.memory_full_info().pss
            except psutil.Error:
                continue
    return sum(found.values())


class PeakMemory:
    """`with PeakMemory(roots) as peak: ...; peak.mb` afterwards."""

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        self._roots = roots
        self._peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    @property
    def mb(self) -> float:
        """PermanentError when no process was ever seen: 0 MB would be no answer."""
        if not self._peak_bytes:
            raise PermanentError("no process of the system was seen while its memory was watched")
        return round(self._peak_bytes / 1e6, 1)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._peak_bytes = max(self._peak_bytes, tree_bytes(self._roots()))
