"""A token's ranges as stored in its record: a few bytes each, so that thousands fit.

The token of a checkpoint names every partition of every source. Names are written once, partitions
as differences, and offsets as plain numbers, which Avro encodes in as many bytes as they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

from perseid.topics.records import SourceRange, Split

_Topic = tuple[str, str, str]  # source, topic, topic_id


def packed(splits: Sequence[Split]) -> dict[str, Any]:
    """The fields `topics` and `reads` of the schema."""
    topics: dict[_Topic, int] = {}
    reads = [[_ranges(topics, name, some) for name, some in groupby(split, key=_topic)]
             for split in splits]  # fmt: skip
    fields = ("source", "topic", "topic_id")
    return {"topics": [dict(zip(fields, name, strict=True)) for name in topics], "reads": reads}


def unpacked(topics: Sequence[dict[str, str]], reads: Any) -> tuple[Split, ...]:
    """The splits from these fields."""
    return tuple(tuple(r for some in split for r in _each(topics, some)) for split in reads)


def of_protocol_3(splits: Iterable[Iterable[dict[str, Any]]]) -> tuple[Split, ...]:
    """The splits of a token that has each range as a record."""
    return tuple(tuple(SourceRange(**r) for r in split) for split in splits)


def _topic(found: SourceRange) -> _Topic:
    return found.source, found.topic, found.topic_id


def _ranges(topics: dict[_Topic, int], name: _Topic, some: Iterable[SourceRange]) -> dict[str, Any]:
    found = list(some)
    partitions = [0, *(r.partition for r in found)]
    return {
        "topic": topics.setdefault(name, len(topics)),
        "partitions": [b - a for a, b in pairwise(partitions)],
        "starts": [r.start for r in found],
        "counts": [r.end - r.start for r in found],
    }


def _each(topics: Sequence[dict[str, str]], some: dict[str, Any]) -> Iterable[SourceRange]:
    of = topics[some["topic"]]
    source, topic, topic_id = of["source"], of["topic"], of["topic_id"]
    columns = accumulate(some["partitions"]), some["starts"], some["counts"]
    for partition, start, count in zip(*columns, strict=True):
        yield SourceRange(source, topic, topic_id, partition, start, start + count)
