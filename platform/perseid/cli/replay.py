"""`perseid replay`: runs past epochs of a job again, and compares what they make now."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import audit_runs, interrupted, jobs, output
from perseid.clocks import time_text

if TYPE_CHECKING:
    from fractions import Fraction

    from perseid.replay.auditing import Asked, Auditor
    from perseid.replay.findings import Audit
    from perseid.replay.planned import Planned
    from perseid.replay.progress import Progress

Epochs = Annotated[
    str | None, typer.Option("--epochs", help="FIRST:LAST, both included; FIRST: to the end.")
]
Last = Annotated[str | None, typer.Option("--last", help="The last 1h, 30m, ...")]
From = Annotated[str | None, typer.Option("--from", help="Epochs from this ISO time on (UTC).")]
To = Annotated[str | None, typer.Option("--to", help="Epochs before this time.")]
Offsets = Annotated[
    str | None, typer.Option("--offsets", help="Those that read TOPIC:PARTITION:FIRST-LAST.")
]
Rev = Annotated[
    str | None,
    typer.Option("--rev", help="Audit this revision, a folder or REPO@REV, instead."),
]
Share = Annotated[
    str | None,
    typer.Option("--sample", help="Audit a share such as 1/16, between checkpoints."),
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="That draws the sample; default by chance.", min=0)
]
Folder = Annotated[
    Path | None, typer.Option("--folder", help="For its files; default a temporary one.")
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", help="Resume the audit that was interrupted, in its folder."),
]
Tolerance = Annotated[
    list[str] | None,
    typer.Option("--tolerance", help="COLUMN=relative:1e-9, ulp:4 or absolute:0.01."),
]
Sink = Annotated[
    bool, typer.Option("--sink/--no-sink", help="Compare the sink topics with the ledger.")
]
Mixed = Annotated[
    list[str] | None,
    typer.Option("--mixed", help="A sink topic that others may write too."),
]
Bisect = Annotated[
    bool,
    typer.Option("--bisect", help="Search the first difference from checkpoint to checkpoint."),
]
Cores = Annotated[int, typer.Option("--cores", help="That it may use.", min=1)]
Rate = Annotated[int | None, typer.Option("--rate", help="Records/s that it reads at most.", min=1)]
Report = Annotated[
    Path | None, typer.Option("--report", help="Folder for JSON, HTML, JUnit and Markdown.")
]
ShowValues = Annotated[bool, typer.Option("--show-values", help="Show keys and values of records.")]
OnWorker = Annotated[
    bool, typer.Option("--on-worker", help="A worker runs it; this command follows it.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="With --on-worker: ask for it, do not follow it.")
]


def replay(
    job: jobs.Job,
    epochs: Epochs = None,
    last: Last = None,
    from_: From = None,
    to: To = None,
    offsets: Offsets = None,
    rev: Rev = None,
    sample: Share = None,
    seed: Seed = None,
    folder: Folder = None,
    resume: Resume = None,
    tolerance: Tolerance = None,
    sink: Sink = True,
    mixed: Mixed = None,
    bisect: Bisect = False,
    cores: Cores = 1,
    rate: Rate = None,
    report: Report = None,
    show_values: ShowValues = False,
    on_worker: OnWorker = False,
    no_wait: NoWait = False,
    dry_run: output.DryRun = False,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Run past epochs of a job again, and compare outputs and state with what the job had.

    Exits with 0 if they are equal, 1 if they differ, 3 if refused, 4 if the input is gone.
    """
    given = {"epochs": epochs, "from": from_, "to": to, "last": last, "offsets": offsets}
    own = {
        "--rev": rev, "--sample": sample, "--seed": seed, "--mixed": mixed or None,
        "--bisect": bisect or None, "--no-sink": None if sink else True,
    }  # fmt: skip
    if on_worker:
        local = own | {
            "--folder": folder, "--resume": resume, "--rate": rate, "--dry-run": dry_run or None
        }
        there = audit_runs.on_worker(
            job, given, local, tolerance or (), cores, data,
            values=show_values, no_wait=no_wait, as_json=as_json,
        )  # fmt: skip
        if there is not None:
            _show(there, report, show_values, as_json)
        return
    _refuse_together(bisect=bisect, sample=sample, seed=seed, dry_run=dry_run, resume=resume,
                     folder=folder)  # fmt: skip
    become_a_worker()
    asked = {"job": job, **{f"--{name}": text for name, text in given.items()}, **own,
             "--tolerance": tolerance or None}  # fmt: skip
    limits = {"cores": cores, "rate": rate}
    if dry_run:
        with jobs.connected(data) as cluster, own_folder(folder) as mine:
            planned = _auditor(cluster, asked, mine, data, limits).planned(*_sampled(asked))
        _show_planned(planned, as_json)
        return
    if resume is None:
        _wanted(asked, Path(), limits)  # refuses what makes no sense
    with jobs.connected(data) as cluster, interrupted.kept(asked, folder, resume) as progress:
        asked = dict(progress.asked)
        found = _found(_auditor(cluster, asked, progress.folder, data, limits, progress), asked)
    _show(found, report, show_values, as_json)


