"""The operations on applied jobs and their answers, for the command line and HTTP alike.

Each function writes the user's request, waits for the coordinator's answer if `wait_s` is set, and
returns the document that the command line prints with --json. With `dry_run` nothing is written.
Errors: UnknownJob, RefusedError with what to do instead, UsageError; RetryableError when a part
does not answer; PermanentError when the time to wait is over (the request stays valid).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.errors import PerseidError
from perseid.jobs.model.layout import Layout, build
from perseid.jobs.operations import applying, checkpointing, report, steering
from perseid.jobs.operations.applying import Cluster
from perseid.records import JobEntry, Plan
from perseid.registry.facade import Registry

if TYPE_CHECKING:
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader


def every(registry: Registry) -> list[dict[str, Any]]:
    """All applied jobs, by name."""
    return [
        report.summary(entry, registry.status(name), registry.plan(name))
        for name, entry in sorted(registry.jobs().items())
    ]


def show(cluster: Cluster, job: str, cache: Path) -> tuple[dict[str, Any], str | None]:
    """One job, and why its job file cannot be read, if so. `cache`: for its archive."""
    registry = cluster.registry
    entry = steering.stored_entry(registry, job).value
    spec, fault = None, None
    try:
        spec = applying.revision(cluster, entry.archive, cache).spec.model_dump()
    except PerseidError as error:
        fault = str(error)
    plan = registry.plan(job)
    layout = _layout(cluster, plan, cache) if plan is not None else None
    shown = report.details(
        entry, registry.status(job), plan, registry.pointers(job), spec, layout
    )
    return shown | {"failing": _failing(cluster, job, shown)}, fault


def _layout(cluster: Cluster, plan: Plan, cache: Path) -> Layout | None:
    """The layout of a plan; None when its revision cannot be read."""
    try:
        return build(applying.revision(cluster, plan.archive, cache).spec, plan.layout)
    except PerseidError:
        return None


def _failing(cluster: Cluster, job: str, shown: Mapping[str, Any]) -> dict[str, Any] | None:
    """The job's repeated failure, as ZooKeeper has it."""
    found = cluster.registry.failures(job)
    if found is None or found.job_uuid != shown["uuid"] or shown["state"] in ("failed", "stopped"):
        return None
    return report.failing(found, cluster.clock.wall_ms())


def checkpoints(registry: Registry, job: str) -> list[dict[str, Any]]:
    """The complete checkpoints of a job, the newest first."""
    entry = steering.stored_entry(registry, job).value
    return report.checkpoints(entry, registry.pointers(job))


def start(
    cluster: Cluster, job: str, origin: str, wait_s: float | None, *, dry_run: bool = False
) -> dict[str, Any]:
    """Starts a stopped or failed job; `origin` as in `steering.start`."""
    entry, version = steering.start(cluster.registry, cluster.clock, job, origin)
    return _steered(cluster, entry, version, wait_s, dry_run)


def stop(
    cluster: Cluster, job: str, wait_s: float | None, *, checkpoint: bool, dry_run: bool = False
) -> dict[str, Any]:
    """Stops a job after its current epoch; its state is kept."""
    entry, version = steering.stop(cluster.registry, cluster.clock, job, checkpoint=checkpoint)
    return _steered(cluster, entry, version, wait_s, dry_run)


def remove(
    cluster: Cluster, job: str, wait_s: float | None, *, dry_run: bool = False
) -> dict[str, Any]:
    """Removes a job; its topics and checkpoints are kept."""
    entry, version = steering.remove(cluster.registry, cluster.clock, job)
    if not dry_run:
        steering.put(cluster.registry, entry, version)
        if wait_s is not None:
            steering.wait(cluster.registry, cluster.clock, entry, wait_s)
    state = "would be removed" if dry_run else "removing" if wait_s is None else "removed"
    return {"name": job, "state": state, "purged_topics": []}


def checkpoint(
    cluster: Cluster, topics: TopicReader, logs: LogReader, job: str, wait_s: float | None, *,
    dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Takes a checkpoint of a running job now."""
    registry = cluster.registry
    steering.stored_entry(registry, job)  # a wrong name is reported before any topic is read
    above = checkpointing.last_epoch(topics, logs, job)
    entry, version = checkpointing.ask(registry, job, above)
    shown: dict[str, Any] = {
        "name": job, "state": "would be asked for" if dry_run else "asked for",
        "above_epoch": above, "checkpoint": None,
    }  # fmt: skip
    if not dry_run:
        steering.put(registry, entry, version)
        if wait_s is not None:
            found = checkpointing.wait(registry, cluster.clock, entry, wait_s)
            shown |= {"state": "complete", "checkpoint": asdict(found)}
    return shown


def answer(cluster: Cluster, entry: JobEntry, wait_s: float | None) -> dict[str, Any]:
    """The coordinator's answer to a written entry; without waiting, the current state."""
    failures = None
    if wait_s is None:
        status = cluster.registry.status(entry.name)
    else:
        found = steering.wait(cluster.registry, cluster.clock, entry, wait_s)
        status, failures = found.status, found.failures
    plan = cluster.registry.plan(entry.name)
    shown = report.details(entry, status, plan, None, None)
    failing = report.failing(failures, cluster.clock.wall_ms())
    if failing is not None:
        shown |= {"state": "failing", "error": _failing_error(entry.name, failing)}
    refused = report.refused(entry, plan)
    if refused is not None:
        shown |= {"state": "refused", "error": refused}
    return {k: shown[k] for k in ("name", "state", "desired", "revision", "generation", "error")}


def _failing_error(job: str, failing: Mapping[str, Any]) -> dict[str, Any]:
    what_next = (
        f"it is tried again for as long as it takes; `perseid jobs show {job}` shows its "
        f"progress, `perseid logs {job}` has the whole error"
    )
    return {"kind": "Failing", "text": report.failing_text(failing), "next": what_next}


def _steered(
    cluster: Cluster, entry: JobEntry, version: int, wait_s: float | None, dry_run: bool
) -> dict[str, Any]:
    if dry_run:
        return {"name": entry.name, "state": f"would be {entry.desired}", "error": None}
    steering.put(cluster.registry, entry, version)
    return answer(cluster, entry, wait_s)
