"""The source stage of an epoch: reads one split, decodes it, counts it, and refuses bad records.

A split is what one task reads: whole ranges of source partitions, in the token's order. Its rows
keep that order, so a re-run gives the same rows in the same places.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import pyarrow as pa

from perseid.engine.task_report import ReadCount, Reads
from perseid.errors import (
    BadInputError,
    InputChanged,
    ReplayDataLost,
    TopicIdentityChanged,
    TransientAnswer,
)
from perseid.kernels.library import all_bytes
from perseid.records import crashpoints
from perseid.worker.dead_letters import null_keys
from perseid.worker.dead_letters.null_keys import KeyedBy
from perseid.worker.dead_letters.places import Places, Run
from perseid.worker.dead_letters.refused import Refused
from perseid.worker.formats import decode, event_time, schemas

if TYPE_CHECKING:
    from perseid.jobs.model.spec import EventTimeSpec
    from perseid.records.access import Bootstrap
    from perseid.topics.columns import Record, Records
    from perseid.topics.ranges import ColumnReader
    from perseid.topics.records import SourceRange, Token
    from perseid.worker.formats.schemas import Address

METADATA = {  # columns that a source offers besides its value columns
    "key": pa.binary(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "partition": pa.int32(),
    "offset": pa.int64(),
}


@dataclass(frozen=True)
class SourcePlan:
    """How one source is read: its format and the metadata columns that have a reader.

    `tolerate`: records that do not fit become dead letters instead of stopping the job.
    `registry`: of the writers' schemas, for values of the Confluent wire format.
    `readers`: the keyed operators that read it directly; they refuse rows without a key.
    `keeps_keys`: for dead letters of operators that bisect its rows. `splits`: those of a spread
    job's token that have a part of it; None: all.
    """

    name: str
    format: str
    columns: dict[str, str] | None
    avro: dict[str, Any] | None
    metadata: tuple[str, ...]
    tolerate: bool
    event_time: EventTimeSpec | None = None
    registry: Address | None = None
    readers: tuple[KeyedBy, ...] = ()
    keeps_keys: bool = False
    splits: tuple[int, ...] | None = None

    def is_in(self, split: int) -> bool:
        """Whether the split has a part of the source."""
        return self.splits is None or split in self.splits

    @property
    def has_letters(self) -> bool:
        """Whether a record of it may become a dead letter."""
        late = self.event_time is not None and self.event_time.late == "dlq"
        return self.tolerate or late or any(reader.tolerates for reader in self.readers)

    def schema(self) -> pa.Schema:
        found = _format(self).schema
        for name in self.metadata:
            found = found.append(pa.field(name, METADATA[name]))
        return found


@dataclass
class SplitCount:
    """What one split read of one source; the token log keeps it, for comparison at a replay."""

    count: int = 0
    bytes: int = 0
    crc: int = 0
    refused: list[Refused] = field(default_factory=list)
    late: int = 0
    event_times: dict[int, int] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)  # of the accepted rows

    @property
    def places(self) -> Places:
        """Where the accepted rows are in their topic."""
        return Places(tuple(self.runs))

    def add(self, values: pa.BinaryArray) -> None:
        data = all_bytes(values)
        self.count += len(values)
        self.bytes += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def read(self) -> ReadCount:
        return ReadCount(
            self.count, self.bytes, self.crc, len(self.refused), self.late, dict(self.event_times)
        )


def _format(plan: SourcePlan) -> decode.Format:
    return _cached_format(
        plan.name, plan.format, orjson.dumps(plan.columns), orjson.dumps(plan.avro), plan.registry
    )


@lru_cache(maxsize=256)
def _cached_format(
    _name: str, format_: str, columns: bytes, avro: bytes, registry: Address | None
) -> decode.Format:
    known = schemas.known(registry) if registry is not None else None
    return decode.make(format_, orjson.loads(columns), orjson.loads(avro), known)


class Ranges(Protocol):
    """Reads [start, end) of a partition, as `perseid.topics.ranges.ColumnReader` does."""

    def prepare(self, starts: Mapping[tuple[str, int], int]) -> None: ...

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]: ...

    def identities(self, topics: Sequence[str]) -> dict[str, str]: ...


@cache
def ranges(bootstrap: Bootstrap) -> ColumnReader:
    """One reader per process: its consumers stay positioned after the last record read."""
    from perseid.topics.ranges import ColumnReader

    return ColumnReader(bootstrap)


def read_split(
    reader: Ranges, plan: SourcePlan, token: Token, split: int, count: SplitCount
) -> Iterator[pa.Table]:
    """The rows of `plan`'s source in `split`; `count` is complete when the iterator ends.

    Raises:
        BadInputError: a record does not fit and the job does not tolerate it.
        ReplayDataLost: retention removed a part of the range.
        TopicIdentityChanged: the topic read is not the one that the token names.
    """
    ranges = token.splits[split] if split < len(token.splits) else ()
    mine = [found for found in ranges if found.source == plan.name and found.end > found.start]
    reader.prepare({(found.topic, found.partition): found.start for found in mine})
    for found in mine:
        for records in reader.read(found.topic, found.partition, found.start, found.end):
            yield _decode(plan, found, records, token, count)
    if mine:
        _check_identity(reader, mine)
    crashpoints.reach("source.after-read")


def _check_identity(reader: Ranges, ranges: Sequence[SourceRange]) -> None:
    """Raises when a source topic is not the one to which the token's offsets belong.

    Checked after the reading and before any commit: a worker that is paused between a check and the
    reading would accept another topic's records (seed 1165).
    """
    wanted = {found.topic: found.topic_id for found in ranges}
    there = reader.identities(list(wanted))
    for topic, topic_id in wanted.items():
        if topic not in there:
            raise TransientAnswer(
                f"source topic {topic} does not exist any more; restore the topic, or remove the "
                "job and apply it again"
            )
        if there[topic] != topic_id:
            raise TopicIdentityChanged(topic, topic_id, there[topic])


def _decode(
    plan: SourcePlan, found: SourceRange, records: Records, token: Token, count: SplitCount
) -> pa.Table:
    count.add(records.values)
    table, refused = _format(plan).decode(records.values)
    if refused:
        _refuse(plan, found, records, refused, count)
        records = records.without(refused)
    for name in plan.metadata:
        table = table.append_column(name, _metadata(name, records))
    gone: list[int] = []
    if plan.event_time is not None:
        gone = _timed(plan, found, records, table, token, count)
    _refuse_null_keys(plan, found, records, table, gone, count)
    if gone:
        table, records = event_time.without(table, gone), records.without(gone)
    keys = records.keys if plan.keeps_keys else None
    count.runs.append(Run(found.topic, found.partition, records.offsets, keys))
    return table


def _refuse_null_keys(
    plan: SourcePlan,
    found: SourceRange,
    records: Records,
    table: pa.Table,
    gone: list[int],
    count: SplitCount,
) -> None:
    """Makes dead letters of records that a keyed operator refuses, or stops the job.

    The rows stay in the table for other readers: `flow` leaves them out for that operator.
    """
    for row, readers in null_keys.refused(table, plan.readers, gone).items():
        reason = null_keys.reason(table, row, readers)
        bad = _refused(found, records[row], null_keys.KIND, reason)
        if not all(reader.tolerates for reader in readers):
            raise BadInputError(f"{bad.place}: {reason}. {null_keys.stopping(readers)}")
        count.refused.append(bad)


def _timed(
    plan: SourcePlan,
    found: SourceRange,
    records: Records,
    table: pa.Table,
    token: Token,
    count: SplitCount,
) -> list[int]:
    """The rows to leave out; records the largest event time and the number of late rows."""
    assert plan.event_time is not None
    column = plan.event_time.column
    if column in table.schema.names:
        times = event_time.milliseconds(table[column])
    else:
        times = event_time.milliseconds(_metadata(column, records))
    wrong = event_time.wrong(times)
    if wrong:
        reasons = {i: event_time.refusal(column, times[i]) for i in wrong}
        _refuse(plan, found, records, reasons, count)
    largest = event_time.largest(times)
    if largest is not None:
        before = count.event_times.get(found.partition, largest)
        count.event_times[found.partition] = max(before, largest)
    late = event_time.late(times, token.watermark_ms)
    count.late += len(late)
    if plan.event_time.late == "dlq":
        bad = [
            _refused(found, records[i], "LateRecord", reason)
            for i, reason in event_time.late_refusals(late, times, token.watermark_ms).items()
        ]
        count.refused.extend(bad)
    return wrong if plan.event_time.late == "update" else [*wrong, *late]


def _refuse(
    plan: SourcePlan,
    found: SourceRange,
    records: Records,
    reasons: dict[int, str],
    count: SplitCount,
) -> None:
    """Makes dead letters of the records with these indices, or stops the job."""
    bad = [_refused(found, records[i], "BadInputError", r) for i, r in reasons.items()]
    if not plan.tolerate:
        raise BadInputError(bad[0].explain())
    count.refused.extend(bad)


def _refused(found: SourceRange, record: Record, kind: str, reason: str) -> Refused:
    return Refused(
        topic=found.topic,
        partition=found.partition,
        offset=record.offset(),
        key=record.key(),
        value=record.value(),
        kind=kind,
        reason=reason,
    )


def _metadata(name: str, records: Records) -> pa.Array:
    kind = METADATA[name]
    if name == "key":
        return records.keys
    if name == "timestamp":
        return pa.array(records.timestamps).cast(kind)
    if name == "partition":
        return pa.repeat(pa.scalar(records.partition, kind), len(records))
    return pa.array(records.offsets, kind)


def compare(plan: SourcePlan, token: Token, split: int, count: SplitCount) -> None:
    """InputChanged when a replay reads other input than the first run did."""
    for check in token.checks:
        if (check.epoch, check.split, check.source) != (token.epoch, split, plan.name):
            continue
        if (check.count, check.crc) != (count.count, count.crc):
            raise InputChanged(
                f"epoch {token.epoch}, split {split}, source {plan.name}: the input has changed "
                f"since it was first read: {check.count} records with CRC {check.crc:08x} then, "
                f"{count.count} with {count.crc:08x} now; a compacted or re-created topic cannot "
                "be replayed; start over with `perseid jobs start JOB --from scratch`"
            )


def read_again(ranges: Ranges, plans: Iterable[SourcePlan], token: Token) -> Reads:
    """Reads an epoch's input again and counts it as its tasks did; skips what retention removed.

    Used for event times alone: the epoch is done, and records that this revision refuses may have
    been tolerated then.
    """
    found: dict[tuple[int, str], ReadCount] = {}
    for strict in plans:
        plan = replace(strict, tolerate=True, readers=())
        for split in range(len(token.splits)):
            count = SplitCount()
            try:
                for _ in read_split(ranges, plan, token, split, count):
                    pass
            except ReplayDataLost:
                continue
            found[split, plan.name] = count.read()
    return found
