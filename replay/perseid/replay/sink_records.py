"""The records in a sink topic that one epoch of an operator partition wrote: what a ledger names.

A ledger's window has the first and the last offset of the epoch in a topic partition, and records
of other writers may be between them: other operator partitions commit the same epoch at that time.
No record names its writer, so its own are found by what is known of all:

1. The records at `first` and `last` are its own. Those at the first and last offset of another
   window of the topic partition are not.
2. The records of another window that is inside are left out where they are complete, by number and
   checksum; the innermost first.
3. A producer's records arrive in batches. What is left is cut where a batch can begin or end: at a
   hole between offsets, where the timestamp changes, at the edges of other windows, and where
   records that the audit has made again meet others. Then those are tried that the audit has made
   or that have a key of such a record, with up to two parts or records changed, and all but one or
   two runs.

The checksum decides in the end, so nothing is taken for what it is not. Where no choice has it, or
too many would have to be looked at, the ledger alone remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.errors import LogTruncated, ReplayDataLost
from perseid.kernels.library import one
from perseid.replay.differences import Rows, numbered, numbered_rows
from perseid.topics.columns import Records
from perseid.topics.records import SinkWindow
from perseid.worker.sink.sink_outputs import checksum

STEPS_MAX = 20_000  # choices of one kind that are looked at for one window
CHECKED_MAX = 200  # of all kinds those whose checksum is computed

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Reader(Protocol):
    """Reads ranges of committed records (`topics.ranges.ColumnReader`)."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]: ...
    def identities(self, topics: Sequence[str]) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class NotThere:
    """Why the records of a window cannot be had; `text` is for users.

    expired: the topic has not kept them. compacted: it has fewer than the ledger counts. changed:
    as many, with another checksum, or the topic was cut. mixed: with those of other writers, from
    which they could not be separated.
    """

    why: Literal["expired", "compacted", "changed", "mixed"]
    text: str


def committed(
    reader: Reader, window: SinkWindow, others: Iterable[SinkWindow] = (), made: Rows | None = None
) -> Rows | NotThere:
    """Reads the records of `window` from its topic.

    `others`: windows of other operator partitions' ledgers, of any topic partition. `made`: what
    the audit has made in their place, which is mostly the same. Raises RetryableError.
    """
    place = f"{window.topic}[{window.partition}]"
    if window.topic not in reader.identities([window.topic]):
        return NotThere("expired", f"topic {window.topic} does not exist any more")
    try:
        read = reader.read(window.topic, window.partition, window.first, window.last + 1)
        found = joined(window.partition, list(read))
    except ReplayDataLost as lost:
        return NotThere(
            "expired", f"{place} begins at offset {lost.earliest}, and the records are from "
            f"{window.first} on",
        )  # fmt: skip
    except LogTruncated as cut:
        return NotThere(
            "changed", f"{place} ends at offset {cut.end}, and the records are up to {window.last}:"
            " the topic was created again, or has lost records",
        )  # fmt: skip
    return picked(found, window, others, made)


def picked(
    records: Records, window: SinkWindow, others: Iterable[SinkWindow] = (),
    made: Rows | None = None,
) -> Rows | NotThere:  # fmt: skip
    """Those of `records`, all that are readable from `first` to `last`, that the epoch wrote."""
    place = f"{window.topic}[{window.partition}], offsets {window.first} to {window.last}"
    count = len(records)
    ends = np.isin([window.first, window.last], records.offsets)
    if count < window.count or not ends.all():
        return NotThere(
            "compacted", f"{place}: the topic has {count} records, and not all of the "
            f"{window.count} that the ledger counts",
        )  # fmt: skip
    near = [w for w in others if _is_near(w, window)]
    left = _without_inner(records, window, near)
    if len(left) == window.count:
        if checksum(left.keys, left.values) == window.checksum:
            return Rows(left.keys, left.values, left.offsets)
        return NotThere(
            "changed", f"{place}: the topic has {window.count} records, as the ledger has, and "
            "their checksum is another one",
        )  # fmt: skip
    for own in islice(_choices(left, window, near, made), CHECKED_MAX):
        rows = pa.array(np.flatnonzero(own))
        keys, values = left.keys.take(rows), left.values.take(rows)
        if checksum(keys, values) == window.checksum:
            return Rows(keys, values, left.offsets[own])
    return NotThere(
        "mixed", f"{place}: {count} records of several writers are there, and the {window.count} "
        "of the ledger could not be separated from the others",
    )  # fmt: skip


