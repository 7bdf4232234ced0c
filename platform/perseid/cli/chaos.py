"""`perseid chaos`: break the embedded cluster and see it heal."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

from perseid.cli import output
from perseid.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from perseid.embedded import Cluster
    from perseid.records.marks import Mark
    from perseid.registry import Registry

app = typer.Typer(rich_markup_mode=None)

# The roles of a job's processes in `perseid demo --kill`; found through ZooKeeper.
ROLES = ("worker", "supervisor", "python", "executor", "coordinator", "standby", "broker")


def _for(default: str | None) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        "--for", help="How long, e.g. 10s.", show_default=default or "until undone"
    )
    return option


@app.command("kill", epilog="Example: perseid chaos kill w1")
def kill(
    what: Annotated[str, typer.Argument(help=f"A process, or a role: {', '.join(ROLES)}.")],
    *,
    supervisor: Annotated[
        bool, typer.Option("--supervisor", help="Kill its supervisor, and so both.")
    ] = False,
    job: Annotated[str | None, typer.Option("--job", help="Whose worker, with a role.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Send SIGKILL to a process; its supervisor starts it again."""
    from perseid.embedded import Cluster
    from perseid.embedded.identity import send

    cluster = Cluster(data)
    target = _kill_target(cluster, what, job, supervisor=supervisor)
    killed = False if dry_run else send(target, signal.SIGKILL)
    if as_json:
        output.document({"what": what, "pid": target.pid, "killed": killed})
    else:
        done = "killed" if killed else "would kill" if dry_run else "already gone:"
        output.lines([f"{done} {what} (pid {target.pid})"])


def _kill_target(cluster: Cluster, what: str, job: str | None, *, supervisor: bool) -> Mark:
    from perseid.records.marks import mark

    if what in {row.name for row in cluster.processes()}:
        row = cluster.process(what)
        pid = row.supervisor_pid if supervisor else row.pid
        found = mark(pid) if pid is not None else None
    elif what in ROLES:
        found = _by_role(cluster, what, job)
    else:
        cluster.process(what)  # refuses with the known names
        found = None
    if found is None:
        raise RefusedError(f"{what} does not run at this moment: see `perseid status`")
    return found


def _by_role(cluster: Cluster, what: str, job: str | None) -> Mark | None:
    from perseid.cli.scenario.nemesis import Nemesis
    from perseid.registry import Registry

    with closing(Registry.connect(cluster.deployment)) as registry:
        if job is None and what not in {"coordinator", "standby", "broker"}:
            job = _only_job(_running(registry))
        return Nemesis(cluster, registry, job or "").find(what)


def _running(registry: Registry) -> list[str]:
    entries = [registry.job_entry(job) for job in registry.jobs()]
    return [e.value.name for e in entries if e is not None and e.value.desired == "running"]


def _only_job(names: list[str]) -> str:
    if len(names) != 1:
        known = ", ".join(names) or "none is running"
        raise UsageError(f"name the job with --job JOB: {known}")
    return names[0]


@app.command("pause", epilog="Example: perseid chaos pause w1 --for 5s")
def pause(
    what: Annotated[str, typer.Argument(help="A process or a role, e.g. w1, kafka, worker.")],
    *,
    job: Annotated[str | None, typer.Option("--job", help="Whose worker.")] = None,
    duration: Annotated[str, _for("10s")] = "10s",
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Stop a process and its descendants (SIGSTOP), then resume them."""
    from perseid.embedded import Cluster

    cluster, seconds = Cluster(data), _seconds(duration)
    name = _name(cluster, what, job)
    pids: list[int] = []
    if not dry_run:
        with ExitStack() as undo:
            undo.callback(cluster.resume, name)
            pids = cluster.pause(name)
            output.note(f"paused {name} ({len(pids)} processes) for {seconds:g} s")
            _wait(seconds)
    _report({"what": name, "pids": pids, "seconds": seconds, "dry_run": dry_run}, as_json)


def _name(cluster: Cluster, what: str, job: str | None) -> str:
    """The process that currently has a name or a role."""
    rows = cluster.processes()
    if what not in ROLES or what in {row.name for row in rows}:
        return cluster.process(what).name
    pid = _kill_target(cluster, what, job, supervisor=False).pid
    for row in rows:
        if row.pid == pid:
            return row.name
    raise RefusedError(f"a {what} cannot be paused alone: name a process of `perseid status`")


@app.command("partition", epilog="Example: perseid chaos partition zookeeper --for 5s")
def partition(
    what: Annotated[str, typer.Argument(help="kafka, zookeeper or redis.")],
    *,
    duration: Annotated[str, _for("10s")] = "10s",
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Cut a part off from all others: packets are dropped, connections stay (root, iptables)."""
    from perseid.embedded import Cluster
    from perseid.embedded.faults import partition as cut
    from perseid.embedded.faults import port_of

    deployment, seconds = Cluster(data).deployment, _seconds(duration)
    port = port_of(deployment, what)
    if not dry_run:
        with cut(deployment, what):
            output.note(f"cut off {what} (port {port}) for {seconds:g} s")
            _wait(seconds)
    _report({"what": what, "port": port, "seconds": seconds, "dry_run": dry_run}, as_json)


@app.command("fill", epilog="Example: perseid chaos fill store --free 1MiB --for 30s")
def fill(
    where: Annotated[str, typer.Argument(help="store, state, kafka, logs or a folder.")],
    *,
    free: Annotated[str, typer.Option("--free", help="What to leave free.")] = "1MiB",
    duration: Annotated[str | None, _for(None)] = None,
    undo: Annotated[bool, typer.Option("--release", help="Take the ballast away.")] = False,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Fill the disk of a folder with a ballast file."""
    from perseid.embedded import Cluster, faults
    from perseid.jobs.model.units import size_bytes

    cluster = Cluster(data)
    folder = faults.folder_of(cluster.deployment, cluster.data, where)
    try:
        left = size_bytes(free)
    except ValueError as error:
        raise UsageError(f"--free {free}: write {error}") from None
    seconds = _seconds(duration) if duration is not None else None
    size = 0
    if undo and not dry_run:
        size = -faults.release(folder)
    elif not dry_run:
        size = faults.fill(folder, left)
        if seconds is not None:
            with ExitStack() as after:
                after.callback(faults.release, folder)
                output.note(f"filled {folder} for {seconds:g} s")
                _wait(seconds)
        else:
            output.note(f"undo it with `perseid chaos fill {where} --release`")
    _report({"folder": str(folder), "ballast_bytes": size, "dry_run": dry_run}, as_json)


def _seconds(text: str) -> float:
    from perseid.jobs.model.units import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise UsageError(f"--for {text}: write {error}") from None


def _wait(seconds: float) -> None:
    # SIGTERM must undo the fault too; by default it would skip the clean-up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    time.sleep(seconds)


def _report(result: dict[str, object], as_json: bool) -> None:
    if as_json:
        output.document(result)
    else:
        output.fields(result)
