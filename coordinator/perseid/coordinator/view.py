"""The state as people and tools read it: the answer of `/api/v1/status`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perseid.coordinator import buffer_bound, gating, holding, replicas, stalled, statuses
from perseid.coordinator.job.inputs import RECENT_S
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.token_time import Now
from perseid.jobs.operations import fragments as of_plan
from perseid.jobs.operations import report
from perseid.records import Assignment, JobFailures, LeaderInfo
from perseid.records.audits import AuditRequest


@dataclass(frozen=True, slots=True)
class Look:
    """What a leader knows at one moment; `now` with its time.

    `unmirrored`: by job, how often its consumer group's offsets could not be written. `unrecorded`:
    decisions that are in no file. `violations`: broken `invariants`. `audits`: as of a few seconds
    ago.
    """

    state: ClusterState
    leader: LeaderInfo
    now: Now
    unmirrored: Mapping[str, int] = field(default_factory=dict)
    unrecorded: int = 0
    violations: int = 0
    audits: tuple[AuditRequest, ...] = ()


def status(state: ClusterState, leader: LeaderInfo, now: Now) -> dict[str, Any]:
    """The whole cluster as the leader sees it."""
    return {
        "leader": {"id": leader.id, "pid": leader.pid, "url": leader.url, "epoch": leader.epoch,
                   "looked_ms": _looked_ms(state, now)},
        "workers": [
            {
                "id": worker.id,
                "incarnation": worker.incarnation,
                "pid": worker.pid,
                "supervisor_pid": worker.supervisor_pid,
                "host": worker.host,
                "cores": worker.cores,
                "master": worker.master,
                "state": "leaving" if worker.leaving else "live",
                "version": worker.version,
                "fragments": fragments(state, worker.incarnation),
            }
            for worker in state.workers.values()
        ],
        "jobs": [job_status(job, now) for _, job in sorted(state.jobs.items())],
    }


def _looked_ms(state: ClusterState, now: Now) -> int | None:
    """The wall clock's time of the last look at the ends of all source partitions, if any."""
    if state.looked_s == float("-inf"):
        return None
    return now.wall_ms - math.ceil((now.monotonic_s - state.looked_s) * 1000)


def fragments(state: ClusterState, incarnation: str) -> list[dict[str, Any]]:
    """The fragments and replicas that a worker has."""
    planned = [(job, job.plan) for _, job in sorted(state.jobs.items()) if job.plan is not None]
    return [
        {
            "job": job.name, "fragment": own.only.fragment, "role": own.only.role,
            "generation": own.generation, "state": _state(job, own.only),
        }
        for job, plan in planned
        for own in plan.for_worker(incarnation)
    ]  # fmt: skip


def _state(job: JobState, own: Assignment) -> str:
    """Of a fragment: the job's, but of several each has its own while a worker may run them."""
    several = len(job.ownership.primaries) > 1 or own.muted
    name = statuses.name_of(job)
    return _conditions(job).get(own.name, name) if several else name


def job_status(job: JobState, now: Now) -> dict[str, Any]:
    """One job. `lag`: records that no token names, plus those that tokens in flight name.

    `lag` includes what an open transaction holds back; `backlog` does not, because no token could
    name it. Values that are not known yet, while the job is being loaded or before its input is
    looked at, are None and not 0.
    """
    loaded = job.phase is not Phase.LOADING
    spec = job.program.spec if job.program is not None else None
    last = job.chain.last_token
    return {
        "name": job.name,
        "uuid": job.entry.uuid,
        "state": statuses.name_of(job),
        "desired": job.entry.desired,
        "revision": job.plan.revision if job.plan is not None else job.entry.revision,
        "wanted_revision": job.entry.revision,
        "generation": job.ownership.generation,
        "owner": job.ownership.owner,
        "fragments": of_plan.listed(
            job.plan, job.layout, {**done_epochs(job), **replica_epochs(job)}, _conditions(job)
        ),
        **protection(job),
        "gate": gating.shown(job) if loaded else None,
        "epoch": job.chain.tip.epoch if loaded else None,
        "committed_epoch": job.done if loaded else None,
        "epochs_in_flight": job.in_flight if loaded else None,
        "lag": lag(job),
        "backlog": job.inputs.backlog if _is_looked_at(job) else None,
        "checkpoint": _checkpoint(job, now),
        "mode": spec.fault_tolerance.mode if spec is not None else None,
        "parallelism": spec.parallelism if spec is not None else None,
        "state_bytes": job.checkpointing.state_bytes,
        "watermark_ms": last.watermark_ms if last is not None else None,
        "late_records": job.inputs.late,
        "failures": job.health.failures.count if job.health.failures is not None else 0,
        "stalled_input": list(stalled.reported(job.inputs, now)),
        "failing": report.failing(failures_of(job), int(now.time_ms)),
        "error": statuses.error_of(job),
        "held_back": holding.reason(job) or buffer_bound.reason(job) or None,
        "buffers": buffers(job),
        "events": list(job.health.events),
        **_rates(job, now),
    }


