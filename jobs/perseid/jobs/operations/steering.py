"""`jobs start`, `stop`, `remove`: changes of the job's entry, and waiting for the answer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from perseid.clocks import Clock
from perseid.errors import FencedError, PermanentError, RefusedError, UsageError
from perseid.jobs.model import units
from perseid.jobs.model.problems import listed, nearest
from perseid.jobs.model.spec import JobSpec
from perseid.records import JobEntry, JobFailures, JobStatus
from perseid.registry.facade import Registry, Stored
from perseid.registry.port import Check, ConflictError, UnknownOutcomeError

WAIT_S = 60.0  # a worker starts Spark within 15 s on two cores, a restore takes longer
POLL_S = 0.1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME = datetime.min.replace(tzinfo=UTC)
T = TypeVar("T")
SETTLED = {"running": ("running", "failed"), "stopped": ("stopped", "failed")}


class UnknownJob(UsageError):
    """There is no job of that name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The coordinator's answer to a request. `status` None: removed.

    `failures`: set when the requested job runs and fails repeatedly.
    """

    entry: JobEntry
    status: JobStatus | None
    failures: JobFailures | None = None


def stored_entry(registry: Registry, job: str) -> Stored[JobEntry]:
    """The job's entry, or UnknownJob with the nearest name."""
    stored = registry.job_entry(job) if job in registry.job_names() else None
    if stored is None:
        names = registry.look().entries
        close = nearest(job, names)
        hint = f"did you mean {close}?" if close else f"there are {listed(names)}"
        raise UnknownJob(f"no job {job[:80]!r}; {hint} (`perseid jobs list`)")
    return stored


def start(registry: Registry, clock: Clock, job: str, origin: str) -> tuple[JobEntry, int]:
    """The entry that starts a job, and the version that it replaces. Nothing is written.

    `origin`: "checkpoint" resumes the job; "scratch" and a time make it a new job (UUID) with empty
    state, whose sources begin at their `start:` or at that time.
    """
    stored = stored_entry(registry, job)
    entry, status = stored.value, registry.status(job)
    _not_removed(entry)
    failed = (
        status is not None and status.job_uuid == entry.uuid and status.state == "failed"
        and status.counter >= entry.counter
    )  # fmt: skip
    if origin != "checkpoint":
        origin = origin if origin == "scratch" else _time(origin)
        if entry.desired == "running" and not failed:
            raise RefusedError(
                f"{job} is running; type `perseid jobs stop {job}` first, since starting from "
                f"{origin} throws its state away"
            )
        entry = replace(entry, uuid=str(uuid.uuid4()))
    elif entry.desired == "running" and not failed:
        raise RefusedError(f"{job} is running already; `perseid jobs show {job}` shows it")
    return replace(
        entry, desired="running", counter=entry.counter + 1, applied_ms=clock.wall_ms(),
        start={"from": origin}, stop_checkpoint=False, checkpoint_above=None,
    ), stored.version  # fmt: skip


def stop(registry: Registry, clock: Clock, job: str, *, checkpoint: bool) -> tuple[JobEntry, int]:
    """The entry that stops a job, after a checkpoint if requested. Nothing is written."""
    stored = stored_entry(registry, job)
    _not_removed(stored.value)
    if stored.value.desired == "stopped":
        raise RefusedError(f"{job} is stopped already; `perseid jobs start {job}` starts it")
    return replace(
        stored.value, desired="stopped", counter=stored.value.counter + 1,
        applied_ms=clock.wall_ms(), stop_checkpoint=checkpoint,
    ), stored.version  # fmt: skip


def remove(registry: Registry, clock: Clock, job: str) -> tuple[JobEntry, int]:
    """The entry that removes a job; repeating it is harmless. Nothing is written."""
    stored = stored_entry(registry, job)
    return replace(
        stored.value, desired="removed", counter=stored.value.counter + 1,
        applied_ms=clock.wall_ms(), stop_checkpoint=False,
    ), stored.version  # fmt: skip


