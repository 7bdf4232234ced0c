"""The status in ZooKeeper that users see: derived from the job, written when it changes."""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator.actions import Action, PutStatus
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.jobs.operations.change import resized
from perseid.records import JobStatus

_NAMES = {
    Phase.LOADING: "waiting",
    Phase.WAITING: "waiting",
    Phase.RESTORING: "restoring",
    Phase.RUNNING: "running",
    Phase.STOPPED: "stopped",
    Phase.FAILED: "failed",
}


def name_of(job: JobState) -> str:
    """The state's name as in JobStatus."""
    active = job.phase in (Phase.WAITING, Phase.RESTORING, Phase.RUNNING)
    if active and job.entry.desired == "stopped":
        return "stopping"
    return "rescaling" if active and _rescaling(job) else _NAMES[job.phase]


def _rescaling(job: JobState) -> bool:
    """From the load of a program with other partitions until its first owner has state."""
    plan, target = job.plan, job.switch.target
    if target is not None and job.program is not None:
        return target.archive == job.entry.archive and bool(resized(job.program.spec, target.spec))
    if plan is None or job.newest is None or job.phase is Phase.RUNNING:
        return False
    return plan.rescaled and job.newest.layout != plan.layout


def status_of(job: JobState, time_ms: int) -> JobStatus:
    return JobStatus(
        job.entry.uuid, name_of(job), job.ownership.generation, _answered(job), time_ms,
        error_of(job), job.health.events,
    )  # fmt: skip


def _answered(job: JobState) -> int:
    """The counter of the entry that the status answers: an applied revision's once it runs.

    Until the switch the old revision is "running", which is no answer to `jobs apply`.
    """
    compares = job.wants_gate and not job.gate_refused
    if name_of(job) == "running" and (job.wants_switch or compares):
        written = job.health.status
        return written.counter if written is not None else job.entry.counter - 1
    return job.entry.counter


def error_of(job: JobState) -> dict[str, object] | None:
    """What ended the job. Also for one stopped since: its failed epoch still needs handling."""
    ended = job.phase in (Phase.FAILED, Phase.STOPPED)
    return dict(job.health.error) if ended and job.health.error else None


def write(job: JobState, now: Now) -> tuple[JobState, list[Action]]:
    """Writes the status when anything in it but its time has changed.

    While a failed epoch is being handled the status stays "failed", so that a new leader sees it.
    """
    if job.switch.rewind_to is not None:
        return job, []
    written = job.health.status
    if written is not None and written == status_of(job, written.time_ms):
        return job, []
    status = status_of(job, now.wall_ms)
    return replace(job, health=job.health.written(status)), [PutStatus(job.name, status)]