def joined(partition: int, batches: Sequence[Records]) -> Records:
    if not batches:
        return Records.empty(partition)
    return Records(
        partition, one(pa.chunked_array([b.values for b in batches])),
        one(pa.chunked_array([b.keys for b in batches])),
        np.concatenate([b.offsets for b in batches]),
        np.concatenate([b.timestamps for b in batches]),
    )  # fmt: skip


def _is_near(other: SinkWindow, window: SinkWindow) -> bool:
    """Whether it is another one, in the same topic partition, and shares offsets with it."""
    same_place = (other.topic, other.partition) == (window.topic, window.partition)
    same_epoch = (other.first, other.last) == (window.first, window.last)
    apart = other.last < window.first or window.last < other.first
    return same_place and not same_epoch and not apart


def _without_inner(records: Records, window: SinkWindow, near: Sequence[SinkWindow]) -> Records:
    """Step 2. A window that encloses another one is complete once that one is left out."""
    inner = [w for w in near if window.first < w.first and w.last < window.last]
    for other in sorted(inner, key=lambda w: w.last - w.first):
        start, end = np.searchsorted(records.offsets, [other.first, other.last + 1]).tolist()
        keys, values = records.keys[start:end], records.values[start:end]
        if len(keys) == other.count and checksum(keys, values) == other.checksum:
            records = records.without(range(start, end))
    return records


def _choices(
    records: Records, window: SinkWindow, near: Sequence[SinkWindow], made: Rows | None
) -> Iterator[Bools]:
    """Step 3: choices of as many records as the ledger counts, the most probable first."""
    offsets = records.offsets
    certain = np.isin(offsets, [window.first, window.last])
    foreign = np.isin(offsets, [edge for w in near for edge in (w.first, w.last)])
    labels = [] if made is None else _labels(records, made)
    sure = _cuts(np.diff(offsets) > 1, foreign)
    later = np.diff(records.timestamps) != 0
    cuts = _cuts((np.diff(offsets) > 1) | later, foreign, *labels)
    every = np.arange(len(records) + 1)
    by_label = (_flipped(some, label, window.count) for label in labels for some in (cuts, every))
    run = len(records) - window.count
    by_runs = (_without_runs(some, len(records), run) for some in (sure, cuts))
    for own in chain(*by_label, *by_runs):
        if own[certain].all() and not own[foreign].any():
            yield own


def _labels(records: Records, made: Rows) -> list[Bools]:
    """Whether the audit has made each record, and whether it has made one with its key."""
    found = Rows(records.keys, records.values)
    return [np.isin(*numbered_rows(found, made)), np.isin(*numbered(found.keys, made.keys))]


def _cuts(begins: Bools, *labels: Bools) -> Int64s:
    """The first row and those that `begins` names, without it, or whose label is another one."""
    for label in labels:
        begins = begins | (label[1:] != label[:-1])
    found: Int64s = np.r_[0, 1 + np.flatnonzero(begins), len(begins) + 1]
    return found


def _flipped(cuts: Int64s, label: Bools, count: int) -> Iterator[Bools]:
    """The parts with the label, then with all but one or two parts as labelled."""
    sizes, taken = np.diff(cuts), label[cuts[:-1]]
    lacking = count - int(sizes[taken].sum())
    changes = np.where(taken, -sizes, sizes).tolist()
    tries = chain.from_iterable(combinations(range(len(changes)), n) for n in range(3))
    for flips in islice(tries, STEPS_MAX):
        if sum(changes[part] for part in flips) == lacking:
            own = taken.copy()
            own[list(flips)] ^= True
            yield np.repeat(own, sizes)


def _without_runs(cuts: Int64s, count: int, foreign: int) -> Iterator[Bools]:
    """All but one run of `foreign` records, then all but two; a run begins or ends at a cut."""
    inner: list[int] = cuts[1:-1].tolist()
    starts = sorted({*inner, *(cut - foreign for cut in inner)})
    for start in starts[:STEPS_MAX]:
        if 0 < start < count - foreign:
            yield _all_but(count, (start, start + foreign))
    for first, end, second in islice(combinations(inner, 3), STEPS_MAX):
        rest = foreign - (end - first)
        if 0 < rest < count - second:
            yield _all_but(count, (first, end), (second, second + rest))


def _all_but(count: int, *runs: tuple[int, int]) -> Bools:
    own = np.ones(count, bool)
    for start, end in runs:
        own[start:end] = False
    return own