def buffers(job: JobState) -> dict[str, Any] | None:
    """How full the buffer topics are; None of a job without, or while it is being loaded."""
    bytes_max = buffer_bound.bytes_max(job)
    if bytes_max is None or job.phase is Phase.LOADING:
        return None
    return {"bytes_max": bytes_max, "bytes": buffer_bound.held(job)}


def done_epochs(job: JobState) -> dict[str, int]:
    """The last done epoch of each fragment, by name; none while the job is being loaded."""
    if job.phase is Phase.LOADING:
        return {}
    return {own.fragment: job.ownership.done_of(own) for own in job.ownership.primaries}


def replica_epochs(job: JobState) -> dict[str, int]:
    """The last epoch that each replica has run, by name; none while the job is being loaded."""
    if job.plan is None or job.phase is Phase.LOADING:
        return {}
    done = {own.name: job.standby.of(own.fragment).done for own in job.plan.replicas}
    run = gating.runs(job)
    return done if run is None else {**done, run.name: job.gating.of(run.fragment).done}


def protection(job: JobState) -> dict[str, Any]:
    """Whether a replica takes over at a death; None where none is asked for, or not known yet."""
    if job.phase is Phase.LOADING or not replicas.wanted(job):
        return {"protected": None, "unprotected": None}
    why = replicas.unprotected(job)
    return {"protected": not why, "unprotected": why or None}


def _conditions(job: JobState) -> dict[str, str]:
    """What each fragment and replica does, by name; none while no worker may have the job."""
    if job.phase not in (Phase.WAITING, *OWNED):
        return {}
    owned, copies = job.ownership, job.plan.replicas if job.plan is not None else ()
    run = gating.runs(job)
    gates = {run.name: job.gating.condition(run).value} if run is not None else {}
    return {
        **gates,
        **{own.name: owned.condition(own.fragment).value for own in owned.primaries},
        **{own.name: job.standby.condition(own).value for own in copies},
    }


def failures_of(job: JobState) -> JobFailures | None:
    """The failures that keep the job from running, if any."""
    if job.phase in (Phase.STOPPED, Phase.FAILED):
        return None
    return (job.health.unloaded if job.phase is Phase.LOADING else None) or job.health.failures


def failing_s(job: JobState, now: Now) -> float:
    """Since the first of the failures in a row, where there are enough of them."""
    found = report.failing(failures_of(job), int(now.time_ms))
    return float(found["for_s"]) if found is not None else 0.0


def lag(job: JobState) -> int | None:
    """Records that no committed epoch has; None while unknown."""
    if not _is_looked_at(job):
        return None
    in_flight = sum(i.token.records for i in job.chain.tokens if i.token.epoch > job.done)
    return job.inputs.backlog + stalled.records(job.inputs) + in_flight


def checkpoint_age_s(job: JobState, now: Now) -> float | None:
    """Seconds since the token of the newest checkpoint; None without one."""
    newest = job.newest
    if newest is None:
        return None
    return max(0.0, (job.chain.time.after(now) - newest.time_ms) / 1000)


def _is_looked_at(job: JobState) -> bool:
    """Whether the ends of all its source partitions are known."""
    return job.phase is not Phase.LOADING and job.inputs.partitions <= job.inputs.ends.keys()


def clock_ahead_s(job: JobState, now: Now) -> float | None:
    """The leader's wall clock less the job's token time."""
    if job.phase is Phase.LOADING:
        return None
    return (now.wall_ms - job.chain.time.after(now)) / 1000


def _checkpoint(job: JobState, now: Now) -> dict[str, Any] | None:
    newest, age_s = job.newest, checkpoint_age_s(job, now)
    if newest is None or age_s is None:
        return None
    return {"epoch": newest.epoch, "age_s": round(age_s, 3), "bytes": newest.bytes}


def _rates(job: JobState, now: Now) -> dict[str, Any]:
    """The rates of the last seconds; the window is shorter for a job that has just begun."""
    recent = [done for done in job.inputs.recent if now.monotonic_s - done.at_s <= RECENT_S]
    if not recent:
        return {"records_in_per_s": 0.0, "records_out_per_s": 0.0, "epochs_per_s": 0.0,
                "epoch_ms": None}  # fmt: skip
    first_s = recent[0].at_s - recent[0].duration_ms / 1000
    window_s = max(min(now.monotonic_s - first_s, RECENT_S), 0.001)
    return {
        "records_in_per_s": round(sum(d.rows_in for d in recent) / window_s, 1),
        "records_out_per_s": round(sum(d.rows_out for d in recent) / window_s, 1),
        "epochs_per_s": round(len(recent) / window_s, 2),
        "epoch_ms": recent[-1].duration_ms,
    }
