"""Peak memory of process trees: the sum of resident sets, looked at twice a second.

Pages that processes share are counted once for each, on both sides of a comparison alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

_EVERY_S = 0.5


def tree_rss_bytes(roots: Iterable[int]) -> int:
    """Resident bytes of the roots and everything below them, each process once."""
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
                found[process.pid] = process.memory_info().rss
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
        return round(self._peak_bytes / 1e6, 1)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._peak_bytes = max(self._peak_bytes, tree_rss_bytes(self._roots()))
