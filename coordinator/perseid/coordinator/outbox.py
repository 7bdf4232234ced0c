"""Performs actions: those of one job in their order, those of different jobs at the same time.

So a job whose broker, topic or entry answers slowly delays no other job's tokens. Of each job:

1. An action begins when the one before it has ended, and while the lease holds.
2. After one that failed, the rest is dropped, and so is what the core decides before it has heard
   of the failure: it rests on something that did not happen.
3. After `close`, no further action begins.
4. One that equals the last of those that wait or run is dropped: it would do the same again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from perseid.coordinator import events as ev
from perseid.coordinator.actions import Action
from perseid.coordinator.performing import StepDown

Perform = Callable[[Action], ev.Event | None]


class Outbox:
    """See the module's docstring; `put` and `heard` are called by the thread that decides."""

    def __init__(
        self,
        perform: Perform,
        emit: Callable[[ev.Event | StepDown], None],
        spawn: Callable[[Callable[[], None]], None],
        await_lease: Callable[[], bool],
    ) -> None:
        """`emit` takes outcomes, from any thread. `spawn` runs what it gets in another thread.

        `await_lease` waits a moment for the lease; it returns whether it holds.
        """
        self._perform, self._emit, self._spawn = perform, emit, spawn
        self._await_lease = await_lease
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Action]] = {}  # by job; the first one is performed now
        self._failed: set[str] = set()  # jobs of whose failure the core has not heard
        self._closed = False

    def put(self, actions: Iterable[Action]) -> None:
        """Performs `actions` soon; returns at once."""
        for action in actions:
            with self._lock:
                if self._closed or action.job in self._failed:
                    continue
                waiting = self._waiting.get(action.job)
                if waiting is not None:
                    if waiting[-1] != action:
                        waiting.append(action)
                    continue
                self._waiting[action.job] = deque([action])
            self._spawn(partial(self._run, action.job))

    def heard(self, event: ev.Event) -> None:
        """The core decides on `event` now."""
        if isinstance(event, ev.ActionFailed):
            with self._lock:
                self._failed.discard(event.job)

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _run(self, job: str) -> None:
        """Performs the job's actions until none waits."""
        waiting = self._waiting[job]
        try:
            while self._may_act():
                outcome = self._perform(waiting[0])
                if isinstance(outcome, ev.ActionFailed):  # before the core can hear of it
                    self._drop(job, waiting)
                if outcome is not None:
                    self._emit(outcome)
                if self._was_last(job, waiting):
                    return
        except StepDown as reason:
            self.close()
            self._emit(reason)

    def _may_act(self) -> bool:
        while not self._closed:
            if self._await_lease():
                return not self._closed
        return False

    def _drop(self, job: str, waiting: deque[Action]) -> None:
        with self._lock:
            while len(waiting) > 1:
                waiting.pop()
            self._failed.add(job)

    def _was_last(self, job: str, waiting: deque[Action]) -> bool:
        """Removes the action that has ended."""
        with self._lock:
            waiting.popleft()
            if not waiting:
                del self._waiting[job]
            return not waiting
