"""The words that all forms share: verdicts, causes, times, numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from perseid.errors.texts import cut
from perseid.replay.findings import (
    Audit,
    Cause,
    Compared,
    ComparedState,
    Difference,
    Kind,
    Verdict,
)
from perseid.replay.reports.values import printable

NAME_MAX = 300  # characters of a name: topics and operators have at most 249
SENTENCE_MAX = 1500  # bytes of one reason
FIELDS_MAX = 20  # names of columns that one cause lists

TITLES: dict[Verdict, str] = {
    "equal": "Equal",
    "diverged": "Diverged",
    "environment_differs": "The environment differs",
    "not_deterministic": "Not deterministic",
    "sink_changed": "The sink topic was changed",
    "input_changed": "The input was changed",
    "input_gone": "The input is gone",
}
KINDS: dict[Kind, str] = {
    "value": "another value",
    "missing": "not made again",
    "added": "made, never committed",
    "order": "another order",
}
STATE_KINDS: dict[Kind, str] = {
    "value": "another value than in the checkpoint",
    "missing": "in the checkpoint alone",
    "added": "not in the checkpoint",
    "order": "another order",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_000  # the years 1 and 9999


def title(audit: Audit) -> str:
    return TITLES[audit.verdict]


def name(text: str) -> str:
    """A name as one printable line."""
    return printable(text, NAME_MAX)


def sentence(text: str) -> str:
    """A sentence as one printable line."""
    return printable(cut(text, SENTENCE_MAX), SENTENCE_MAX)


def reasons(audit: Audit) -> list[str]:
    """The sentences that explain the verdict."""
    return [sentence(text) for text in audit.reasons] or [f"{title(audit)}; no reason is recorded."]


def revision(audit: Audit) -> str:
    """Which revision made the committed outputs, and which ran again."""
    if audit.revision == audit.audited:
        return f"{name(audit.revision)}, run again"
    return f"{name(audit.revision)} made the outputs, {name(audit.audited)} ran again"


def epochs(audit: Audit) -> str:
    return f"{audit.first_epoch:,} to {audit.last_epoch:,} ({count(audit.epochs, 'epoch')})"


def period(audit: Audit) -> str:
    return f"{moment(audit.from_ms)} to {moment(audit.to_ms)}"


def moment(ms: int) -> str:
    return at(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def at(ms: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC, bounded by what Python's dates can be."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, _FIRST_MS), _LAST_MS))


def seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"


def count(number: int, what: str) -> str:
    """`1,200 records`, `1 record`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"


def share(part: float) -> str:
    """A share of 1 in percent: what is not zero is not shown as zero."""
    return "<0.01 %" if 0 < part < 0.0001 else f"{100 * part:.3g} %"


def fields(columns: tuple[str, ...]) -> str:
    more = len(columns) - FIELDS_MAX
    listed = ", ".join(map(name, columns[:FIELDS_MAX]))
    return f"{listed} and {more} more" if more > 0 else listed


def cause(one: Cause) -> str:
    """What differs, in a few words."""
    of = f" in {fields(one.fields)}" if one.fields else ""
    if one.state:
        return f"{name(one.operator)}, state {name(one.state)}: {STATE_KINDS[one.kind]}{of}"
    return f"{name(one.operator)}: {KINDS[one.kind]}{of}"


def extent(one: Cause) -> str:
    """How much differs, and since when."""
    if one.state:
        return (
            f"{entries(one.records)} ({share(one.keys_share)} of the keys), from epoch "
            f"{one.first_epoch:,} at {count(one.epochs, 'checkpoint')}"
        )
    return (
        f"{count(one.records, 'record')}, {count(one.keys, 'key')} ({share(one.keys_share)} of the "
        f"operator's), from epoch {one.first_epoch:,} in {count(one.epochs, 'epoch')}"
    )


def method(one: Compared) -> str:
    """How a topic was compared."""
    how = {
        "ledger": "number and checksum of each epoch",
        "records": "number and checksum, and record by record where they differ",
    }[one.by]
    if one.in_topic:
        how += f", and {one.in_topic:,} of the windows in the topic"
    return f"{how}. {sentence(one.why)}" if one.why else how


def checkpoint(one: ComparedState) -> str:
    """How the state was compared at a checkpoint."""
    found = f"{entries(one.differing)} {'differs' if one.differing == 1 else 'differ'}"
    how = found if one.differing else "equal" if one.partitions else "not compared"
    return f"{how}. {sentence(one.why)}" if one.why else how


def place(one: Difference) -> str:
    """Where a sample is: epoch, operator partition, and position or offset in the topic."""
    return f"{part(one)}: {spot(one)}"


def part(one: Difference) -> str:
    return f"epoch {one.epoch}, partition {one.partition}"


def spot(one: Difference) -> str:
    if one.state:
        return f"state {name(one.state)} at the checkpoint"
    offset = one.committed.offset if one.committed else None
    at = f"offset {offset}" if offset is not None else f"record {one.position} of the epoch"
    return f"{name(one.topic)}:{one.topic_partition}, {at}"


def topics(one: Cause) -> set[str]:
    """The topics of a cause's samples; none of a state's."""
    return {sample.topic for sample in one.samples if not sample.state}


def environment(audit: Audit) -> Iterator[tuple[str, str, str, bool]]:
    """Name, recorded, of this run, and whether they differ; "" is unknown."""
    for part in sorted({*audit.recorded, *audit.environment}):
        then, now = audit.recorded.get(part, ""), audit.environment.get(part, "")
        yield name(part), name(then), name(now), bool(audit.recorded) and then != now
