"""Memory that an epoch or a checkpoint part has freed: the process keeps it for the next one.

Returning a page to the kernel and taking it again costs more than the work done with it, mostly on
a virtual machine. When the tasks of the last GIVE_BACK_S needed less than half of the earlier
maximum, a Python worker returns its free memory, or its size would stay that of its largest epoch.
It does so every ANYWAY_S in any case, for the slowly growing fragments between used blocks.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache

import pyarrow as pa

GIVE_BACK_S = 120.0
ANYWAY_S = 600.0
_KEEP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
# Environment of the Python workers. glibc gives every few threads a heap of their own, whose free
# memory no other heap can use; most threads here belong to Kafka clients and wait.
WORKERS = {
    **_KEEP,
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # glibc's maximum
    # ms, for Arrow; with -1 (never) a purge on request would fail
    "MIMALLOC_PURGE_DELAY": "3600000",
}
PART_WRITER = {**_KEEP, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_MAX_": "0"}


class SpareMemory:
    """The spare memory of one process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._looked_s = self._given_s = now_s()
        self._recent_bytes = 0  # maximum that a task had in use since the last check
        self._most_bytes = 0  # the same since memory was last returned

    def used(self, task_bytes: int) -> None:
        """Records the memory that a task has in use: its input, or its output."""
        self._recent_bytes = max(self._recent_bytes, task_bytes)
        self._most_bytes = max(self._most_bytes, task_bytes)

    def give_back_when_due(self) -> bool:
        """Returns free memory to the kernel, at most once in GIVE_BACK_S: some 10 ms for 100 MB.

        Returns whether it did.
        """
        now_s = self._now_s()
        if now_s - self._looked_s < GIVE_BACK_S:
            return False
        recent_bytes, self._recent_bytes, self._looked_s = self._recent_bytes, 0, now_s
        if 2 * recent_bytes > self._most_bytes and now_s - self._given_s < ANYWAY_S:
            return False  # the next task would take it again
        self._most_bytes, self._given_s = recent_bytes, now_s
        pa.default_memory_pool().release_unused()
        # exists only in glibc, and is needed only there
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        return True


@cache
def of_process() -> SpareMemory:
    """The spare memory of this process."""
    return SpareMemory()
