"""`perseid logs`: the logs of processes and jobs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from perseid.cli import loglines, output
from perseid.errors import RefusedError, UsageError

POLL_S = 0.2


def logs(
    what: Annotated[
        str | None, typer.Argument(help="A process (w1, kafka, ...) or a job; default all.")
    ] = None,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow new lines.")] = False,
    count: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the past.")] = 200,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Show the logs of a process, or all that is about a job, merged by time."""
    from perseid.embedded.paths import Home, locate

    if follow and as_json:
        raise UsageError("--json prints one document, so it cannot go with -f")
    folder = Home(locate(data)).logs
    files = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not files:
        raise RefusedError(f"no logs in {folder}: type `perseid up`")
    job = what if what is not None and what not in files else None
    if what in files:
        files = {what: files[what]}
    ends = {name: path.stat().st_size for name, path in files.items()}
    past = deque(_past(files, job), maxlen=count)
    if job is not None and not past and not follow:
        known = ", ".join(files)
        raise RefusedError(f"no log names {job!r}; processes: {known}; jobs: `perseid jobs list`")
    if as_json:
        output.document({"entries": list(past)})
        return
    output.lines(loglines.shown(entry, with_process=len(files) > 1) for entry in past)
    if follow:
        for entry in _new_entries(files, ends, job):
            output.lines([loglines.shown(entry, with_process=len(files) > 1)])


def _past(files: dict[str, Path], job: str | None) -> Iterator[loglines.Entry]:
    read = [loglines.entries(name, _written(path).splitlines()) for name, path in files.items()]
    found = loglines.merged(read)
    return loglines.about(job, found) if job is not None else found


def _written(path: Path) -> str:
    """The content of the file, after the part that was there when it was last emptied."""
    from perseid.embedded.rotation import old

    both = (old(path, 1), path)
    return "".join(each.read_text(errors="replace") for each in both if each.is_file())


def _new_entries(
    files: dict[str, Path], ends: dict[str, int], job: str | None
) -> Iterator[loglines.Entry]:
    """Yields new entries of the files without limit; a rotated file is read from its start."""
    while True:
        for name, path in files.items():
            text = _from(path, ends, name)
            found = loglines.entries(name, text.splitlines())
            yield from loglines.about(job, found) if job is not None else found
        time.sleep(POLL_S)


def _from(path: Path, ends: dict[str, int], name: str) -> str:
    """Whole lines since the last call."""
    size = path.stat().st_size if path.is_file() else 0
    start = ends[name] if size >= ends[name] else 0
    if size == start:
        return ""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(size - start)
    whole = data[: data.rfind(b"\n") + 1]
    ends[name] = start + len(whole)
    return whole.decode(errors="replace")
