"""`perseid jobs` and `perseid init`: thin verbs over `perseid.jobs`.

Clients and pyarrow are imported inside the verbs, so that `--help` stays fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import output

if TYPE_CHECKING:
    from perseid.jobs.operations.applying import Change, Cluster
    from perseid.records.access import Bootstrap

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Repo = Annotated[
    str, typer.Argument(metavar="REPO[@REV]", help="Folder, git repository, or example:NAME.")
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of an applied job.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the coordinator.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait.", min=0)]


@app.callback()
def group() -> None:
    """Apply, show, start and stop jobs."""


@app.command(epilog="Example: perseid jobs validate my-job")
def validate(path: Repo, data: output.Data = None, as_json: output.Json = False) -> None:
    """Check job files, import their operators and ask Spark about their SQL; needs no cluster."""
    from perseid.cli import queries
    from perseid.jobs.operations.classes import load_jobs
    from perseid.jobs.repository import job_folders

    with job_folders.validated(job_folders.find(path)) as jobs:
        queries.check(jobs, load_jobs(jobs))
        found = [{"name": j.spec.name, "folder": j.tree.name, "revision": j.tree.revision}
                 for j in jobs]  # fmt: skip
        if as_json:
            output.document({"valid": True, "jobs": found})
        else:
            output.lines(f"{j['folder']}/job.yaml: job {j['name']} is valid" for j in found)


@app.command(epilog="Example: perseid jobs acls my-job --coordinator User:perseid")
def acls(
    repo: Repo,
    principal: Annotated[
        str, typer.Option(help="Of a job's workers; {job} is the job's name.")
    ] = "User:perseid-{job}",
    coordinator: Annotated[
        str | None, typer.Option(help="Also print what coordinators and the command line need.")
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Print the rights on Kafka that jobs need, as kafka-acls commands; needs no cluster."""
    from perseid.jobs.operations import acls as rights
    from perseid.jobs.repository import job_folders

    with job_folders.validated(job_folders.find(repo)) as jobs:
        specs = [job.spec for job in jobs]
    found = [a for s in specs for a in rights.of_workers(s, principal.replace("{job}", s.name))]
    if coordinator is not None:
        found += rights.of_coordinator(specs, coordinator)
    if as_json:
        output.document({"acls": [rule.document() for rule in found]})
    else:
        output.lines(f"{rule.command()}  # {rule.why}" for rule in found)


@app.command(epilog="Example: perseid jobs apply my-jobs@4f2a91c")
def apply(
    repo: Repo,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
    no_wait: NoWait = False,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait; 60, or 600 with a gate.", min=0)
    ] = None,
    gate: Annotated[
        str, typer.Option(metavar="audit", help="Switch once the outputs were the same for a time.")
    ] = "",
    epochs: Annotated[
        int, typer.Option(help="With a gate: so many epochs have to be equal.", min=1)
    ] = 20,
    approve: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With a gate: what this report lists may differ."),
    ] = None,
    key: Annotated[
        list[Path] | None, typer.Option("--key", help="Verify that report first, with this key.")
    ] = None,
) -> None:
    """Validate all jobs of a repository, show the difference, then change what runs."""
    from perseid.cli import approvals
    from perseid.jobs.operations import applying
    from perseid.jobs.repository import job_folders

    wanted_gate = approvals.gating(gate, epochs, approve, key or ())
    wait_s = timeout if timeout is not None else 600.0 if gate else 60.0
    with (
        connected(data) as cluster,
        job_folders.validated(job_folders.find(repo)) as jobs,
    ):
        changes = applying.prepare(cluster, jobs, wanted_gate)
        if not as_json:
            output.lines(line for wanted in changes for line in _change_text(wanted))
        results = []
        if not dry_run:
            for wanted in changes:
                applying.perform(cluster, wanted)
            results = [_settled(cluster, c, no_wait, wait_s) for c in changes]
        if as_json:
            output.document({"dry_run": dry_run, "jobs": results or [_change(c) for c in changes]})
        elif results:
            output.lines(_result_text(r) for r in results)
    _exit_if_failed(results)


@app.command(epilog="Example: perseid jobs diff my-jobs")
def diff(repo: Repo, data: output.Data = None, as_json: output.Json = False) -> None:
    """Show what `apply` would change; nothing is written."""
    from perseid.jobs.operations import applying
    from perseid.jobs.repository import job_folders

    with (
        connected(data) as cluster,
        job_folders.validated(job_folders.find(repo)) as jobs,
    ):
        changes = applying.prepare(cluster, jobs)
        if as_json:
            output.document({"jobs": [_change(c) for c in changes]})
        else:
            output.lines(line for c in changes for line in [*_change_text(c), *c.files])


