"""The states of a job as the coordinator sees it, and the table of allowed transitions.

    LOADING    its entries and logs are being read; nothing is decided before that is done
    WAITING    no owner runs it: no live worker, or a delay after a failure
    RESTORING  a live worker owns it and has not yet reported that it runs
    RUNNING    the owner runs it
    STOPPED    the user stopped it
    FAILED     it cannot resume until a person changes something

Of a job of several fragments each one waits, restores or runs: the job is WAITING while all of them
wait, RUNNING while all of them run, and RESTORING otherwise (`Ownership.phase`).

What the user wants (run, stop, switch, remove) is not a state: it is the difference between the
job's entry and its plan, see `switching`. A transition that is not in the table is a defect and
raises an error with the job's transition log; staying in a state is always allowed.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """See the module docstring."""

    LOADING = "loading"
    WAITING = "waiting"
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


OWNED = frozenset({Phase.RESTORING, Phase.RUNNING})  # it, or a fragment of it, has a live owner
_ACTIVE = OWNED | {Phase.WAITING}
_ENDED = frozenset({Phase.STOPPED, Phase.FAILED})

ALLOWED: dict[Phase, frozenset[Phase]] = {
    Phase.LOADING: _ACTIVE | _ENDED,
    Phase.WAITING: _ACTIVE - {Phase.RUNNING} | _ENDED | {Phase.LOADING},
    Phase.RESTORING: _ACTIVE | _ENDED | {Phase.LOADING},
    Phase.RUNNING: _ACTIVE | _ENDED | {Phase.LOADING},
    Phase.STOPPED: frozenset({Phase.LOADING}),
    Phase.FAILED: frozenset({Phase.LOADING}),
}


class InvalidTransition(Exception):
    """A defect of the coordinator. Carries the job's previous transitions."""

    def __init__(
        self, job: str, start: Phase, finish: Phase, transition_log: tuple[str, ...]
    ) -> None:
        self.job, self.start, self.finish, self.transition_log = job, start, finish, transition_log
        super().__init__(job, start, finish, transition_log)

    def __str__(self) -> str:
        log = "\n  ".join(self.transition_log)
        return f"job {self.job} cannot go from {self.start.name} to {self.finish.name}:\n  {log}"


def check(job: str, start: Phase, finish: Phase, transition_log: tuple[str, ...]) -> None:
    """Raises InvalidTransition unless the table allows the step."""
    if finish is not start and finish not in ALLOWED[start]:
        raise InvalidTransition(job, start, finish, transition_log)
