"""Input that exists but cannot be read, because an open transaction precedes it. Pure.

Readers stop at the last stable offset. A producer that stalls in a transaction holds back all later
records, also those of other producers, until the broker ends the transaction after its timeout (up
to 15 minutes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from perseid.coordinator.model import Held, JobState, Now
from perseid.topics.admin import Partition

REPORTED_S = 10.0  # a producer usually commits in less time


def looked(job: JobState, highs: Mapping[Partition, int], now: Now) -> JobState:
    """The job after a look at the high watermarks of source partitions.

    A partition is held back while its last stable offset stays the same and is below its end.
    """
    own = {place: highs[place] for place in job.source_partitions if place in highs}
    held = {}
    for place, high in own.items():
        end = job.ends.get(place)
        if end is not None and high > end:
            before = job.held.get(place)
            same = before is not None and before.offset == end
            held[place] = before if before is not None and same else Held(end, now.monotonic_s)
    if own == job.highs and held == job.held:
        return job
    return replace(job, highs=own, held=held)


def records(job: JobState) -> int:
    """The records after the last stable offsets, over all source partitions."""
    found = 0
    for (_, partition), position in job.positions.items():
        place = (position.topic, partition)
        end = max(job.ends.get(place, position.offset), position.offset)
        found += max(0, job.highs.get(place, end) - end)
    return found


def reported(job: JobState, now: Now) -> Iterator[dict[str, object]]:
    """The partitions that have been held back for a while, for users."""
    for (topic, partition), one in sorted(job.held.items()):
        for_s = now.monotonic_s - one.since_s
        if for_s >= REPORTED_S:
            high = job.highs.get((topic, partition), one.offset)
            yield {
                "topic": topic, "partition": partition, "offset": one.offset,
                "records": high - one.offset, "for_s": round(for_s),
            }  # fmt: skip


def longest_s(job: JobState, now: Now) -> float:
    """How long the longest has been held back; 0 if none is."""
    return max((now.monotonic_s - one.since_s for one in job.held.values()), default=0.0)