@app.command("list", epilog="Example: perseid jobs list --json")
def list_(data: output.Data = None, as_json: output.Json = False) -> None:
    """List the applied jobs, their state and the owner of their primary."""
    from perseid.jobs.operations import report, verbs

    with connected(data) as cluster:
        found = verbs.every(cluster.registry)
    if as_json:
        output.document({"jobs": found})
    elif found:
        columns = ("name", "state", "desired", "revision", "generation")
        rows = [[*(job[c] for c in columns), report.owners_text(job)] for job in found]
        output.table((*columns, "owner"), rows)
    else:
        output.note("no jobs: `perseid jobs apply example:wordcount` applies one")


@app.command(epilog="Example: perseid jobs show wordcount")
def show(job: Job, data: output.Data = None, as_json: output.Json = False) -> None:
    """Show one job: state, replica, checkpoints, topics, the last error, what to type next."""
    from tempfile import TemporaryDirectory

    from perseid.jobs.operations import report, verbs

    with connected(data) as cluster, TemporaryDirectory(prefix="perseid-show-") as cache:
        shown, fault = verbs.show(cluster, job, Path(cache))
        shown |= _seen_by_leader(cluster, job)
    if fault is not None:
        output.note(f"perseid: the revision cannot be read: {fault}")
    if as_json:
        output.document(shown)
    else:
        output.lines(report.as_text(shown))


@app.command(epilog="Example: perseid jobs start wordcount --from scratch")
def start(
    job: Job,
    origin: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="checkpoint, scratch or an ISO time.")
    ] = "checkpoint",
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
    no_wait: NoWait = False,
    timeout: Timeout = 60.0,
) -> None:
    """Start a stopped or failed job where it was, or over again."""
    from perseid.jobs.operations import verbs

    with connected(data) as cluster:
        result = verbs.start(cluster, job, origin, _wait_s(no_wait, timeout), dry_run=dry_run)
    _print(result, as_json)
    _exit_if_failed([result])


@app.command(epilog="Example: perseid jobs stop wordcount --checkpoint")
def stop(
    job: Job,
    checkpoint: Annotated[bool, typer.Option("--checkpoint", help="Take a checkpoint first.")] = (
        False
    ),
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
    no_wait: NoWait = False,
    timeout: Timeout = 60.0,
) -> None:
    """Stop a job after its current epoch; its state stays."""
    from perseid.jobs.operations import verbs

    with connected(data) as cluster:
        result = verbs.stop(
            cluster, job, _wait_s(no_wait, timeout), checkpoint=checkpoint, dry_run=dry_run
        )
    _print(result, as_json)


@app.command(epilog="Example: perseid jobs remove wordcount --purge")
def remove(
    job: Job,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Also delete its checkpoints and the topics it writes."),
    ] = False,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
    no_wait: NoWait = False,
    timeout: Timeout = 60.0,
) -> None:
    """Remove a job; its topics stay unless purged, its sources always do."""
    from perseid.errors import UsageError
    from perseid.jobs.operations import verbs
    from perseid.topics import names

    if purge and no_wait:
        raise UsageError("--purge waits until the job is gone; leave --no-wait out")
    with connected(data) as cluster:
        topics = _purged(cluster, job) if purge else []
        result = verbs.remove(cluster, job, _wait_s(no_wait, timeout), dry_run=dry_run)
        if purge and not dry_run:
            cluster.topics.delete(topics)
            cluster.store.delete(f"jobs/{job}")
            cluster.topics.delete_group(names.group(job))
    if as_json:
        output.document(result | {"purged_topics": topics})
    else:
        output.lines([f"{job}: {result['state']}", *(f"  topic {t}: deleted" for t in topics)])


