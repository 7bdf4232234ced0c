"""What is known of a job's input: how far tokens have named it, and how much waits.

Owns the positions, the ends that were seen, event times, the size of the next epochs with what it
is measured by, and the input checks for the next tokens. The rules: `issue`, `input_bytes`,
`input_checks`, `pressure`, `sources`, `stalled`, `watermark`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perseid.coordinator.job.positions import Positions, positions_after, ranges_of
from perseid.errors import LogTruncated
from perseid.topics.admin import Partition
from perseid.topics.records import EpochDone, EventTimes, InputCheck, Token

RECENT_S = 10.0  # window of the displayed rates


@dataclass(frozen=True, slots=True)
class Held:
    """A source partition whose last stable offset is below its end and has not moved since then."""

    offset: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """One finished epoch, for rates and for the size of the next epochs."""

    at_s: float
    epoch: int
    rows_in: int
    rows_out: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The reported ends of one epoch in one record; `fragments` have reported it, others not yet.

    Only of a job of several fragments.
    """

    report: EpochDone
    fragments: frozenset[str]


@dataclass(frozen=True, slots=True)
class Inputs:
    """See the module docstring."""

    positions: Positions = field(default_factory=dict)
    reached_s: float = 0.0  # when the positions last moved
    ends: Mapping[Partition, int] = field(default_factory=dict)
    highs: Mapping[Partition, int] = field(default_factory=dict)  # high watermarks
    held: Mapping[Partition, Held] = field(default_factory=dict)  # see `stalled`
    truncated: LogTruncated | None = None  # a truncated source, or a new topic of that name,
    truncated_s: float = 0.0  # as a look at the topics after this moment shows
    event_times: Mapping[tuple[str, int], int] = field(default_factory=dict)  # largest, ms
    active_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)  # see `watermark`
    late: int = 0  # rows below the watermark, as far as reported
    late_to: Mapping[str, int] = field(default_factory=dict)  # counted in `late`, by fragment
    has_backlog: bool = False  # the last token did not take all input
    size: int = 0  # records of a full epoch
    record_bytes: Mapping[str, float] = field(default_factory=dict)  # by source, as far as known
    throttle_factor: float = 1.0  # share of `size` allowed while states are near their limit
    recent: tuple[Done, ...] = ()
    ending: tuple[Ending, ...] = ()  # by epoch; see `epoch_ends`
    checks: tuple[InputCheck, ...] = ()  # of done epochs, for the next tokens to carry
    checks_to: int = 0  # epochs up to this one are carried or in `checks`

    @property
    def partitions(self) -> frozenset[Partition]:
        """The topic partitions that the job reads; two sources may read the same one."""
        return frozenset((at.topic, partition) for (_, partition), at in self.positions.items())

    @property
    def backlog(self) -> int:
        """Records that exist and that no token names."""
        waiting = (
            self.ends.get((position.topic, partition), position.offset) - position.offset
            for (_, partition), position in self.positions.items()
        )
        return sum(max(0, records) for records in waiting)

    # -- positions -------------------------------------------------------------------------------

    def named(self, token: Token, now_s: float) -> Inputs:
        """`token` is in the log: its ranges are taken, and it carries the oldest checks."""
        moved = self.moved(positions_after(self.positions, ranges_of(token)), now_s)
        return replace(
            moved,
            has_backlog=self.backlog > token.records,  # more records waited than it took
            checks=self.checks[len(token.checks):],
        )  # fmt: skip

    def moved(self, positions: Positions, now_s: float) -> Inputs:
        return replace(self, positions=positions, reached_s=now_s)

    def switched(self, positions: Positions, now_s: float) -> Inputs:
        """The positions of another revision."""
        return replace(self.moved(positions, now_s), has_backlog=False, ending=())

    def rewound(self, positions: Positions, epoch: int) -> Inputs:
        """The tokens above `epoch` are rolled back."""
        return replace(
            self, positions=positions, has_backlog=False,
            checks=tuple(c for c in self.checks if c.epoch <= epoch),
            checks_to=min(self.checks_to, epoch),
            late_to={name: min(counted, epoch) for name, counted in self.late_to.items()},
            ending=tuple(e for e in self.ending if e.report.epoch <= epoch),
        )  # fmt: skip

    # -- looks at the topics ---------------------------------------------------------------------

    def with_ends(self, ends: Mapping[Partition, int]) -> Inputs:
        if all(self.ends.get(key) == end for key, end in ends.items()):
            return self
        return replace(self, ends={**self.ends, **ends})

    def held_back(self, highs: Mapping[Partition, int], held: Mapping[Partition, Held]) -> Inputs:
        if highs == self.highs and held == self.held:
            return self
        return replace(self, highs=highs, held=held)

    def lost(self, truncated: LogTruncated, now_s: float) -> Inputs:
        """The end of a source is below the job's position in it."""
        return replace(self, truncated=truncated, truncated_s=now_s)

    # -- event time ------------------------------------------------------------------------------

    def with_event_times(self, record: EventTimes) -> Inputs:
        largest = dict(self.event_times)
        for time in record.times:
            key = time.source, time.partition
            largest[key] = max(time.max_ms, largest.get(key, time.max_ms))
        counted = self.late_to.get(record.fragment, 0)
        new = record.epoch > counted  # reports repeated after a restore do not count again
        return replace(
            self, event_times=largest, late=self.late + record.late * new,
            late_to={**self.late_to, record.fragment: max(counted, record.epoch)},
        )  # fmt: skip

    def active(self, active_ms: Mapping[tuple[str, int], int]) -> Inputs:
        return replace(self, active_ms=active_ms)

    # -- the ends of epochs, and their size --------------------------------------------------------

    def awaits(self, ending: tuple[Ending, ...]) -> Inputs:
        """Of these epochs not all fragments have reported the end."""
        return self if ending == self.ending else replace(self, ending=ending)

    def measured(self, done: Done, size: int, record_bytes: Mapping[str, float]) -> Inputs:
        """An epoch was done just now; `size`, `record_bytes`: as they follow from it."""
        recent = (*(d for d in self.recent if done.at_s - d.at_s <= RECENT_S), done)
        return replace(self, size=size, record_bytes=record_bytes, recent=recent)

    def with_record_bytes(self, record_bytes: Mapping[str, float]) -> Inputs:
        return replace(self, record_bytes=record_bytes)

    def throttled(self, factor: float) -> Inputs:
        return replace(self, throttle_factor=factor)

    # -- input checks ----------------------------------------------------------------------------

    def waiting(self, checks: tuple[InputCheck, ...], to: int) -> Inputs:
        """`checks` wait for tokens; `to`: later epochs have none yet."""
        return replace(self, checks=checks, checks_to=to)
