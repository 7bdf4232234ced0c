"""`perseid topics`: the topics with their purposes, and topics to try a job with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import jobs, output
from perseid.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from perseid.cli.topic_records import Shown
    from perseid.topics.admin import TopicAdmin, TopicInfo

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")]


@app.callback()
def group() -> None:
    """List, create, read and write topics."""


@app.command("list", epilog="Example: perseid topics list wordcount")
def list_(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job's.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """What exists and why: sources, sinks, and what each job keeps for itself."""
    from perseid.cli.topic_roles import of_jobs
    from perseid.topics.control import optional_topics

    admin = _admin(data)
    uses = of_jobs(data)
    if job is not None and job not in uses:
        known = ", ".join(sorted(uses)) or "none"
        raise RefusedError(f"no job {job!r} is applied; there are: {known}")
    roles: dict[str, list[str]] = {}
    for name, topics in uses.items():
        for topic, why in topics.items() if job in {None, name} else ():
            roles.setdefault(topic, []).append(f"{name}: {why}")
    existing = admin.list()
    for name in uses if job is None else (job,):
        for kept in optional_topics(name, existing):
            if kept.name not in uses[name]:
                roles.setdefault(kept.name, []).append(f"{name}: {kept.why}")
    shown = sorted({*existing, *roles} if job is None else roles)
    infos = admin.describe([t for t in shown if t in set(existing)])
    rows = [_row(topic, infos.get(topic), roles.get(topic, [])) for topic in shown]
    _add_sizes(admin, infos, rows)
    if as_json:
        output.document({"topics": rows})
        return
    columns = ("topic", "partitions", "offsets", "policy", "why")
    output.table(columns, [[*(r[c] for c in columns[:-1]), "; ".join(r["why"])] for r in rows])


@app.command(epilog="Example: perseid topics create lines --partitions 4")
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option("--partitions", help="How many.", min=1)] = 1,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="K=V", help="A setting of the topic.")
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Create a topic; refused when there is one of that name."""
    from perseid.topics.names import check_topic

    settings = _settings(config or [])
    admin = _admin(data)
    there = check_topic(topic) in admin.list()
    if there or (not dry_run and not admin.create(topic, partitions, settings)):
        raise RefusedError(
            f"topic {topic} exists; see it with `perseid topics list`, or choose another name"
        )
    if as_json:
        output.document(
            {"topic": topic, "partitions": partitions, "config": settings, "dry_run": dry_run}
        )
    else:
        done = "would be created" if dry_run else "created"
        output.lines([f"topic {topic} {done} with {partitions} partitions"])


@app.command(epilog="Example: perseid topics produce lines --file book.txt")
def produce(
    topic: Topic,
    file: Annotated[str, typer.Option("--file", help="One record a line; - reads stdin.")],
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="What is before it is the record's key.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Records a second; without it at once.", min=0.01)
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Write the lines of a file into a topic."""
    from perseid.cli.topic_records import lines_of, write

    if file != "-" and not Path(file).is_file():
        raise UsageError(f"--file {file}: there is no such file")
    if key_separator == "":
        raise UsageError("--key-separator is empty: expected at least one character")
    admin = _admin(data)
    _existing(admin, topic)
    records = lines_of(file, key_separator.encode() if key_separator else None)
    if dry_run:
        count, seconds = sum(1 for _ in records), 0.0
    else:
        count, seconds = write(jobs.bootstrap(data), topic, records, rate)
    if as_json:
        output.document(
            {"topic": topic, "records": count, "seconds": round(seconds, 3), "dry_run": dry_run}
        )
    else:
        done = "would be written" if dry_run else f"written in {seconds:.1f} s"
        output.lines([f"{count} records {done} to {topic}"])


@app.command(epilog="Example: perseid topics tail word-counts -n 10")
def tail(
    topic: Topic,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the first record.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option("-n", help="Show so many and end: the last, or the first.", min=1),
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="read_committed or read_uncommitted.")
    ] = "read_committed",
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Show records; without -n until Ctrl-C (with --json: up to the present end)."""
    from perseid.cli import topic_records

    if isolation not in {"read_committed", "read_uncommitted"}:
        raise UsageError(f"--isolation {isolation}: expected read_committed or read_uncommitted")
    admin = _admin(data)
    info = _existing(admin, topic)
    look = topic_records.Look(jobs.bootstrap(data), admin, info, isolation == "read_committed")
    if count is None and not as_json:
        for record in look.follow(from_beginning=from_beginning):
            output.lines([_line(record)])
        return
    found = look.first(count) if from_beginning or count is None else look.last(count)
    if as_json:
        output.document({"topic": topic, "records": found})
    else:
        output.lines(_line(r) for r in found)


def _admin(data: Path | None) -> TopicAdmin:
    from perseid.topics.admin import TopicAdmin

    return TopicAdmin(jobs.bootstrap(data))


def _existing(admin: TopicAdmin, topic: str) -> TopicInfo:
    info = admin.describe([topic]).get(topic)
    if info is None:
        raise RefusedError(
            f"topic {topic} does not exist; create it with `perseid topics create {topic} "
            "--partitions N`"
        )
    return info


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    wrong = [p for p in pairs if "=" not in p]
    if wrong:
        raise UsageError(f"--config {wrong[0]}: expected KEY=VALUE, such as retention.ms=3600000")
    return dict(p.split("=", 1) for p in pairs)


def _row(topic: str, info: TopicInfo | None, why: list[str]) -> dict[str, Any]:
    """One line of the list; a needed topic that does not exist has no partitions."""
    return {
        "topic": topic,
        "exists": info is not None,
        "partitions": info.partitions if info else None,
        "offsets": None,
        "policy": info.cleanup_policy if info else "does not exist",
        "topic_id": info.topic_id if info else None,
        "why": why,
    }


def _add_sizes(admin: TopicAdmin, infos: dict[str, TopicInfo], rows: list[dict[str, Any]]) -> None:
    """Adds the offsets in use; markers and aborted records take up some too."""
    places = [(t, p) for t, info in infos.items() for p in range(info.partitions)]
    ends, starts = admin.ends(places), admin.starts(places)
    for row in rows:
        if row["exists"]:
            row["offsets"] = sum(ends[p] - starts[p] for p in places if p[0] == row["topic"])


def _line(record: Shown) -> str:
    key = "" if record.key is None else f"{record.key}\t"
    return f"{record.partition}:{record.offset}\t{key}{record.value}"
