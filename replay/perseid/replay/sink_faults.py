"""Whether the sink topics still have what the ledgers name, and nothing that others wrote there.

Every window of the compared epochs is read in its topic, and what is between windows too: each
topic partition once, in the order of its offsets, for many epochs at once. Windows that share no
offsets with others are compared by number and checksum. Operator partitions that commit at the same
time have windows that overlap: such a group is compared record by record with what the audit has
made, which are the ledger's records, as its checksums show. So the audit's outputs are kept until
their epochs were read.

What is in the topic and in no ledger is of another writer (`foreign`). Kafka only appends, so that
is also how a record is changed: by a later one with its key. Lacking records of a compacted topic,
and those that are older than the topic's first one, are no fault: `why` names them.

Groups with outputs that were made otherwise (`looking` has them), and groups at the edges, with
epochs that did not run, are left out. A foreign record inside a window that becomes known later may
belong to it, and is none.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from perseid.errors import LogTruncated, ReplayDataLost
from perseid.kernels.hashing import xxh64
from perseid.kernels.library import one
from perseid.replay import foreign
from perseid.replay.differences import Rows, numbered_rows, ranks
from perseid.replay.sink_records import joined
from perseid.worker.sink.kept_outputs import Kept, kept
from perseid.worker.sink.sink_outputs import checksum

if TYPE_CHECKING:
    from pathlib import Path

    from perseid.engine.comparison import Unequal
    from perseid.replay.differences import Bools, Int64s
    from perseid.replay.findings import Compared
    from perseid.replay.foreign import Messages
    from perseid.topics.admin import Partition, TopicInfo
    from perseid.topics.columns import Records
    from perseid.topics.records import LedgerRecord, SinkWindow
    from perseid.worker.sink.audit import RangeReader

EPOCHS_MAX = 64  # that wait to be read, and
RECORDS_MAX = 500_000  # of the ledgers' records: their outputs are on disk meanwhile
FOREIGN_MAX = 10_000  # offsets of foreign records that are known of a topic partition
BEFORE_MAX = 8  # windows of an operator partition before the first compared epoch


class Topics(Protocol):
    """The part of `TopicReader` used here."""

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]: ...
    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]: ...
    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]: ...


@dataclass(frozen=True, slots=True)
class Part:
    """What one epoch of an operator partition wrote to a topic partition."""

    window: SinkWindow
    epoch: int
    operator: str
    partition: int


class SinkFaults:
    """See the module's docstring. `committed` is called for each ledger record, in their order.

    `changed`: places for users that have not what the ledgers have. `foreign`: offsets of records
    in no ledger, by topic partition. `compared`: how many windows, by topic. `why`: what was not
    compared, or is there too, by topic.
    """

    def __init__(
        self, first_epoch: int, outputs: Path, reader: RangeReader, topics: Topics
    ) -> None:
        """`outputs`: the run's folder (`worker.sink.kept_outputs`), from which it deletes."""
        self._first, self._outputs = first_epoch, outputs
        self._reader, self._topics = reader, topics
        self._waiting: dict[Partition, list[Part]] = defaultdict(list)
        self._before: dict[tuple[str, int, str, int], deque[SinkWindow]] = defaultdict(
            partial(deque, maxlen=BEFORE_MAX)
        )
        self._unequal: set[tuple[int, str, int, str, int]] = set()
        self._ran, self._epochs, self._records = first_epoch - 1, list[int](), 0
        self._read_epochs: set[int] = set()
        self._at: dict[Partition, int] = {}  # up to where it was read
        self._kept: dict[tuple[int, str, int], dict[Partition, Kept]] = {}  # of one read
        self.changed: list[str] = []
        self.foreign: dict[Partition, list[int]] = defaultdict(list)
        self.compared, self.why = Counter[str](), dict[str, str]()

    def committed(self, record: LedgerRecord) -> None:
        for window in record.outputs:
            place = window.topic, window.partition
            if self.foreign.get(place):
                self.foreign[place] = [o for o in self.foreign[place] if not window.spans(o)]
            if record.epoch < self._first:
                self._before[*place, record.operator, record.partition].append(window)
            else:
                part = Part(window, record.epoch, record.operator, record.partition)
                self._waiting[place].append(part)
                self._records += window.count

    def ran(self, epoch: int, unequal: Iterable[Unequal]) -> None:
        """All ledgers were compared up to that epoch; `unequal`: what differs of it."""
        self._unequal |= {
            (one.epoch, one.operator, one.partition, one.topic, one.topic_partition)
            for one in unequal
        }
        self._ran = epoch
        self._epochs.append(epoch)
        if len(self._epochs) >= EPOCHS_MAX or self._records >= RECORDS_MAX:
            self.read()

    def read(self) -> None:
        """Reads all that waits. Raises RetryableError."""
        ready: dict[Partition, list[list[Part]]] = {}
        for place, parts in self._waiting.items():
            groups = overlapping(parts)
            late = (i for i, group in enumerate(groups) if any(p.epoch > self._ran for p in group))
            count = next(late, len(groups))
            self._waiting[place] = [part for group in groups[count:] for part in group]
            if count:
                ready[place] = groups[:count]
        if ready:
            self._read(ready)
            self._kept.clear()
        needed = {part.epoch for parts in self._waiting.values() for part in parts}
        self._read_epochs |= set(self._epochs) - needed
        self._epochs = [epoch for epoch in self._epochs if epoch in needed]
        self._records = sum(p.window.count for parts in self._waiting.values() for p in parts)

    def kept(self) -> None:
        """It is kept what was read: the outputs of these epochs are not needed any more."""
        for epoch in self._read_epochs:
            shutil.rmtree(self._outputs / str(epoch), ignore_errors=True)
        self._read_epochs.clear()

    def finish(self, job: str, mixed: Collection[str], messages: Messages) -> None:
        """The last read; then foreign records are judged. Raises RetryableError."""
        self.read()
        found = foreign.judged(self.foreign, job, mixed, messages)
        self.changed += found.changed
        for topic, text in found.why.items():
            self.why.setdefault(topic, text)

    def named(self, compared: Iterable[Compared]) -> tuple[Compared, ...]:
        """With what was compared in the topics."""
        return tuple(
            replace(one, in_topic=self.compared[one.topic],
                    why="; ".join(filter(None, [one.why, self.why.get(one.topic, "")])))
            for one in compared
        )  # fmt: skip

    def close(self) -> None:
        self._reader.close()

    def _read(self, ready: Mapping[Partition, list[list[Part]]]) -> None:
        infos = self._topics.describe(sorted({topic for topic, _ in ready}))
        there = [place for place in ready if place[0] in infos]
        for topic, _ in ready.keys() - set(there):
            self.why.setdefault(topic, f"topic {topic} does not exist any more")
        starts, ends = self._topics.starts(there), self._topics.ends(there)
        self._reader.prepare({
            place: max(starts[place], self._at.get(place, ready[place][0][0].window.first))
            for place in there
        })  # fmt: skip
        for place in there:
            for group in ready[place]:
                self._look(
                    place, group, starts[place], ends[place], compacted=infos[place[0]].compacted
                )

    def _look(
        self, place: Partition, group: Sequence[Part], start: int, end: int, *, compacted: bool
    ) -> None:
        """Of one group. `start`, `end`: of what the topic partition has."""
        first, last = group[0].window.first, max(part.window.last for part in group)
        at = self._at.get(place, first)
        self._at[place] = max(at, last + 1)
        if first < start:
            self._expired(place, start, first)
        elif last >= end:
            self._cut(place, end, last)
        elif at <= first:
            try:
                found = joined(place[1], list(self._own(place, max(at, start), first, last)))
            except ReplayDataLost as lost:  # meanwhile
                self._expired(place, lost.earliest, first)
            except LogTruncated as cut:
                self._cut(place, cut.end, last)
            else:
                self._compare(place, group, found, compacted)

    def _own(self, place: Partition, begin: int, first: int, last: int) -> Iterator[Records]:
        """What is there from `first` to `last`; what is before is foreign."""
        for records in self._reader.read(*place, begin, last + 1):
            others = int(np.searchsorted(records.offsets, first))
            self._is_foreign(place, records.offsets[:others])
            if others < len(records):
                yield records.without(range(others)) if others else records

    def _compare(
        self, place: Partition, group: Sequence[Part], found: Records, compacted: bool
    ) -> None:
        if any(part.epoch > self._ran or self._key(part) in self._unequal for part in group):
            return
        self.compared[place[0]] += len(group)
        window = group[0].window
        if len(group) == 1 and len(found) == window.count:
            if checksum(found.keys, found.values) == window.checksum:
                return
        there, made = Rows(found.keys, found.values), self._made(group)
        if len(group) > 1 and fingerprint(there) == fingerprint(made):
            return
        extra, lacking = unmatched(there, made)
        self._is_foreign(place, found.offsets[extra])
        if lacking and compacted:
            self.why.setdefault(
                place[0], f"{place[0]} is compacted, and lacks records that the ledger has"
            )
        elif lacking:
            self.changed.append(
                f"{_named(place)}, offsets {window.first} to {max(p.window.last for p in group)} "
                f"of epoch {group[0].epoch}: lacks {lacking} of the ledger's records"
            )
        elif len(group) == 1 and not extra.any():
            self.changed.append(
                f"{_named(place)}, offsets {window.first} to {window.last} of epoch "
                f"{group[0].epoch}: the records are in another order than the ledger has"
            )

    def _made(self, group: Sequence[Part]) -> Rows:
        """What the audit has made: the ledger's records, one window after the other."""
        rows = [
            self._outputs_of((p.epoch, p.operator, p.partition))[p.window.topic, p.window.partition]
            for p in group
        ]
        keys, values = (one(pa.chunked_array(columns)) for columns in zip(*rows, strict=True))
        return Rows(keys, values)

    def _outputs_of(self, part: tuple[int, str, int]) -> dict[Partition, Kept]:
        """Each file is opened once: it is mapped, and read where a group needs it."""
        if part not in self._kept:
            self._kept[part] = kept(self._outputs, *part)
        return self._kept[part]

    def _is_foreign(self, place: Partition, offsets: Int64s) -> None:
        known = self.foreign[place]
        if len(offsets) and len(known) < FOREIGN_MAX:
            before = [w for key, some in self._before.items() if key[:2] == place for w in some]
            known += [
                offset for offset in offsets[: FOREIGN_MAX - len(known)].tolist()
                if not any(window.spans(offset) for window in before)
            ]  # fmt: skip

    def _expired(self, place: Partition, start: int, first: int) -> None:
        self.why.setdefault(
            place[0], f"{_named(place)} begins at offset {start}, and the ledger has records from "
            f"{first} on",
        )  # fmt: skip

    def _cut(self, place: Partition, end: int, last: int) -> None:
        """Readers see the topic partition up to `end` only."""
        if self._topics.ends([place], committed=False)[place] > last:
            text = f"an open transaction hides what {_named(place)} has from offset {end} on"
            self.why.setdefault(place[0], text)
            return
        text = (
            f"{_named(place)} ends at offset {end}, and the ledger has records up to {last}: the "
            "topic was created again, or has lost records"
        )
        if text not in self.changed:
            self.changed.append(text)

    def _key(self, part: Part) -> tuple[int, str, int, str, int]:
        window = part.window
        return part.epoch, part.operator, part.partition, window.topic, window.partition


