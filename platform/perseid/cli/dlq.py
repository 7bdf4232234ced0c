"""`perseid dlq`: dead letters of a job, and how to send back those that can be corrected."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import jobs, output
from perseid.errors import PermanentError, PerseidError, RefusedError, UsageError

if TYPE_CHECKING:
    from perseid.cli.dead_letters import Letter, Target
    from perseid.cli.redrive import Outcome, Trail
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import JobEntry
    from perseid.records.access import Bootstrap
    from perseid.topics.admin import TopicInfo

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

LETTERS_COUNTED_MAX = 100_000  # of one job by `dlq list`: about a second of reading

Topic = Annotated[
    str | None, typer.Option("--topic", help="The dead-letter topic, if not the job's present one.")
]


@app.callback()
def group() -> None:
    """List, show and redrive dead letters."""


class Box:
    """The dead-letter topic of one job, at the time of creation."""

    def __init__(self, cluster: Any, bootstrap: Bootstrap, spec: JobSpec, info: TopicInfo) -> None:
        from perseid.cli.redrive import Trail
        from perseid.topics.log import KafkaLogReader
        from perseid.topics.ranges import RangeReader

        self.cluster, self.bootstrap, self.spec, self.info = cluster, bootstrap, spec, info
        self._ranges, self.logs = RangeReader(bootstrap), KafkaLogReader(bootstrap)
        places = [(info.name, partition) for partition in range(info.partitions)]
        self._starts, self._ends = cluster.topics.starts(places), cluster.topics.ends(places)
        self.trail: Trail = Trail(spec.name, info.topic_id, cluster.topics, self.logs)
        self.trail.read(settled=False)

    def letters(self, partition: int | None = None, offset: int = 0) -> Iterator[Letter]:
        """This job's letters, of one partition or of all, from `offset` on."""
        from perseid.cli.redrive import letters

        starts = {
            place: min(max(start, offset), self._ends[place])
            for place, start in self._starts.items() if partition in {None, place[1]}
        }  # fmt: skip
        found = letters(self._ranges, starts, self._ends)
        return (letter for letter in found if letter.job == self.spec.name)

    def whole(self, letter: Letter) -> Letter:
        """The letter; a pointer with its record, if that still exists."""
        from perseid.cli.dead_letters import read_back, source_of

        origin = letter.origin
        if letter.whole_bytes is None or origin is None or letter.place in self.trail.found:
            return letter
        if source_of(self.spec, origin.topic) is None:
            return letter
        info = self.cluster.topics.describe([origin.topic]).get(origin.topic)
        if info is None or origin.partition >= info.partitions:
            return letter
        place = origin.topic, origin.partition
        topics = self.cluster.topics
        if not topics.starts([place])[place] <= origin.offset < topics.ends([place])[place]:
            return letter
        for batch in self._ranges.read(*place, origin.offset, origin.offset + 1):
            for message in batch:
                return read_back(letter, message.key(), message.value())
        return letter

    def close(self) -> None:
        self._ranges.close()
        self.logs.close()


@app.command("list", epilog="Example: perseid dlq list")
def list_(data: output.Data = None, as_json: output.Json = False) -> None:
    """The dead letters of every job: how many, of what kind, how many redriven."""
    with jobs.connected(data) as cluster:
        rows = [
            _row(cluster, data, spec)
            for _, entry in sorted(cluster.registry.jobs().items())
            if (spec := _spec(cluster, entry)).errors.deadletter_topic is not None
        ]
    if as_json:
        output.document({"jobs": rows})
        return
    if not rows:
        output.note(
            "no job has a dead-letter topic: `errors: {tolerance: all}` in job.yaml gives it one"
        )
    columns = ("job", "topic", "letters", "of_operators", "redriven", "kinds")
    output.table(columns, [[*(r[c] for c in columns[:-1]), _kinds(r)] for r in rows])