def _wanted(asked: dict[str, Any], folder: Path, limits: dict[str, Any]) -> Asked:
    """What these options ask for; UsageError if one makes no sense."""
    from perseid.replay import request, tolerances
    from perseid.replay.auditing import Asked

    _sampled(asked)
    wanted = request.parsed(
        epochs=asked["--epochs"], from_=asked["--from"], to=asked["--to"], last=asked["--last"],
        offsets=asked["--offsets"],
    )  # fmt: skip
    return Asked(
        asked["job"], wanted, folder, limits["cores"], asked["--rev"],
        tolerances.of_options(asked["--tolerance"] or ()), not asked["--no-sink"],
        frozenset(asked["--mixed"] or ()), limits["rate"],
    )  # fmt: skip


def _sampled(asked: dict[str, Any]) -> tuple[Fraction | None, int | None]:
    """The share that is audited, None for all, and the seed."""
    from perseid.replay import request

    share = asked["--sample"]
    return None if share is None else request.share_of(share), asked["--seed"]


def _auditor(
    cluster: Any, asked: dict[str, Any], folder: Path, data: Path | None,
    limits: dict[str, Any], progress: Progress | None = None,
) -> Auditor:  # fmt: skip
    from perseid.clocks import SystemClock
    from perseid.embedded import deployment
    from perseid.replay.auditing import Auditor

    return Auditor(
        deployment(data), cluster.registry, cluster.topics, SystemClock(),
        _wanted(asked, folder, limits), lambda line: output.note(str(line)), None, progress,
    )  # fmt: skip


def _found(auditor: Auditor, asked: dict[str, Any]) -> Audit:
    share, seed = _sampled(asked)
    if share is not None:
        return auditor.sample(share, seed)
    return auditor.bisect() if asked["--bisect"] else auditor.audit()


def _refuse_together(
    *, bisect: bool, sample: str | None, seed: int | None, dry_run: bool, resume: Path | None,
    folder: Path | None,
) -> None:  # fmt: skip
    """UsageError for options of which one makes the other meaningless."""
    from perseid.errors import UsageError

    if resume is not None:
        if folder is not None or dry_run:
            raise UsageError("--resume names the folder of an audit that runs: leave out --folder "
                             "and --dry-run")  # fmt: skip
        return  # the audit's own options are checked
    if seed is not None and sample is None:
        raise UsageError("--seed draws a sample; add --sample such as 1/16")
    if bisect and sample is not None:
        raise UsageError("--bisect searches all intervals: leave out it or --sample")
    if bisect and dry_run:
        raise UsageError(
            "--bisect: what it runs depends on what it finds; leave it out, and --dry-run shows "
            "what the whole range would take"
        )


