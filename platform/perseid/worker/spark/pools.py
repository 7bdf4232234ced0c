"""Which pools of Python workers a fragment of several has, of those on one worker.

A process serves one task index of all fragments of its pool. Fragments of one job run their epochs
at the same time, so in one pool each would often get a process that the other one has used last:
both processes would load the state of both, and open their transactions again. So each fragment
that runs has pools of its own; the first one has those that are warm (`warm`).
"""

from __future__ import annotations

from threading import Lock


class Pools:
    """Gives each taker the prefix of its pools' names: of the lowest number that is free."""

    def __init__(self) -> None:
        self._lock, self._taken = Lock(), set[int]()

    def take(self) -> str:
        with self._lock:
            number = next(n for n in range(len(self._taken) + 1) if n not in self._taken)
            self._taken.add(number)
        return _prefix(number)

    def release(self, prefix: str) -> None:
        with self._lock:
            self._taken = {n for n in self._taken if _prefix(n) != prefix}


def _prefix(number: int) -> str:
    return f"{number} " if number else ""


of_worker = Pools()