def overlapping(parts: Iterable[Part]) -> list[list[Part]]:
    """The parts of one topic partition in groups that share no offsets, in their order."""
    groups: list[list[Part]] = []
    last = -1
    for part in sorted(parts, key=lambda part: part.window.first):
        if part.window.first > last:
            groups.append([])
        groups[-1].append(part)
        last = max(last, part.window.last)
    return groups


def fingerprint(rows: Rows) -> tuple[int, ...]:
    """The same for the same records in any order: counts, and the sum of 64-bit hashes.

    Others have the same in one of 2**64 cases. 0.06 us a record, where `unmatched` takes 1.7.
    """
    hashes = xxh64(rows.values, xxh64(rows.keys, np.zeros(len(rows), np.uint64)))
    return len(rows), rows.keys.null_count, rows.values.null_count, int(hashes.sum())


def unmatched(found: Rows, made: Rows) -> tuple[Bools, int]:
    """Which rows of `found` have no equal one in `made`, and how many of `made` have none.

    Of equal ones the last have none: they were appended later.
    """
    there, wanted = numbered_rows(found, made)
    names, numbers = np.unique(np.concatenate([there, wanted]), return_inverse=True)
    there, wanted = numbers[: len(there)], numbers[len(there) :]
    counts = np.bincount(wanted, minlength=len(names))
    extra: Bools = ranks(there) >= counts[there]
    lacking = np.maximum(counts - np.bincount(there, minlength=len(names)), 0)
    return extra, int(lacking.sum())


def _named(place: Partition) -> str:
    return f"{place[0]}[{place[1]}]"
