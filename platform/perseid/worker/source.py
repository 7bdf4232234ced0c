"""The source stage of an epoch: reads one split, decodes it, counts it, and refuses bad records.

A split is what one task reads: whole ranges of source partitions, in the token's order. Its rows
come out in that order, so a re-run gives the same rows in the same places.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import pyarrow as pa

from perseid.errors import BadInputError, PermanentError
from perseid.records import crashpoints
from perseid.worker import formats
from perseid.worker.refused import Refused

if TYPE_CHECKING:
    from perseid.topics.ranges import RangeReader
    from perseid.topics.records import SourceRange, Token

METADATA = {  # columns that a source offers beside its value columns
    "key": pa.binary(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "partition": pa.int32(),
    "offset": pa.int64(),
}


@dataclass(frozen=True)
class SourcePlan:
    """How one source is read: its format and the metadata columns that somebody uses."""

    name: str
    format: str
    columns: dict[str, str] | None
    avro: dict[str, Any] | None
    metadata: tuple[str, ...]
    tolerate: bool

    def schema(self) -> pa.Schema:
        found = _format(self).schema
        for name in self.metadata:
            found = found.append(pa.field(name, METADATA[name]))
        return found


@dataclass
class SplitCount:
    """What one split read of one source: the token log keeps it so that a replay can compare."""

    count: int = 0
    crc: int = 0
    refused: list[Refused] = field(default_factory=list)

    def add(self, values: list[bytes | None]) -> None:
        self.count += len(values)
        self.crc = zlib.crc32(b"".join(filter(None, values)), self.crc)


def _format(plan: SourcePlan) -> formats.Format:
    return _cached_format(
        plan.name, plan.format, orjson.dumps(plan.columns), orjson.dumps(plan.avro)
    )


@cache
def _cached_format(_name: str, format_: str, columns: bytes, avro: bytes) -> formats.Format:
    return formats.make(format_, orjson.loads(columns), orjson.loads(avro))


class Ranges(Protocol):
    """Reads [start, end) of a partition as `perseid.topics.ranges.RangeReader` does."""

    def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> Iterator[Sequence[Any]]: ...


@cache
def ranges(bootstrap: str) -> RangeReader:
    """One reader a process: its consumers stay positioned behind what they read last."""
    from perseid.topics.ranges import RangeReader

    return RangeReader(bootstrap)


def read_split(
    reader: Ranges, plan: SourcePlan, token: Token, split: int, count: SplitCount
) -> Iterator[pa.Table]:
    """The rows of `plan`'s source in `split`; `count` is complete when the iterator ends.

    Raises:
        BadInputError: a record does not fit and the job tolerates none.
        ReplayDataLost: retention removed a part of the range.
    """
    for found in token.splits[split] if split < len(token.splits) else ():
        if found.source != plan.name:
            continue
        for messages in reader.read(found.topic, found.partition, found.start, found.end):
            yield _decode(plan, found, messages, count)
    crashpoints.reach("source.after-read")


def _decode(
    plan: SourcePlan, found: SourceRange, messages: Sequence[Any], count: SplitCount
) -> pa.Table:
    values = [m.value() for m in messages]
    count.add(values)
    table, refused = _format(plan).decode(values)
    if refused:
        bad = [_refused(found, messages[i], reason) for i, reason in refused.items()]
        if not plan.tolerate:
            raise BadInputError(bad[0].explain())
        count.refused.extend(bad)
        messages = [m for i, m in enumerate(messages) if i not in refused]
    for name in plan.metadata:
        column = pa.array(_metadata(name, messages), type=METADATA[name])
        table = table.append_column(name, column)
    return table


def _refused(found: SourceRange, message: Any, reason: str) -> Refused:
    return Refused(
        topic=found.topic,
        partition=found.partition,
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        kind="BadInputError",
        reason=reason,
    )


def _metadata(name: str, messages: Sequence[Any]) -> list[Any]:
    if name == "key":
        return [m.key() for m in messages]
    if name == "timestamp":
        return [m.timestamp()[1] for m in messages]
    if name == "partition":
        return [m.partition() for m in messages]
    return [m.offset() for m in messages]


def compare(plan: SourcePlan, token: Token, split: int, count: SplitCount) -> None:
    """Raises PermanentError when a replay reads other input than the first run did."""
    for check in token.checks:
        if (check.epoch, check.split, check.source) != (token.epoch, split, plan.name):
            continue
        if (check.count, check.crc) != (count.count, count.crc):
            raise PermanentError(
                f"epoch {token.epoch}, split {split}, source {plan.name}: the input has changed "
                f"since it was first read: {check.count} records with CRC {check.crc:08x} then, "
                f"{count.count} with {count.crc:08x} now; a compacted or re-created topic cannot "
                "be replayed; start over with `perseid jobs start JOB --from scratch`"
            )
