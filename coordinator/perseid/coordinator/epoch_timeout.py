"""An epoch that does not end: `epoch.timeout`. Pure.

An operator that never returns would block a job without any error, and also a stop or a switch,
since both wait for the epoch. When the timeout is over the job fails like one whose operator
raises, so that a corrected revision can roll the epoch back (`corrections`).

Time is counted in looks at the source topics, one a second, and only while the leader sees the job
run and Kafka answers. A restore, an unreachable broker, a host stall and what an earlier leader saw
do not count.
"""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator import corrections, failing
from perseid.coordinator.actions import Action
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now

TOPICS_S = 1.0  # between two looks
RANGES_SHOWN = 4

Step = tuple[JobState, list[Action]]


def looked(job: JobState, now: Now) -> JobState:
    """The job after another look in which no end of its running epoch was reported.

    Looks that piled up while the leader was stalled arrive at once and count once.
    """
    if job.phase is not Phase.RUNNING or job.in_flight == 0:
        health = job.health.waits_no_more()
        return job if health is job.health else replace(job, health=health)
    return replace(job, health=job.health.waited(now.monotonic_s, TOPICS_S))


def is_up(job: JobState) -> bool:
    """Whether the running epoch has used up its time."""
    return job.program is not None and job.health.stalled_for_s > job.program.spec.epoch.timeout_s


def fail(job: JobState, now: Now) -> Step:
    """The permanent failure; its text names what the epoch reads."""
    owners = sorted({a.owner or "" for a in job.ownership.slowest})
    workers = f"worker{'s' if len(owners) > 1 else ''} {', '.join(owners)}"
    text = (
        f"epoch {job.done + 1} has not ended on {workers} after "
        f"{job.health.stalled_for_s:.0f} s, and "
        f"`epoch.timeout` of job.yaml allows no more{_reads(job)}"
    )
    advice = (
        f"look for an operator that waits or loops without end, or give its epochs more time "
        f"(`epoch.timeout`) or less input (`epoch.maxRecords`); then {failing.advice(job.name)}"
    )
    return corrections.fail(job, now, "EpochTimeout", text, advice)


def _reads(job: JobState) -> str:
    issued = job.chain.issued(job.done + 1)
    ranges = ranges_of(issued.token) if issued is not None else ()
    found = [f"{r.topic}[{r.partition}] {r.start} to {r.end}" for r in ranges if r.start < r.end]
    more = f" and {len(found) - RANGES_SHOWN} more" if len(found) > RANGES_SHOWN else ""
    return f"; it reads {', '.join(found[:RANGES_SHOWN])}{more}" if found else ""
