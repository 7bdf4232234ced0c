"""Whose the foreign records of a sink topic are, and what that means.

A record does not show its producer. Perseid's jobs name themselves in headers where they share a
topic (`headers: true` of the sink): what names another job is no fault, and the report mentions it.
All other foreign records are, but in topics that the user names as mixed: there others write
legitimately, and their records are counted. A header proves nothing against those who may write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from perseid.topics.admin import Partition

HEADER = "perseid.job"
LOOKED_MAX = 100  # foreign records of a topic partition whose headers are read
SHOWN_MAX = 5  # offsets that a text names


class Messages(Protocol):
    """Reads ranges of committed records as the client's messages (`topics.ranges.RangeReader`)."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Sequence[Any]]: ...


@dataclass(slots=True)
class Foreign:
    """`changed`: places for users that are a fault. `why`: what is none, by topic."""

    changed: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)


def judged(
    found: Mapping[Partition, Sequence[int]], job: str, mixed: Collection[str], reader: Messages
) -> Foreign:
    """`found`: offsets in order, by topic partition. Raises RetryableError."""
    result = Foreign()
    others: dict[str, Counter[str]] = {}
    for (topic, partition), offsets in sorted(found.items()):
        if not offsets:
            continue
        writers = _writers(reader, (topic, partition), offsets[:LOOKED_MAX])
        blamed = [o for o, writer in writers.items() if writer in {"", job}]
        if topic in mixed:
            others.setdefault(topic, Counter())["other writers"] += len(offsets)
        elif blamed:
            more = f" and {len(offsets) - LOOKED_MAX} or more" if len(offsets) > LOOKED_MAX else ""
            result.changed.append(
                f"{topic}[{partition}]: {len(blamed)}{more} "
                f"{'record' if len(offsets) == 1 else 'records'} that no ledger has, "
                f"{_shown(blamed)}"
            )
        else:
            named = Counter(f"job {writer}" for writer in writers.values())
            named["other writers"] += max(0, len(offsets) - LOOKED_MAX)
            others.setdefault(topic, Counter()).update(named)
    for topic, counts in others.items():
        parts = [f"{count} of {who}" for who, count in sorted(counts.items()) if count]
        result.why[topic] = f"it has records of others between those of {job}: {', '.join(parts)}"
    return result


def _writers(reader: Messages, place: Partition, offsets: Sequence[int]) -> dict[int, str]:
    """By offset, the job that the record names, "" if none."""
    found = dict.fromkeys(offsets, "")
    cuts = 1 + np.flatnonzero(np.diff(offsets) != 1)
    for run in np.split(np.array(offsets), cuts):
        for messages in reader.read(*place, int(run[0]), int(run[-1]) + 1):
            for message in messages:
                named = dict(message.headers() or ()).get(HEADER, b"")
                found[message.offset()] = named.decode(errors="replace")
    return found


def _shown(offsets: Sequence[int]) -> str:
    shown = ", ".join(map(str, offsets[:SHOWN_MAX]))
    if len(offsets) == 1:
        return f"at offset {shown}"
    return f"at offsets {shown}" + (", ..." if len(offsets) > SHOWN_MAX else "")
