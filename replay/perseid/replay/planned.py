"""What an audit would do, without doing it: `perseid replay --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perseid.replay import ranges
from perseid.topics import codec, names
from perseid.topics.records import EpochDone

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec
    from perseid.records.access import Bootstrap
    from perseid.replay.ranges import Past, Range
    from perseid.topics.admin import TopicReader

REPORTS_MAX = 20_000  # of the job's progress, from which bytes and time are estimated
READ_S = 60.0


@dataclass(frozen=True, slots=True)
class Planned:
    """An audit before it runs. Times as in `findings.Audit`; the numbers as in `ranges.Estimate`.

    `seconds`: at the speed of the job, or of the rate that is asked for if that is slower.
    `topics`: those whose records are compared. `gone`: what of the input is missing, "" if nothing.
    `sample`: what it is a sample of, "" of a whole range.
    """

    job: str
    revision: str
    audited: str
    first_epoch: int
    last_epoch: int
    from_ms: int
    to_ms: int
    base: str
    epochs: int
    compared: int
    records: int
    measured: int
    bytes: int | None
    seconds: float | None
    topics: tuple[str, ...]
    gone: str
    sample: str = ""


def planned(
    span: Range, past: Past, done: list[EpochDone], spec: JobSpec, audited: str, gone: str,
    rate: int | None,
) -> Planned:  # fmt: skip
    """`done`: reports of epochs that the job has run. `spec`: of the revision that is audited."""
    cost = ranges.dry_run(span, past, done)
    seconds = cost.seconds
    if rate is not None:
        seconds = max(seconds or 0.0, cost.records / rate)
    return Planned(
        spec.name, span.revision, audited, span.first_epoch, span.last_epoch, span.from_ms,
        span.to_ms, span.base, cost.epochs, cost.compared, cost.records, cost.measured, cost.bytes,
        None if seconds is None else round(seconds, 1), tuple(sorted(spec.written_topics)), gone,
    )  # fmt: skip


def summed(parts: Sequence[Planned], sample: str) -> Planned:
    """All of them, which run one after the other. `sample`: as in `Planned`."""
    known = [one for one in parts if one.bytes is not None and one.seconds is not None]
    return replace(
        parts[0], last_epoch=parts[-1].last_epoch, to_ms=parts[-1].to_ms, sample=sample,
        epochs=sum(one.epochs for one in parts), compared=sum(one.compared for one in parts),
        records=sum(one.records for one in parts),
        bytes=sum(one.bytes or 0 for one in known) if len(known) == len(parts) else None,
        seconds=sum(one.seconds or 0 for one in known) if len(known) == len(parts) else None,
        gone=next((one.gone for one in parts if one.gone), ""),
    )  # fmt: skip


def reports(job: str, brokers: Bootstrap, topics: TopicReader) -> list[EpochDone]:
    """The last reports of epochs that the job's progress topic has."""
    from perseid.topics.log import KafkaLogReader

    place = names.progress(job), 0
    end = topics.ends([place])[place]
    start = max(topics.starts([place])[place], end - REPORTS_MAX)
    with closing(KafkaLogReader(brokers)) as logs:
        entries = logs.read_range(*place, start, end, timeout_s=READ_S)
    found = (codec.decode_progress(place[0], entry.offset, entry.value) for entry in entries)
    return [one for one in found if isinstance(one, EpochDone)]