def _show(found: Audit, report: Path | None, show_values: bool, as_json: bool) -> None:
    """Writes and prints it, and exits with its code."""
    from perseid.replay import reports

    if report is not None:
        for path in reports.write(found, report, reports.FORMS, show_values):
            output.note(f"report: {path}")
    if as_json:
        shown = found if show_values else reports.without_values(found)
        output.lines([reports.as_json(shown).removesuffix("\n")])
    else:
        output.lines(_lines(found))
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _show_planned(found: Planned, as_json: bool) -> None:
    """What would be done; exits as the audit would if its input is gone."""
    from perseid.replay.findings import EXIT

    if as_json:
        output.document(found)
    else:
        output.lines(planned_lines(found))
    if found.gone:
        raise typer.Exit(EXIT["input_gone"])


def become_a_worker(*, with_spark: bool = True) -> None:
    """Restarts this process in the environment of operators, which has to be everywhere the same.

    The audit's processes are of low priority.
    """
    from perseid import logs
    from perseid.embedded.foreground import environment
    from perseid.worker.process.surroundings import check_user, settle

    settle()
    check_user(os.getuid())
    if with_spark:
        os.environ.update(environment(output.note))
    from perseid.replay.running import NICE  # in the environment of operators

    os.nice(NICE)
    os.environ.setdefault(logs.LEVEL, "WARNING")  # notes show its progress
    logs.set_up("replay")


@contextmanager
def own_folder(folder: Path | None) -> Iterator[Path]:
    """The folder of an audit; a temporary one is deleted at the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="perseid-replay-") as made:
        yield Path(made)


def planned_lines(found: Planned) -> Iterator[str]:
    """A dry run for users."""
    yield (
        f"{found.job}: epochs {found.first_epoch} to {found.last_epoch} of revision "
        f"{found.revision}, {time_text(found.from_ms)} to {time_text(found.to_ms)}, audited with "
        f"{found.audited} from {found.base}"
    )
    if found.sample:
        yield found.sample
    cost = "nothing is known of bytes and time, since no report of an epoch is kept"
    if found.bytes is not None and found.seconds is not None:
        cost = (
            f"about {found.bytes / 1e6:.1f} MB in {found.seconds / 60:.1f} minutes, as "
            f"{found.measured} epochs of the job took"
        )
    yield f"would run {found.epochs} epochs with at most {found.records} records: {cost}"
    yield (
        f"would compare {found.compared} epochs of {', '.join(found.topics)} with the ledgers, "
        "record by record where they differ, and the state with the checkpoints that are kept"
    )
    if found.gone:
        yield f"cannot run: {found.gone}"
    yield "nothing was run"


def _lines(found: Audit) -> Iterator[str]:
    yield f"{found.job}: {found.verdict}"
    yield from (f"  {reason}" for reason in found.reasons)
    yield (
        f"epochs {found.first_epoch} to {found.last_epoch} of revision {found.revision}, "
        f"{time_text(found.from_ms)} to {time_text(found.to_ms)}, audited with {found.audited} "
        f"from {found.base}: {found.epochs} epochs with {found.records_in} records in "
        f"{found.seconds:.1f} s"
    )
    for one in found.compared:
        why = f" ({one.why})" if one.why else ""
        yield f"{one.topic}: {one.records} records compared by {one.by}{why}"
    for at in found.states:
        why = f" ({at.why})" if at.why else ""
        yield (
            f"checkpoint of epoch {at.epoch}: {at.differing} of {at.entries} entries of the state "
            f"differ{why}"
        )
    for cause in found.causes:
        fields = f" of {', '.join(cause.fields)}" if cause.fields else ""
        state = f", state {cause.state}" if cause.state else ""
        yield (
            f"operator {cause.operator}{state}, {cause.kind}{fields}: {cause.records} in "
            f"{cause.epochs} epochs, first in epoch {cause.first_epoch}"
        )
