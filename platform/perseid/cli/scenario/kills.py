"""The targets of kills, and their options and reports. Pure.

`--kill WHAT[@SECONDS]`: without a time the pacing chooses the moment; with one it waits until then,
counted from the first line that is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.errors import UsageError

KINDS = (
    "worker", "supervisor", "python", "coordinator", "standby", "broker", "zookeeper", "redis",
    "executor",
)  # fmt: skip
STANDALONE_ONLY = frozenset({"executor"})  # with local[k] the executor is the worker itself


@dataclass(frozen=True, slots=True)
class Kill:
    """One order to kill; `at_s` None: as soon as it matters."""

    what: str
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class KillReport:
    """The target and the effect of a kill. `pid` None: there was no such process.

    `epoch_in_flight` is the lowest epoch with input that was running right after the SIGKILL.
    """

    what: str
    pid: int | None
    at_s: float
    epoch_in_flight: int | None
    owner_before: str | None
    owner_after: str | None = None
    seconds_to_output: float | None = None


def parse(text: str) -> Kill:
    """The kill that `text` requests; UsageError lists the possible ones."""
    what, at, seconds = text.partition("@")
    if what not in KINDS:
        raise UsageError(f"--kill {text}: {what!r} is not one of {', '.join(KINDS)}")
    if not at:
        return Kill(what)
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = -1.0
    if not 0 <= at_s < float("inf"):
        raise UsageError(f"--kill {text}: {seconds!r} is not a number of seconds, as in {what}@20")
    return Kill(what, at_s)


def parse_all(texts: list[str], master: str | None) -> tuple[Kill, ...]:
    """All kills of a command line; those without a time keep their order, as do those with one."""
    kills = tuple(parse(text) for text in texts)
    if master != "standalone":
        for kill in kills:
            if kill.what in STANDALONE_ONLY:
                raise UsageError(
                    f"--kill {kill.what}: local[k] has no {kill.what} of its own; add "
                    "`--master standalone`"
                )
    return kills
