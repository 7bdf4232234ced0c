"""Divides outputs by topic partition and computes their checksums: pure, vectorised per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.engine.task_report import Made
from perseid.errors import PermanentError
from perseid.kernels.library import all_bytes, one
from perseid.topics.admin import Partition, TopicInfo
from perseid.topics.durability import alter
from perseid.topics.partitioner import partitions
from perseid.topics.records import SinkWindow
from perseid.topics.transactions import PartitionBatch, SinkBatch, Written
from perseid.worker.dataflow.partition import grouped

_RUN = 1 << 63  # set in every checksum: over a run of records
_BATCH_HEADER_BYTES = 61  # Kafka's record batch, version 2
_KEY_SHOWN_BYTES = 80


def divide(
    batches: Iterable[SinkBatch], topics: Mapping[str, TopicInfo], first_unkeyed: int,
    who: str = "",
) -> list[PartitionBatch]:  # fmt: skip
    """The records of each topic partition in order; PermanentError for a record that is too big.

    Several batches for one topic follow one another. `who` names their writer in that error.
    """
    divided: list[PartitionBatch] = []
    for batch in _joined(batches):
        info = topics[batch.topic]
        _check_sizes(batch, info.message_bytes_max, who)
        where = partitions(batch.keys, info.partitions, first_unkeyed)
        divided += _parts(batch, where, info.partitions)
    return divided


def checksum(keys: pa.BinaryArray, values: pa.BinaryArray) -> int:
    """The checksum in a SinkWindow; a missing key or value counts as an empty one."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype("<i4", copy=False)
    return _RUN | crc32(all_bytes(values), crc32(all_bytes(keys), crc32(lengths.tobytes())))


def windows(
    batches: Iterable[PartitionBatch], written: Mapping[Partition, Written]
) -> tuple[SinkWindow, ...]:
    """One window for each topic partition with outputs."""
    found = []
    for batch in batches:
        place = written[batch.topic, batch.partition]
        total = checksum(batch.keys, batch.values)
        found.append(
            SinkWindow(
                batch.topic, batch.partition, place.first, place.last, len(batch.values), total
            )
        )
    return tuple(found)


def made(batches: Iterable[PartitionBatch]) -> tuple[Made, ...]:
    """What `windows` would have of each topic partition with outputs, were they written."""
    return tuple(
        Made(b.topic, b.partition, len(b.values), checksum(b.keys, b.values)) for b in batches
    )


def _joined(batches: Iterable[SinkBatch]) -> list[SinkBatch]:
    by_topic: dict[str, list[SinkBatch]] = {}
    for batch in batches:
        if len(batch.values):
            by_topic.setdefault(batch.topic, []).append(batch)
    joined = []
    for topic, several in by_topic.items():
        if len(several) == 1:
            joined += several
            continue
        with_headers = any(b.headers is not None for b in several)
        headers = [h for b in several for h in (b.headers or [()] * len(b.values))]
        joined.append(
            SinkBatch(
                topic,
                one(pa.chunked_array([b.keys for b in several])),
                one(pa.chunked_array([b.values for b in several])),
                headers if with_headers else None,
                letters=all(b.letters for b in several),
            )
        )
    return joined


def _parts(batch: SinkBatch, where: npt.NDArray[np.int64], count: int) -> Iterator[PartitionBatch]:
    """The batch by partition; each part keeps the batch's order."""
    order, bounds = grouped(where, count)
    rows = pa.array(order)
    keys, values = batch.keys.take(rows), batch.values.take(rows)
    for partition in np.flatnonzero(np.diff(bounds)).tolist():
        start, end = bounds[partition : partition + 2].tolist()
        headers = None
        if batch.headers is not None:
            headers = [batch.headers[i] for i in order[start:end].tolist()]
        part = keys[start:end], values[start:end]
        yield PartitionBatch(batch.topic, partition, *part, headers)


def _check_sizes(batch: SinkBatch, bytes_max: int, who: str) -> None:
    """Exact for a record that may be too big: it would be alone in its record batch."""
    longest = (pc.max(pc.binary_length(some)).as_py() or 0 for some in (batch.keys, batch.values))
    if sum(longest) + 2 * _BATCH_HEADER_BYTES < bytes_max and batch.headers is None:
        return
    keys, values = batch.keys.to_pylist(), batch.values.to_pylist()
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        headers = batch.headers[row] if batch.headers is not None else ()
        size = record_batch_bytes(key, value, headers)
        if size > bytes_max:
            shown = "none" if key is None else repr(key[:_KEY_SHOWN_BYTES])
            what = "pointer to a dead letter" if batch.letters else "output record"
            kind = "dead-letter topic" if batch.letters else "sink topic"
            raise PermanentError(
                f"{who + ': ' if who else ''}{what} {row + 1} of {len(values)} for topic "
                f"{batch.topic} with key {shown} needs {size} bytes, and the {kind} takes "
                f"{bytes_max}: make the record smaller, or raise the topic's limit: "
                + alter(batch.topic, "max.message.bytes", str(2 * size))
            )


def record_batch_bytes(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]
) -> int:
    """Size of a record batch that holds only this record."""
    body = 3  # attributes, timestamp and offset deltas of zero
    body += _field_bytes(key) + _field_bytes(value)
    listed = list(headers)
    body += _varint_bytes(len(listed))
    body += sum(_field_bytes(name.encode()) + _field_bytes(data) for name, data in listed)
    return _BATCH_HEADER_BYTES + _varint_bytes(body) + body


def _field_bytes(data: bytes | None) -> int:
    return 1 if data is None else _varint_bytes(len(data)) + len(data)


def _varint_bytes(number: int) -> int:
    """Bytes of a zig-zag varint of a number that is not negative."""
    return max(1, ((2 * number).bit_length() + 6) // 7)
