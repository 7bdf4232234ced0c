"""Memory that an epoch or a part gave back: it stays with the process for the next one.

To give a page to the kernel and take it again costs more than what is done with it, on a virtual
machine most of all. When the tasks of the last GIVE_BACK_S had less than half of what an earlier
one had in hand, a Python worker gives back what is free all the same, else its size would be that
of the largest epoch that it ever had. So it does each ANYWAY_S, for what lies between the pieces in
use: that grows slowly.
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
# Environment of the Python workers. glibc gives every few threads a heap of their own and hands
# what is free in them to no other; most threads here are Kafka clients' and wait.
WORKERS = {
    **_KEEP,
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the most that glibc takes
    "MIMALLOC_PURGE_DELAY": "3600000",  # ms; of Arrow's memory. With -1, never, it could not be
}
PART_WRITER = {**_KEEP, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_MAX_": "0"}


class SpareMemory:
    """Of one process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._looked_s = self._given_s = now_s()
        self._recent_bytes = 0  # most that a task had in hand since the last look
        self._most_bytes = 0  # and since the last giving back

    def used(self, task_bytes: int) -> None:
        """Takes note of what a task has in hand: its input, or what it sends on."""
        self._recent_bytes = max(self._recent_bytes, task_bytes)
        self._most_bytes = max(self._most_bytes, task_bytes)

    def give_back_when_due(self) -> bool:
        """To the kernel, at most once in GIVE_BACK_S: some 10 ms for 100 MB. Whether it did."""
        now_s = self._now_s()
        if now_s - self._looked_s < GIVE_BACK_S:
            return False
        recent_bytes, self._recent_bytes, self._looked_s = self._recent_bytes, 0, now_s
        if 2 * recent_bytes > self._most_bytes and now_s - self._given_s < ANYWAY_S:
            return False  # the next task would take it again
        self._most_bytes, self._given_s = recent_bytes, now_s
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it, and needs it
        if trim is not None:
            trim(0)
        return True


@cache
def of_process() -> SpareMemory:
    """This process's own."""
    return SpareMemory()
