"""Loads without an end hold up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from perseid.coordinator.loading_pool import THREADS, THREADS_MAX, LoadingPool
from perseid.testing.wait import until

PATIENCE_S = 0.1
SOON_S = 10.0


class Loads:
    """Loads in a pool: of those that hang, and of those that end at once."""

    def __init__(self) -> None:
        self.pool = LoadingPool(PATIENCE_S)
        self.released = threading.Event()
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.ended: SimpleQueue[str] = SimpleQueue()

    def hang(self, job: str) -> None:
        self._submit(job, lambda: self.released.wait(60))

    def end(self, job: str) -> None:
        self._submit(job, lambda: None)

    def _submit(self, job: str, wait: Callable[[], object]) -> None:
        def task() -> None:
            self.begun.put(job)
            wait()
            self.ended.put(job)

        self.pool.submit(job, task)

    def let_slow_ones_end(self) -> None:
        """Once all that run are slow."""
        pool = self.pool
        running = len(pool._begun_s)
        until(lambda: pool._prompt(time.monotonic()) == 0, SOON_S, "all of them to be slow")
        self.released.set()
        until(lambda: len(pool._slow) == running, SOON_S, "them to end")
        self.released.clear()
        while not self.ended.empty():
            self.ended.get()

    def have_begun(self, number: int) -> list[str]:
        return [self.begun.get(timeout=SOON_S) for _ in range(number)]


@pytest.fixture
def loads() -> Iterator[Loads]:
    made = Loads()
    yield made
    made.released.set()
    made.pool.close()


def test_a_load_begins_although_others_hang(loads: Loads) -> None:
    for i in range(2 * THREADS):
        loads.hang(f"hangs-{i}")
    loads.end("prompt")
    assert loads.ended.get(timeout=SOON_S) == "prompt"


def test_no_more_than_a_few_load_at_once_where_all_are_prompt(loads: Loads) -> None:
    loads.pool = LoadingPool(patience_s=60)
    for i in range(2 * THREADS):
        loads.hang(f"job-{i}")
    assert loads.have_begun(THREADS) == [f"job-{i}" for i in range(THREADS)]
    assert len(loads.pool._begun_s) == THREADS
    loads.released.set()
    assert loads.have_begun(THREADS) == [f"job-{i}" for i in range(THREADS, 2 * THREADS)]


def test_jobs_that_were_slow_leave_threads_to_the_others(loads: Loads) -> None:
    """They have been tried before, as jobs whose broker is away are again and again."""
    jobs = [f"slow-{i}" for i in range(THREADS_MAX)]
    for job in jobs:
        loads.hang(job)
    loads.have_begun(THREADS_MAX)
    loads.let_slow_ones_end()
    for job in jobs:
        loads.hang(job)
    loads.have_begun(THREADS_MAX - THREADS)
    for i in range(2 * THREADS):
        loads.end(f"prompt-{i}")
    assert loads.have_begun(2 * THREADS) == [f"prompt-{i}" for i in range(2 * THREADS)]
    loads.released.set()
    assert len(loads.have_begun(THREADS)) == THREADS  # of the slow ones, in the end


def test_a_job_that_is_prompt_again_is_one_of_the_others(loads: Loads) -> None:
    loads.hang("job")
    loads.have_begun(1)
    loads.let_slow_ones_end()
    loads.end("job")
    assert loads.ended.get(timeout=SOON_S) == "job"
    until(lambda: not loads.pool._slow, SOON_S, "the job to be prompt")


def test_what_waits_at_the_end_never_begins(loads: Loads) -> None:
    for i in range(THREADS):
        loads.hang(f"job-{i}")
    loads.have_begun(THREADS)
    loads.pool.close()
    loads.end("late")
    loads.released.set()
    loads.pool._threads.shutdown(wait=True)
    assert loads.begun.empty()