@app.command(epilog="Example: perseid jobs look")
def look(
    accept: Annotated[
        str, typer.Option("--accept", metavar="COMMIT", help="Take it, though it was rewritten.")
    ] = "",
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Ask `perseid follow` to look at the followed repository now."""
    from perseid.jobs.following import asking

    with connected(data) as cluster:
        found = asking.look(cluster.registry, accept, dry_run=dry_run)
    if as_json:
        output.document(found)
    else:
        output.lines([f"{found['url']} {found['ref']}: {found['state']}; see `perseid status`"])


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Make a runnable job folder with its test, and show what to type next."""
    from perseid.jobs.repository import template

    if dry_run:
        name, files = template.job_name(folder), []
        paths = [folder / path for path in template.render(name)]
    else:
        name, paths = template.write(folder)
        files = paths
    steps = template.next_steps(folder)
    if as_json:
        output.document({"name": name, "files": [str(p) for p in paths], "next": steps})
    else:
        verb = "made" if files else "would make"
        output.lines([*(f"{verb} {p}" for p in paths), "next:", *(f"  {s}" for s in steps)])


def _seen_by_leader(cluster: Cluster, job: str) -> dict[str, Any]:
    """The leader's own knowledge of the job; empty if no leader answers."""
    from perseid.cli.status import ask_leader
    from perseid.errors import PerseidError

    leader = cluster.registry.leader()
    try:
        jobs = ask_leader(leader.url)["jobs"] if leader is not None else []
    except PerseidError:
        return {}
    found: dict[str, Any] = next((one for one in jobs if one["name"] == job), {})
    asked = (
        "failing", "watermark_ms", "late_records", "stalled_input", "fragments", "gate", "buffers",
    )  # fmt: skip
    return {name: found[name] for name in asked if name in found}


@contextmanager
def connected(data: Path | None) -> Iterator[Any]:
    """Connections to the cluster in `data`, closed at the end."""
    from dataclasses import replace

    from perseid.cli import queries
    from perseid.embedded import deployment
    from perseid.jobs.operations import connecting

    with connecting.connected(deployment(data)) as cluster:
        yield replace(cluster, check_queries=queries.check)


def bootstrap(data: Path | None) -> Bootstrap:
    """How to reach the brokers of the cluster in `data`."""
    from perseid.embedded import deployment

    return deployment(data).brokers()


def _wait_s(no_wait: bool, timeout: float) -> float | None:
    return None if no_wait else timeout


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.document(result)
    else:
        output.lines([_result_text(result)])


def _settled(cluster: Cluster, wanted: Change, no_wait: bool, timeout: float) -> dict[str, Any]:
    from perseid.jobs.operations import verbs

    # A stopped job only records its new revision: there is nothing to wait for.
    idle = wanted.action == "unchanged" or wanted.entry.desired != "running"
    found = verbs.answer(cluster, wanted.entry, _wait_s(no_wait or idle, timeout))
    return {**_change(wanted), **found}


def _purged(cluster: Any, job: str) -> list[str]:
    """The topics that would be deleted with the job; UnknownJob when there is none."""
    from tempfile import TemporaryDirectory

    from perseid.errors import PermanentError
    from perseid.jobs.operations import applying, steering

    specs = {}
    steering.stored_entry(cluster.registry, job)
    with TemporaryDirectory(prefix="perseid-purge-") as cache:
        for name, other in cluster.registry.jobs().items():
            try:
                specs[name] = applying.revision(cluster, other.archive, Path(cache)).spec
            except PermanentError:
                if name != job:
                    raise  # what it reads and writes must not be deleted
    own = specs.pop(job, None)
    return steering.purged_topics(job, own, list(specs.values()), cluster.topics.list())


def _change(wanted: Change) -> dict[str, Any]:
    return {
        "name": wanted.entry.name,
        "action": wanted.action,
        "revision": wanted.entry.revision,
        "desired": wanted.entry.desired,
        "created_topics": [{"topic": t, "partitions": n} for t, n in wanted.topics],
        "difference": list(wanted.difference),
        "files": list(wanted.files),
        "warnings": list(wanted.warnings),
    }


def _change_text(wanted: Change) -> list[str]:
    verb = {"create": "new", "change": "changed", "unchanged": "unchanged"}[wanted.action]
    lines = [f"{wanted.entry.name}: {verb}, revision {wanted.entry.revision}"]
    if wanted.action == "change":
        lines += [f"  {line}" for line in wanted.difference or ("only code changed",)]
    lines += [f"  creates topic {t} with {n} partitions" for t, n in wanted.topics]
    lines += [f"  warning: {text}" for text in wanted.warnings]
    return lines


def _result_text(result: dict[str, Any]) -> str:
    text = f"{result['name']}: {result['state']}"
    if result["error"]:
        error = result["error"]
        text += f": {error.get('kind')}: {error.get('text')}\n  next: {error['next']}"
    elif result["state"] == "stopped":
        text += f"; `perseid jobs start {result['name']}` starts it"
    return text


def _exit_if_failed(results: list[dict[str, Any]]) -> None:
    if any(r["state"] in ("failed", "failing", "refused") for r in results):
        raise typer.Exit(1)
