"""`perseid follow`: applies what a git repository has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from perseid.cli import output


def follow(
    repo: Annotated[
        str, typer.Option("--repo", envvar="PERSEID_JOBS_REPO", help="https:// or ssh:// address.")
    ],
    ref: Annotated[
        str, typer.Option("--ref", envvar="PERSEID_JOBS_REF", help="A branch, or refs/tags/NAME.")
    ] = "main",
    folder: Annotated[
        str, typer.Option("--folder", envvar="PERSEID_JOBS_FOLDER", help="Where in it jobs are.")
    ] = "",
    every: Annotated[
        str, typer.Option("--every", envvar="PERSEID_JOBS_EVERY", help="Time between looks.")
    ] = "60s",
    signers: Annotated[
        Path | None,
        typer.Option("--signers", envvar="PERSEID_JOBS_SIGNERS",
                     help="Allowed signers (ssh): other commits are not taken."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", envvar="PERSEID_JOBS_PRUNE",
                     help="Remove jobs that the repository no longer has."),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="For tests: file:// and http:// to this machine.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Look once and print what was found.")
    ] = False,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:  # fmt: skip
    """Follow a git repository: apply the jobs that its ref has, now and whenever it changes.

    Runs until it is stopped. Several may run; one looks and the others stand by. A user and a
    password for the server go into PERSEID_JOBS_REPO_AUTH=user:password.
    """
    import signal
    import sys

    from perseid import logs
    from perseid.embedded import deployment
    from perseid.jobs.following import asking, settings
    from perseid.jobs.following.service import follow as run
    from perseid.records import secret

    found = settings.settings(
        repo, ref, folder=folder, every=every, signers=signers, prune=prune, insecure=insecure,
        login=secret.of_environment(settings.LOGIN),
    )  # fmt: skip
    logs.set_up("follower")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    record = run(deployment(data), found, once=once)
    _finish(asking.document(record, record.looked_ms), as_json=as_json)


def _finish(shown: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints what the last look found; exit code 1 where it found faults."""
    if as_json:
        output.document(shown)
    else:
        show(shown)
        output.lines(f"  {fault}" for fault in shown["faults"])
    if shown["faults"]:
        raise typer.Exit(1)


def show(shown: Mapping[str, Any]) -> None:
    """Prints the result of the last look as text."""
    at = shown["commit"][:12] or "no commit yet"
    beyond = f", seen {shown['seen'][:12]}" if shown["seen"] != shown["commit"] else ""
    more = beyond + (", the ref was rewritten" if shown["rewritten"] else "")
    output.table(
        ("folder", "job", "result", "commit"),
        [(j["folder"], j["job"], j["result"], j["commit"][:12]) for j in shown["jobs"]],
        title=f"repository {shown['url']} {shown['ref']}: {shown['state']} at {at}{more}",
    )