def put(
    registry: Registry, entry: JobEntry, version: int | None, guards: Sequence[Check] = ()
) -> None:
    """Writes the entry over `version`; RefusedError when another client was faster.

    FencedError when a node of `guards` has another version by now.
    """
    try:
        registry.put_job_entry(entry, version, guards)
    except UnknownOutcomeError:
        stored = registry.job_entry(entry.name)
        if stored is None or stored.value != entry:
            raise
    except ConflictError as error:
        if any(error.path == guard.path for guard in guards):
            raise FencedError(f"{entry.name}: another user applies the repository now") from None
        raise RefusedError(
            f"{entry.name}: another user changed it at the same time; look at it with "
            f"`perseid jobs show {entry.name}` and type the command again"
        ) from None


def purged_topics(
    job: str, spec: JobSpec | None, others: Sequence[JobSpec], existing: Sequence[str]
) -> list[str]:
    """The topics that --purge deletes: the job's own, and sinks that no other job uses."""
    used = {s.topic for o in others for s in o.sources.values()}
    used |= {t for o in others for t in o.written_topics}
    if spec is not None:
        used |= {s.topic for s in spec.sources.values()}
    own = {t for t in existing if t.startswith(f"perseid.{job}.")}
    written = set(spec.written_topics) if spec is not None else set()
    return sorted(own | ((written & set(existing)) - used))


def wait(registry: Registry, clock: Clock, entry: JobEntry, timeout_s: float = WAIT_S) -> Answer:
    """Waits until the coordinator has answered the entry and the job has settled.

    Raises PermanentError with what to check when the time is over; the request stays valid.
    """
    return awaited(lambda: answered(registry, entry), registry, clock, entry, timeout_s)


def awaited(
    answer: Callable[[], T | None], registry: Registry, clock: Clock, entry: JobEntry,
    timeout_s: float,
) -> T:  # fmt: skip
    """Polls until there is an answer to `entry`, or the time is over."""
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        found = answer()
        if found is not None:
            return found
        if clock.monotonic_s() >= deadline_s:
            raise PermanentError(_late(registry, entry, timeout_s))
        clock.sleep(POLL_S)


def answered(registry: Registry, entry: JobEntry) -> Answer | None:
    """The answer, or None while there is none."""
    now = registry.job_entry(entry.name)
    if now is None or now.value.uuid != entry.uuid:
        if entry.desired == "removed":
            return Answer(entry, None)
        raise RefusedError(f"{entry.name}: another user removed or replaced it meanwhile")
    status = registry.status(entry.name)
    if entry.desired == "removed" or status is None or status.job_uuid != entry.uuid:
        return None
    if status.counter >= entry.counter and status.state in SETTLED[entry.desired]:
        return Answer(now.value, status)
    failures = _failures(registry, entry)
    return Answer(now.value, status, failures) if failures is not None else None


def _failures(registry: Registry, entry: JobEntry) -> JobFailures | None:
    """The failures of the requested job, once there are so many that waiting is pointless."""
    found, plan = registry.failures(entry.name), registry.plan(entry.name)
    if entry.desired != "running" or found is None or plan is None:
        return None
    own = (found.job_uuid, found.counter) == (entry.uuid, entry.counter)
    return found if own and plan.archive == entry.archive and found.lasts else None


def _late(registry: Registry, entry: JobEntry, timeout_s: float) -> str:
    """Why a request may not have been answered in time, and what to check."""
    status = registry.status(entry.name)
    state = status.state if status is not None else "unknown to the coordinator"
    if registry.leader() is None:
        hint = "no coordinator leads; `perseid status` shows the processes"
    elif not registry.workers():
        hint = "there is no worker; `perseid status` shows the processes"
    else:
        hint = f"`perseid jobs show {entry.name}` shows its progress, `perseid logs` why it waits"
    return (
        f"{entry.name}: the request is written, but after {timeout_s:g} s the job is {state}; "
        f"{hint}"
    )


def _not_removed(entry: JobEntry) -> None:
    if entry.desired == "removed":
        raise RefusedError(f"{entry.name} is being removed; apply it again when it is gone")


def _time(text: str) -> str:
    """The time in UTC. From 1970 on: to Kafka the milliseconds -1 and -2 are no times."""
    try:
        when = units.time(text)
    except ValueError:
        when = _NO_TIME
    if when < _EPOCH:
        raise UsageError(
            f"--from {text[:60]!r}: expected checkpoint, scratch or a time from 1970 on, such as "
            "2026-11-21T08:00:00"
        )
    return when.isoformat()
