"""What the leader logs about jobs: each change of phase and each event for users.

Pure: compares the state before an event with the state after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState

Line = tuple[int, str, dict[str, object]]  # level, text, what it is about


def log_lines(before: Mapping[str, JobState], after: Mapping[str, JobState]) -> Iterator[Line]:
    """Lines about every job that changed; `epoch` is the last done one."""
    for name, job in after.items():
        old = before.get(name)
        if old is not job:
            about = {"job": name, "generation": job.ownership.generation, "epoch": job.done}
            yield from ((level, text, about) for level, text in _lines(old, job))


def _lines(old: JobState | None, job: JobState) -> Iterator[tuple[int, str]]:
    for line in _newer(old.transition_log if old is not None else (), job.transition_log):
        level = logging.ERROR if f"-> {Phase.FAILED.name}:" in line else logging.INFO
        yield level, line.partition(" ")[2]  # without the time on the leader's own clock
    if old is not None and old.phase is not Phase.LOADING:  # else an earlier leader's
        yield from ((logging.INFO, line) for line in _newer(old.health.events, job.health.events))


def _newer(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """The lines of `new` that follow `old`; the oldest lines of `old` may have been dropped."""
    kept = next(n for n in range(len(new), -1, -1) if new[:n] == old[len(old) - n :] or n == 0)
    return new[kept:]
