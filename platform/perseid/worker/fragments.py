"""The fragments of a worker: those that its plans name run, all others end.

A replica that its plan makes the primary continues as such (`promotes`).

A fragment takes up to 30 s to end. No other one waits for it, of this job or another. A new life of
the same fragment does: both would use the same process caches and state logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from perseid.records import Plan
    from perseid.worker.fragment import Fragment

log = logging.getLogger("perseid.worker")
Key = tuple[str, str]  # a fragment's job, and its name


class Running(Protocol):
    """A fragment that runs under its plan."""

    @property
    def plan(self) -> Plan: ...


def by_fragment(plans: Mapping[str, Sequence[Plan]]) -> dict[Key, Plan]:
    """What a worker is to run: the plans of its fragments, which it has by job."""
    return {(job, own.only.fragment): own for job, owns in plans.items() for own in owns}


def outdated(running: Mapping[Key, Running], wanted: Mapping[Key, Plan]) -> list[Key]:
    """Those that run and are not wanted any more, or under another generation."""
    return [
        key for key, fragment in running.items()
        if key not in wanted or wanted[key].generation != fragment.plan.generation
    ]  # fmt: skip


def promotes(running: Plan, wanted: Plan) -> bool:
    """Whether what runs as the replica of `running` can become the primary of `wanted` in place.

    Everything but the role has to be the same: another revision has other code, and another layout
    other partitions.
    """
    own = replace(wanted.only, role=running.only.role, generation=running.only.generation)
    like = replace(
        wanted, generation=running.generation, assignments=(own,),
        checkpoints=running.checkpoints, reason=running.reason,
    )  # fmt: skip
    newer = wanted.generation > running.generation
    return running.only.muted and not wanted.only.muted and newer and like == running


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
        self._running: dict[Key, Fragment] = {}
        self._ending: dict[Key, _Ending] = {}

    def follow(self, plans: Mapping[str, Sequence[Plan]], unknown: Container[str] = ()) -> None:
        """Starts and ends what `plans` ask for; does not wait.

        `plans`: by job, one for each of its fragments here (`Plan.for_worker`). `unknown`: jobs
        whose plan cannot be read. What runs of them stays.
        """
        wanted = by_fragment(plans)
        for key in outdated(self._running, wanted):
            if key[0] not in unknown and not self._promoted(key, wanted.get(key)):
                self._end(key, self._running.pop(key))
        self._ending = {key: e for key, e in self._ending.items() if e.thread.is_alive()}
        for key, plan in wanted.items():
            if key not in self._running and key not in self._ending:
                self._running[key] = self._start(plan)

    def _promoted(self, key: Key, wanted: Plan | None) -> bool:
        """Whether the one that runs becomes the primary, now or soon."""
        fragment = self._running[key]
        return (
            wanted is not None and promotes(fragment.plan, wanted) and fragment.promote(wanted)
        )  # fmt: skip

    def running(self) -> Mapping[Key, Fragment]:
        """Those that their plans name."""
        return self._running

    def __iter__(self) -> Iterator[Fragment]:
        """All, those that are ending included."""
        ending: Iterable[Fragment] = [e.fragment for e in self._ending.values()]
        return iter([*self._running.values(), *ending])

    def _end(self, key: Key, fragment: Fragment) -> None:
        def end() -> None:
            try:
                fragment.stop()
                if not fragment.ended:
                    log.error(
                        "its fragment of generation %d did not end in time; the next one starts",
                        fragment.plan.generation, extra={"job": key[0]},
                    )  # fmt: skip
            finally:
                self._ended()

        thread = threading.Thread(target=end, name=f"end-{fragment.name}", daemon=True)
        self._ending[key] = _Ending(fragment, thread)
        thread.start()
