"""`perseid checkpoint JOB`: takes a checkpoint of a running job now."""

from __future__ import annotations

from contextlib import closing
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
    from perseid.jobs.operations import verbs

    with jobs.connected(data) as cluster, closing(log_reader(data)) as logs:
        wait_s = None if no_wait else timeout
        shown = verbs.checkpoint(cluster, cluster.topics, logs, job, wait_s, dry_run=dry_run)
    if as_json:
        output.document(shown)
    else:
        output.lines([_text(shown)])


def log_reader(data: Path | None) -> LogReader:
    """Reads the logs of the cluster in `data`."""
    from perseid.embedded import deployment
    from perseid.topics.log import KafkaLogReader

    return KafkaLogReader(deployment(data).brokers())


def _text(shown: dict[str, Any]) -> str:
    found = shown["checkpoint"]
    if found is None:
        return f"{shown['name']}: a checkpoint above epoch {shown['above_epoch']} {shown['state']}"
    return f"{shown['name']}: checkpoint of epoch {found['epoch']} complete, {found['bytes']} bytes"
