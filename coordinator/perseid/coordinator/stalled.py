"""Input that exists but cannot be read, because an open transaction precedes it. Pure.

Readers stop at the last stable offset. A producer that stalls in a transaction holds back all later
records, also those of other producers, until the broker ends the transaction after its timeout (up
to 15 minutes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perseid.coordinator.job.inputs import Held, Inputs
from perseid.coordinator.token_time import Now
from perseid.topics.admin import Partition

REPORTED_S = 10.0  # a producer usually commits in less time


def looked(inputs: Inputs, highs: Mapping[Partition, int], now: Now) -> Inputs:
    """The inputs after a look at the high watermarks of source partitions.

    A partition is held back while its last stable offset stays the same and is below its end.
    """
    own = {place: highs[place] for place in inputs.partitions if place in highs}
    held = {}
    for place, high in own.items():
        end = inputs.ends.get(place)
        if end is not None and high > end:
            before = inputs.held.get(place)
            same = before is not None and before.offset == end
            held[place] = before if before is not None and same else Held(end, now.monotonic_s)
    return inputs.held_back(own, held)


def records(inputs: Inputs) -> int:
    """The records after the last stable offsets, over all source partitions."""
    found = 0
    for (_, partition), position in inputs.positions.items():
        place = (position.topic, partition)
        end = max(inputs.ends.get(place, position.offset), position.offset)
        found += max(0, inputs.highs.get(place, end) - end)
    return found


def reported(inputs: Inputs, now: Now) -> Iterator[dict[str, object]]:
    """The partitions that have been held back for a while, for users."""
    for (topic, partition), one in sorted(inputs.held.items()):
        for_s = now.monotonic_s - one.since_s
        if for_s >= REPORTED_S:
            high = inputs.highs.get((topic, partition), one.offset)
            yield {
                "topic": topic, "partition": partition, "offset": one.offset,
                "records": high - one.offset, "for_s": round(for_s),
            }  # fmt: skip


def longest_s(inputs: Inputs, now: Now) -> float:
    """How long the longest has been held back; 0 if none is."""
    return max((now.monotonic_s - one.since_s for one in inputs.held.values()), default=0.0)
