"""`perseid decisions`: what leaders decided, and whether the core decides so again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import output
from perseid.clocks import time_text
from perseid.errors import UsageError

if TYPE_CHECKING:
    from perseid.coordinator.decision_log.replay import Difference, Replay

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
_ENDINGS = {
    "closed": "",
    "until": "",
    "open": "the file has no last line: its leader was killed, or still writes it",
    "cut off": "the last line is cut off and left out: its leader was killed, or still writes it",
}
_NOT_SHOWN = ("name", "uuid", "events", "error", "fragments")  # of a job's status, in the table


@app.callback()
def group() -> None:
    """List and replay the decisions of leading coordinators."""


@app.command("list", epilog="Example: perseid decisions list")
def list_(data: output.Data = None, as_json: output.Json = False) -> None:
    """The files: who wrote them, from when to when, and their bytes."""
    rows = [_row(path) for path in _files(data)]
    if as_json:
        output.document({"folder": str(_folder(data)), "files": rows})
    elif not rows:
        output.note(f"no coordinator has led yet that logs to {_folder(data)}")
    else:
        columns = ("file", "from", "to", "bytes", "lost_before")
        output.table(columns, [[row[column] for column in columns] for row in rows])
    for row in rows:
        if row["damage"]:
            output.note(f"perseid: {row['damage']}")


@app.command(epilog="Example: perseid decisions replay --job wordcount --until 120")
def replay(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A path, or as `list` shows it; default the newest."),
    ] = None,
    *,
    job: Annotated[str | None, typer.Option("--job", help="Also print this job's state.")] = None,
    until: Annotated[
        int | None, typer.Option("--until", min=1, help="End after the event of this number.")
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Run the core over a file of decisions, and compare its actions with the recorded ones.

    Exits with 1 at a difference, with 2 if the file cannot be read.
    """
    from perseid.coordinator.decision_log import lines
    from perseid.coordinator.decision_log.replay import replay
    from perseid.jobs.operations import fragments

    path = _chosen(file, data)
    with _opened(path) as content:
        found = replay(lines.parsed(content, str(path)), until)
    state = _job(found, job) if job is not None else None
    if as_json:
        output.document(_document(path, found) | ({"job": state} if job is not None else {}))
    else:
        output.lines([str(path), *_lines(found)])
        if state is not None:
            output.lines([f"\n{job} after event {found.n}:"])
            output.fields({k: v for k, v in state.items() if k not in _NOT_SHOWN})
            output.lines(f"fragment {fragments.text(one)}" for one in state["fragments"])
            output.lines(state["transition_log"])
    if not found.same:
        raise typer.Exit(1)


def _folder(data: Path | None) -> Path:
    from perseid.coordinator.decision_log.files import FOLDER
    from perseid.embedded import deployment

    return Path(deployment(data).logs) / FOLDER


def _files(data: Path | None) -> list[Path]:
    from perseid.coordinator.decision_log import files

    return files.found(_folder(data).parent)


def _chosen(file: str | None, data: Path | None) -> Path:
    if file is not None:
        path = Path(file)
        return path if path.is_absolute() or path.exists() else _folder(data) / file
    newest = max(_files(data), key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise UsageError(f"no decisions in {_folder(data)}: name a FILE, or start a coordinator")
    return newest


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): expected a file that `perseid decisions "
            "list` shows"
        ) from None


def _row(path: Path) -> dict[str, Any]:
    from perseid.coordinator.decision_log import lines

    head, damage = None, ""
    try:
        with _opened(path) as content:
            head = next(lines.parsed(content, str(path)))
    except UsageError as error:  # its leader was killed while it began the file
        damage = str(error)
    found = path.stat()
    row = {
        "file": f"{path.parent.name}/{path.name}", "coordinator": path.parent.name, "epoch": None,
        "from": None, "to": time_text(int(found.st_mtime * 1000)), "bytes": found.st_size,
        "lost_before": None, "damage": damage,
    }  # fmt: skip
    if isinstance(head, lines.Head):
        row |= {"epoch": head.epoch, "from": time_text(head.wall_ms), "lost_before": head.lost}
    return row


def _job(found: Replay, name: str) -> dict[str, Any]:
    """The job after the last event that was replayed, as `jobs show` has it, and its phase."""
    from perseid.coordinator import view

    job = found.state.jobs.get(name)
    if job is None:
        known = ", ".join(sorted(found.state.jobs)) or "none"
        raise UsageError(f"--job {name[:80]!r}: after event {found.n} the jobs are {known}")
    now = replace(found.now, time_ms=found.state.time.after(found.now))
    shown = {"phase": job.phase.value, "transition_log": list(job.transition_log)}
    return {**shown, **view.job_status(job, now)}


def _document(path: Path, found: Replay) -> dict[str, Any]:
    return {
        "file": str(path), "same": found.same, "events": dict(found.events), "quiet": found.quiet,
        "coordinator": found.head.coordinator, "epoch": found.head.epoch,
        "version": found.head.version, "from": time_text(found.head.wall_ms),
        "to": time_text(found.now.wall_ms), "last_event": found.n, "ending": found.ending,
        "lost_before": found.head.lost, "lost_after": found.lost_after,
        "why": found.why or found.head.why, "difference": found.difference,
        "differing": list(found.differing),
    }  # fmt: skip


def _lines(found: Replay) -> list[str]:
    from perseid.records.version import this_build

    head = found.head
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(found.events.items()))
    shown = [
        f"coordinator {head.coordinator}, epoch {head.epoch}, perseid {head.version}: "
        f"{time_text(head.wall_ms)} to {time_text(found.now.wall_ms)}",
        f"{found.n} events ({kinds}), and {found.quiet} that changed nothing",
    ]
    if head.lost:
        shown.append(f"{head.lost} decisions before it are in no file: {head.why}")
    if found.difference is not None:
        shown += _of_difference(found.difference)
    elif found.differing:
        shown.append(f"the same actions, but another state of {', '.join(found.differing)}")
    else:
        shown.append("the core decides as it is recorded")
    if not found.same and head.version != this_build().version:
        shown.append(f"it is of perseid {head.version}, and this is {this_build().version}")
    if found.lost_after:
        shown.append(f"{found.lost_after} decisions after it are in no file: {found.why}")
    return [*shown, *filter(None, [_ENDINGS[found.ending] if found.same else ""])]


def _of_difference(found: Difference) -> list[str]:
    of = f" of job {found.job}" if found.job else ""
    shown = [f"event {found.n} ({found.event}{of}) is decided otherwise:"]
    sides = (("recorded", found.recorded), ("replayed", found.replayed))
    for (side, actions), raised in zip(sides, found.raised, strict=True):
        texts = [_action(one) for one in actions] or ["no action"]
        shown += [f"  {side}: {text}" for text in ([f"raised {raised}"] if raised else texts)]
    return shown


def _action(short: Mapping[str, Any]) -> str:
    return " ".join([str(short["do"]), *(f"{k}={v}" for k, v in short.items() if k != "do")])