@app.command(epilog="Example: perseid dlq show pageviews --limit 5")
def show(
    job: jobs.Job,
    limit: Annotated[int, typer.Option("--limit", help="How many.", min=1)] = 10,
    partition: Annotated[int | None, typer.Option("--partition", help="Only this one.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", help="From this one on.", min=0)] = None,
    topic: Topic = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Show dead letters with their reason: the last ones, or those from --offset on."""
    with _opened(data, job, topic) as box:
        if partition is not None and not 0 <= partition < box.info.partitions:
            raise UsageError(
                f"--partition {partition}: {box.info.name} has partitions 0 to "
                f"{box.info.partitions - 1}"
            )
        found = box.letters(partition, offset or 0)
        kept = deque(found, maxlen=limit) if offset is None else list(islice(found, limit))
        shown = [_letter(letter, box.trail) for letter in kept]
        name = box.info.name
    if as_json:
        output.document({"job": job, "topic": name, "letters": shown})
    elif not shown:
        output.note(f"{name} has no dead letters of {job} there")
    else:
        output.lines(line for letter in shown for line in _text(letter))


@app.command(epilog="Example: perseid dlq redrive pageviews --transform fix.py:corrected --dry-run")
def redrive(
    job: jobs.Job,
    topic: Topic = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Letters of this time and later.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Letters before this time.")
    ] = None,
    offsets: Annotated[
        str | None, typer.Option("--offsets", metavar="P:O,P:O-O", help="Only these letters.")
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option("--transform", metavar="FILE.py:FUNCTION", help="Corrects each letter."),
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Send dead letters back to the topics of their records, each once, however often it is run."""
    from perseid.cli import dead_letters, transforms

    choice = dead_letters.choice(from_, to, offsets)
    function = transforms.load(transform) if transform is not None else None
    with _opened(data, job, topic) as box:
        infos = cache(lambda name: box.cluster.topics.describe([name]).get(name))

        def chosen() -> Iterator[Letter]:
            return map(box.whole, filter(choice.takes, box.letters()))

        def made(letter: Letter) -> Target | None:
            if function is None:
                value: bytes | None = dead_letters.original(letter, box.spec)
            else:
                value = transforms.corrected(function, str(transform), letter)
            if value is None:
                return None
            target = dead_letters.target(letter, value)
            target = dead_letters.fitting(target, infos(target.topic))
            reason = dead_letters.too_large(target, infos(target.topic))
            if reason is not None:
                raise PermanentError(f"{letter}: {reason}")
            return target

        limit = _checked(box, chosen(), infos, transformed=function is not None)
        outcome = _redrive(box, chosen(), made, transform or "", limit, dry_run)
        if not dry_run:
            _forget(box)
    if as_json:
        output.document({"job": job, "topic": box.info.name, "dry_run": dry_run, **_shown(outcome)})
    else:
        output.lines(_outcome_text(job, outcome, dry_run))


def _checked(box: Box, chosen: Iterable[Letter], infos: Any, *, transformed: bool) -> int:
    """Returns the smallest batch limit of the target topics, in bytes.

    RefusedError when a letter that is not redriven yet cannot go back: then none is sent.
    """
    from perseid.cli import dead_letters
    from perseid.topics.clients import BATCH_BYTES_MAX

    refused, limit = [], BATCH_BYTES_MAX
    for letter in chosen:
        if letter.place in box.trail.found:
            continue
        info = infos(letter.origin.topic) if letter.origin is not None else None
        reason = dead_letters.refusal(letter, box.spec, info, transformed=transformed)
        if reason is not None:
            refused.append((letter, reason))
        elif info is not None:
            limit = min(limit, info.message_bytes_max)
    if refused:
        raise RefusedError(dead_letters.refused_text(box.spec.name, refused))
    return limit


def _redrive(
    box: Box, chosen: Iterable[Letter], made: Any, transform: str, limit: int, dry_run: bool
) -> Outcome:
    from perseid.cli.redrive import Redrive
    from perseid.topics import control
    from perseid.topics.kafka_transactions import KafkaTransactions

    trail = control.redriven_topic(box.spec.name)
    if not dry_run:
        box.cluster.topics.create(trail.name, trail.partitions, trail.config)
    with closing(KafkaTransactions(box.bootstrap)) as transactions:
        run = Redrive(
            box.spec.name, box.info, box.trail, transactions, box.cluster.clock,
            transform=transform, batch_bytes=limit,
        )  # fmt: skip
        return run.run(chosen, made, dry_run=dry_run)


def _forget(box: Box) -> None:
    """Trims the trail after the work; a failure is left to the next redrive."""
    from perseid.cli.redrive import forget

    try:
        forget(box.spec.name, box.cluster.topics, box.logs)
    except PerseidError as error:
        output.note(f"the trail of redriven letters was not trimmed: {error}")


@contextmanager
def _opened(data: Path | None, job: str, topic: str | None) -> Iterator[Box]:
    """The job's dead-letter topic; refused when there is none."""
    from perseid.embedded import deployment
    from perseid.jobs.operations import steering

    with jobs.connected(data) as cluster:
        spec = _spec(cluster, steering.stored_entry(cluster.registry, job).value)
        name = topic or spec.errors.deadletter_topic
        if name is None:
            raise RefusedError(
                f"{job} has no dead-letter topic: `errors: {{tolerance: all}}` in its job.yaml "
                "gives it one; `--topic` names one that it had before"
            )
        info = cluster.topics.describe([name]).get(name)
        if info is None:
            raise RefusedError(f"the dead-letter topic {name} of {job} does not exist")
        with closing(Box(cluster, deployment(data).brokers(), spec, info)) as box:
            yield box


def _spec(cluster: Any, entry: JobEntry) -> JobSpec:
    """The applied revision of a job."""
    from perseid.jobs.operations import applying

    with TemporaryDirectory(prefix="perseid-dlq-") as scratch:
        spec: JobSpec = applying.revision(cluster, entry.archive, Path(scratch)).spec
    return spec


def _row(cluster: Any, data: Path | None, spec: JobSpec) -> dict[str, Any]:
    """One line of the list."""
    from perseid.cli.dead_letters import summary
    from perseid.embedded import deployment

    topic = str(spec.errors.deadletter_topic)
    info = cluster.topics.describe([topic]).get(topic)
    row = {"job": spec.name, "topic": topic, "exists": info is not None}
    if info is None:
        return {**row, **summary((), lambda _: False), "counted_all": True}
    with closing(Box(cluster, deployment(data).brokers(), spec, info)) as box:
        found = box.letters()
        counted = summary(islice(found, LETTERS_COUNTED_MAX), box.trail.found.__contains__)
        return {**row, **counted, "counted_all": next(found, None) is None}


def _kinds(row: dict[str, Any]) -> str:
    found = ", ".join(f"{kind or 'unknown'} {count}" for kind, count in row["kinds"].items())
    return found if row["counted_all"] else f"{found} of the first {LETTERS_COUNTED_MAX}"


def _letter(letter: Letter, trail: Trail) -> dict[str, Any]:
    from perseid.cli.topic_records import as_text

    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "time_ms": letter.time_ms,
        "origin": letter.origin,
        "kind": letter.kind,
        "reason": letter.reason,
        "operator": letter.operator,
        "key": as_text(letter.key),
        "value": as_text(letter.value),
        "whole_bytes": letter.whole_bytes,
        "headers": letter.headers,
        "redriven": trail.found.get(letter.place),
    }


