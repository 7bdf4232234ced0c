"""`perseid checkpoint JOB`: takes a checkpoint of a running job now."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.cli import jobs, output

if TYPE_CHECKING:
    from perseid.topics.log import LogReader


def checkpoint(
    job: jobs.Job,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
    no_wait: jobs.NoWait = False,
    timeout: jobs.Timeout = 60.0,
) -> None:
    """Take a checkpoint of a running job now, and wait until it is complete."""
    from perseid.jobs import checkpointing, steering

    with jobs.connected(data) as cluster, closing(log_reader(data)) as logs:
        registry = cluster.registry
        steering.stored_entry(registry, job)  # a wrong name is told before any topic is looked for
        above = checkpointing.last_epoch(cluster.topics, logs, job)
        entry, version = checkpointing.ask(registry, job, above)
        shown: dict[str, Any] = {
            "name": job, "state": "would be asked for" if dry_run else "asked for",
            "above_epoch": above, "checkpoint": None,
        }  # fmt: skip
        if not dry_run:
            steering.put(registry, entry, version)
            if not no_wait:
                found = checkpointing.wait(registry, cluster.clock, entry, timeout)
                shown |= {"state": "complete", "checkpoint": asdict(found)}
    if as_json:
        output.document(shown)
    else:
        output.lines([_text(shown)])


def log_reader(data: Path | None) -> LogReader:
    """Reads the logs of the cluster in `data`."""
    from perseid.embedded import deployment
    from perseid.topics.log import KafkaLogReader

    return KafkaLogReader(deployment(data).kafka)


def _text(shown: dict[str, Any]) -> str:
    found = shown["checkpoint"]
    if found is None:
        return f"{shown['name']}: a checkpoint above epoch {shown['above_epoch']} {shown['state']}"
    return f"{shown['name']}: checkpoint of epoch {found['epoch']} complete, {found['bytes']} bytes"
