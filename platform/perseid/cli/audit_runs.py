"""Audits on workers: ask for one, follow it, print what it found."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.cli import jobs, output
from perseid.clocks import time_text

if TYPE_CHECKING:
    from perseid.jobs.operations.applying import Cluster
    from perseid.records.audits import AuditRequest
    from perseid.replay.findings import Audit

LOOK_S = 0.5
COLUMNS = ("id", "job", "state", "verdict", "epochs", "by", "asked for", "why")


def on_worker(
    job: str, options: Mapping[str, str | None], local: Mapping[str, object],
    tolerance: Sequence[str], cores: int, data: Path | None, *,
    values: bool, no_wait: bool, as_json: bool,
) -> Audit | None:  # fmt: skip
    """`perseid replay --on-worker`: what the audit has found; None if it is not waited for.

    `options`: the range. `local`: options that only an audit on this machine has.
    """
    from perseid.errors import UsageError
    from perseid.jobs.operations import audits
    from perseid.replay import request, tolerances

    for name, given in local.items():
        if given is not None:
            raise UsageError(f"{name} is for an audit on this machine: leave out it or --on-worker")
    from_, others = options["from"], {k: v for k, v in options.items() if k != "from"}
    request.parsed(from_=from_, **others)
    tolerances.of_options(tolerance)
    arguments = audits.arguments(options, tolerance, cores)
    with jobs.connected(data) as cluster:
        asked = audits.ask(cluster.registry, cluster.clock, job, arguments, user())
        output.note(f"audit {asked.id} is asked for; `perseid audits cancel {asked.id}` ends it")
        if no_wait:
            show(asked, as_json=as_json)
            return None
        return found(cluster, _followed(cluster, asked.id), values=values)


def user() -> str:
    """Who asks."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # in a container without an entry of this user
        return f"user {os.getuid()}"


def _followed(cluster: Cluster, id_: str) -> AuditRequest:
    """Notes what changes until the audit has ended. Interrupted, it runs on."""
    from perseid.jobs.operations import audits

    shown = ""
    while True:
        audit: AuditRequest = audits.find(cluster.registry, id_).value
        if (line := _now(audit)) != shown:
            shown = line
            output.note(f"{audit.job}: {line}")
        if not audit.is_open:
            return audit
        cluster.clock.sleep(LOOK_S)


def found(cluster: Cluster, audit: AuditRequest, *, values: bool) -> Audit:
    """The findings of an audit that has ended; RefusedError or RetryableError without any."""
    from perseid.errors import RefusedError, RetryableError
    from perseid.jobs.operations import audits
    from perseid.replay import reports

    if audit.report:
        return reports.from_json(audits.report(cluster.store, audit, values=values))
    why = audit.result.text if audit.result is not None else "it has not ended"
    kind = RefusedError if audit.state in ("refused", "canceled") else RetryableError
    raise kind(f"audit {audit.id} of {audit.job} {audit.state}: {why}")


def show(audit: AuditRequest, *, as_json: bool) -> None:
    """Prints an audit, without its findings."""
    from perseid.jobs.operations import audits

    document = audits.document(audit)
    if as_json:
        output.document(document)
    else:
        output.fields({k: "-" if v is None else v for k, v in document.items()})


def row(audit: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of `perseid audits list`, below COLUMNS."""
    progress = audit["progress"]
    epochs = f"{audit['first_epoch']}-{audit['last_epoch']}" if audit["last_epoch"] else "-"
    if progress and not audit["ended_ms"]:
        epochs = f"{progress['epoch']} of {progress['of']}"
    return (
        audit["id"], audit["job"], audit["state"], audit["verdict"] or "-", epochs, audit["by"],
        time_text(audit["requested_ms"]), audit["text"] or "-",
    )  # fmt: skip


def _now(audit: AuditRequest) -> str:
    if audit.result is not None:
        return f"{audit.result.verdict or audit.state}: {audit.result.text}"
    if audit.progress is not None:
        return str(audit.progress)
    return f"runs on {audit.worker}" if audit.state == "running" else "waits for a worker"