def _text(shown: dict[str, Any]) -> list[str]:
    by = f", operator {shown['operator']}" if shown["operator"] else ""
    lines = [
        f"{shown['partition']}:{shown['offset']}  {shown['kind']}: {shown['reason']}",
        f"  of     {shown['origin'] or 'no record of a source'}{by}",
        f"  value  {shown['value']}",
    ]
    if (size := shown["whole_bytes"]) is not None:
        lines[-1] += f" (the head of {size} bytes, too many for this topic)"
    if (to := shown["redriven"]) is not None:
        lines.append(f"  sent   to {_place(to)}")
    return lines


def _place(to: Any) -> str:
    if to.first == to.last:
        return f"{to.topic}[{to.to_partition}] offset {to.first}"
    return f"{to.topic}[{to.to_partition}] offsets {to.first} to {to.last}"


def _shown(outcome: Outcome) -> dict[str, Any]:
    return {
        "redriven": len(outcome.redriven),
        "already": outcome.already,
        "skipped": [{"partition": p, "offset": o} for p, o in outcome.skipped],
        "letters": outcome.redriven,
    }


def _outcome_text(job: str, outcome: Outcome, dry_run: bool) -> list[str]:
    done = "would be redriven" if dry_run else "redriven"
    lines = [f"{job}: {len(outcome.redriven)} dead letters {done}"]
    topics = sorted({to.topic for to in outcome.redriven})
    lines += [f"  {sum(o.topic == t for o in outcome.redriven)} to {t}" for t in topics]
    if outcome.already:
        lines.append(f"  {outcome.already} had been redriven before")
    if outcome.skipped:
        shown = ", ".join(f"{p}:{o}" for p, o in outcome.skipped[:10])
        more = ", ..." if len(outcome.skipped) > 10 else ""
        count = len(outcome.skipped)
        lines.append(f"  {count} left out by the transform, to be had again: {shown}{more}")
    return lines
