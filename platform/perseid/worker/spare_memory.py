"""Memory that an epoch or a part gave back: it stays with the process for the next one.

To give a page to the kernel and take it again costs more than what is done with it, on a virtual
machine most of all. What a Python worker has not needed for GIVE_BACK_S goes back all the same,
else its size would be that of the largest epoch that it ever had.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import pyarrow as pa

GIVE_BACK_S = 120.0
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
    """Of this process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._given_s = now_s()

    def give_back_when_due(self) -> bool:
        """To the kernel, at most once in GIVE_BACK_S: some 10 ms for 100 MB. Whether it did."""
        if self._now_s() - self._given_s < GIVE_BACK_S:
            return False
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it, and needs it
        if trim is not None:
            trim(0)
        self._given_s = self._now_s()
        return True
