"""The fragments of a worker: those that its plans name run, all others end.

A fragment takes up to 30 s to end. No other job waits for it. A new fragment of the same job does:
both would use the same query name, process caches and state logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from perseid.records import Plan
    from perseid.worker.fragment import Fragment

log = logging.getLogger("perseid.worker")


class _Ending(NamedTuple):
    fragment: Fragment
    thread: threading.Thread


class Fragments:
    """See the module's docstring. `follow` is called by one thread.

    `start`: makes a plan's fragment, which runs. `ended`: called by another thread whenever one has
    ended.
    """

    def __init__(self, start: Callable[[Plan], Fragment], ended: Callable[[], None]) -> None:
        self._start, self._ended = start, ended
        self._running: dict[str, Fragment] = {}  # by job
        self._ending: dict[str, _Ending] = {}

    def follow(self, plans: Mapping[str, Plan], unknown: Container[str] = ()) -> None:
        """Starts and ends what `plans`, those of this worker by job, ask for; does not wait.

        `unknown`: jobs whose plan cannot be read. What runs of them stays.
        """
        for job, fragment in list(self._running.items()):
            plan = plans.get(job)
            outdated = plan is None or plan.generation != fragment.plan.generation
            if outdated and job not in unknown:
                self._end(job, self._running.pop(job))
        self._ending = {job: e for job, e in self._ending.items() if e.thread.is_alive()}
        for job, plan in plans.items():
            if job not in self._running and job not in self._ending:
                self._running[job] = self._start(plan)

    def running(self) -> Mapping[str, Fragment]:
        """By job, those that their plan names."""
        return self._running

    def __iter__(self) -> Iterator[Fragment]:
        """All, those that are ending included."""
        ending: Iterable[Fragment] = [e.fragment for e in self._ending.values()]
        return iter([*self._running.values(), *ending])

    def _end(self, job: str, fragment: Fragment) -> None:
        def end() -> None:
            try:
                fragment.stop()
                if not fragment.ended:
                    log.error("its fragment of generation %d did not end in time; the next one "
                              "starts", fragment.plan.generation, extra={"job": job})  # fmt: skip
            finally:
                self._ended()

        thread = threading.Thread(target=end, name=f"end-{job}", daemon=True)
        self._ending[job] = _Ending(fragment, thread)
        thread.start()
