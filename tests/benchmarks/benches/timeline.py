"""What a job's control topics show of a stretch of time: epochs, checkpoints, offsets. Pure.

Times are Kafka's, in ms since 1970.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benches.bench_cluster import Place
from benches.reading import Record, read_topic
from perseid.topics import codec, names
from perseid.topics.chain import Base, Chain, valid_tokens
from perseid.topics.records import Begin, EpochDone, FragmentState, PartDone, Token


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch that was run; it began `duration_ms` before `end_ms`."""

    epoch: int
    end_ms: int
    duration_ms: int
    rows: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One whose parts have all been written by `end_ms`.

    `links`: of its longest chain of earlier files that it changes; 0: a full snapshot.
    """

    epoch: int
    end_ms: int
    bytes: int
    seconds: float  # of its parts together
    links: int = 0
    read_bytes: int = 0  # of all files that a restore of it needs


@dataclass
class Timeline:
    """A job's progress."""

    epochs: list[Epoch] = field(default_factory=list)
    fragments: list[tuple[int, FragmentState]] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[Record], parts: int) -> Timeline:
        """From the records of a progress topic; `parts` make a checkpoint complete."""
        found = cls()
        open_: dict[tuple[int, int], list[PartDone]] = {}
        for record in records:
            decoded = codec.decode(record.value)
            match decoded:
                case EpochDone():
                    found.epochs.append(
                        Epoch(decoded.epoch, record.time_ms, decoded.duration_ms, decoded.rows_in,
                              decoded.state_bytes)
                    )  # fmt: skip
                case FragmentState():
                    found.fragments.append((record.time_ms, decoded))
                case PartDone():
                    one = open_.setdefault((decoded.generation, decoded.epoch), [])
                    one.append(decoded)
                    if len(one) == parts:
                        found.checkpoints.append(_checkpoint(one, record.time_ms))
        return found

    def within(self, start_ms: int, end_ms: int) -> Timeline:
        """Only what ended in (start, end]."""
        return Timeline(
            [e for e in self.epochs if start_ms < e.end_ms <= end_ms],
            [f for f in self.fragments if start_ms < f[0] <= end_ms],
            [c for c in self.checkpoints if start_ms < c.end_ms <= end_ms],
        )

    @property
    def full_snapshots(self) -> int:
        return sum(not c.links for c in self.checkpoints)

    def longest(self) -> float | None:
        """The longest epoch over the median of all."""
        return self._over_median([epoch.duration_ms for epoch in self.epochs])

    def longest_during_checkpoints(self) -> float | None:
        """The longest epoch that ran while a checkpoint was made, over the median of all."""
        begun = {e.epoch: e.end_ms - e.duration_ms for e in self.epochs}
        spans = [(begun[c.epoch], c.end_ms) for c in self.checkpoints if c.epoch in begun]
        return self._over_median(
            [
                e.duration_ms
                for e in self.epochs
                if any(e.end_ms > start and e.end_ms - e.duration_ms < end for start, end in spans)
            ]
        )

    def _over_median(self, durations_ms: Sequence[int]) -> float | None:
        median = statistics.median(e.duration_ms for e in self.epochs) if self.epochs else 0
        return round(max(durations_ms) / median, 3) if durations_ms and median else None


def _checkpoint(parts: Sequence[PartDone], end_ms: int) -> Checkpoint:
    written = sum(part.bytes for part in parts)
    return Checkpoint(
        parts[0].epoch, end_ms, written, sum(part.seconds for part in parts),
        max(len(part.chain) for part in parts),
        written + sum(file.bytes for part in parts for file in part.chain),
    )  # fmt: skip


def progress_of(place: Place, job: str, parts: int) -> Timeline:
    """The whole timeline of a job that has `parts` stateful operator partitions."""
    return Timeline.of(read_topic(place, names.progress(job)), parts)


def tokens_of(place: Place, job: str) -> list[Token]:
    """The tokens that count of a job's only life."""
    found = [(r.offset, codec.decode(r.value)) for r in read_topic(place, names.tokens(job))]
    offset, begin = next((o, r) for o, r in found if isinstance(r, Begin))
    chain = Chain(Base(begin.job_uuid, begin.epoch, offset))
    later = [(o, r) for o, r in found if o >= offset]
    return list(valid_tokens(chain, later).values())  # type: ignore[arg-type]


def ends_at(tokens: Iterable[Token], epoch: int) -> dict[int, int]:
    """By partition of its only source, where the input of `epoch` ended."""
    ends: dict[int, int] = {}
    for token in tokens:
        if token.epoch <= epoch:
            for split in token.splits:
                for part in split:
                    ends[part.partition] = max(ends.get(part.partition, 0), part.end)
    return ends


def speed(
    counted: Iterable[tuple[int, str, int]], start_ms: int, end_ms: int
) -> tuple[float, int, int] | None:
    """(records/s, from, to) out of outputs (time in ms, partition, its records so far).

    Both ends are moments of output: the last ones up to `start_ms` and up to `end_ms`. None when
    nothing came out between them.
    """
    totals: dict[str, int] = {}
    moments = [(0, 0)]
    for time_ms, part, records in sorted(counted):
        totals[part] = max(totals.get(part, 0), records)
        moments.append((time_ms, sum(totals.values())))
    begin_ms, first = [m for m in moments if m[0] <= start_ms][-1]
    last_ms, last = [m for m in moments if m[0] <= end_ms][-1]
    if not begin_ms or last_ms == begin_ms:
        return None
    return (last - first) * 1000 / (last_ms - begin_ms), begin_ms, last_ms
