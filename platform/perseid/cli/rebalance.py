"""`perseid rebalance [JOB]`: moves fragments to the workers that have too few, now."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from perseid.cli import jobs, output

OneJob = Annotated[
    str | None, typer.Argument(help="Only fragments of this job.", show_default=False)
]


def rebalance(
    job: OneJob = None,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
    no_wait: jobs.NoWait = False,
    timeout: jobs.Timeout = 60.0,
) -> None:
    """Move fragments and jobs to workers that have too few, and wait until they run there."""
    from perseid.coordinator import rebalance_requests

    wait_s = None if no_wait else timeout
    with jobs.connected(data) as cluster, TemporaryDirectory() as cache:
        shown = rebalance_requests.rebalance(cluster, job, Path(cache), wait_s, dry_run=dry_run)
    if as_json:
        output.document(shown)
    else:
        output.lines(_text(shown))


def _text(shown: dict[str, Any]) -> list[str]:
    if not shown["moves"]:
        return ["nothing to move: the workers' shares are even"]
    return [
        f"{move['job']}: fragment {move['fragment']} from {move['from']} to {move['to']} "
        f"{shown['state']}: {move['why']}"
        for move in shown["moves"]
    ]
