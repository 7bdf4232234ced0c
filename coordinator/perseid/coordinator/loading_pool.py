"""Threads that load jobs, so that a slow load does not delay the loads of other jobs.

A broker, an open transaction or a store may not answer a load for long, or never. So THREADS load
at once, and a load that takes longer than PATIENCE_S does not count: the next one begins.
Later loads of that job come after those of other jobs and leave them THREADS of the THREADS_MAX,
until one is prompt again.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

THREADS = 3  # each keeps clients of its own connected, so not many for nothing
THREADS_MAX = 32
PATIENCE_S = 2.0  # a load takes a tenth of it

Task = Callable[[], None]  # must not raise


class LoadingPool:
    """Runs what is submitted, in the order of submission but for jobs that were slow."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._waiting: list[tuple[bool, int, str, Task]] = []  # a heap; whether it was slow
        self._numbers = count()
        self._begun_s: dict[int, float] = {}  # of what runs, by number
        self._slow: set[str] = set()
        self._closed = False
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="loading")
        self._dispatcher = threading.Thread(target=self._dispatch, name="loads", daemon=True)

    def submit(self, job: str, task: Task) -> None:
        with self._changed:
            entry = job in self._slow, next(self._numbers), job, task
            heapq.heappush(self._waiting, entry)
            self._changed.notify_all()
            if self._dispatcher.ident is None:
                self._dispatcher.start()

    def close(self) -> None:
        """What waits does not begin; what runs is not waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _dispatch(self) -> None:
        with self._changed:
            while not self._closed:
                now_s = time.monotonic()
                if self._may_begin(now_s):
                    _, number, job, task = heapq.heappop(self._waiting)
                    self._begun_s[number] = now_s
                    self._threads.submit(self._run, number, job, task)
                else:
                    self._changed.wait(self._until_slow_s(now_s))

    def _may_begin(self, now_s: float) -> bool:
        """Whether the first that waits may."""
        if not self._waiting:
            return False
        room = THREADS_MAX - THREADS if self._waiting[0][0] else THREADS_MAX
        return self._prompt(now_s) < THREADS and len(self._begun_s) < room

    def _prompt(self, now_s: float) -> int:
        return sum(now_s < begun_s + self._patience_s for begun_s in self._begun_s.values())

    def _until_slow_s(self, now_s: float) -> float | None:
        """Until the next load does not count any more; None where all are slow or none runs."""
        left = [begun_s + self._patience_s - now_s for begun_s in self._begun_s.values()]
        return min((left_s for left_s in left if left_s > 0), default=None)

    def _run(self, number: int, job: str, task: Task) -> None:
        try:
            task()
        finally:
            with self._changed:
                slow = time.monotonic() >= self._begun_s.pop(number) + self._patience_s
                (self._slow.add if slow else self._slow.discard)(job)
                self._changed.notify_all()
