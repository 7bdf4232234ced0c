"""What the tasks of an epoch report to its driver: one record per task, merged by the driver.

The parts of a record are keyed by what they are about. A task that Spark runs again, or twice at
the same time, repeats its part, so it counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReadCount:
    """What one split read of one source."""

    count: int
    bytes: int  # of the values
    crc: int
    refused: int
    late: int
    event_times: dict[int, int]  # by partition: the largest, in milliseconds


@dataclass(frozen=True, slots=True)
class StateSize:
    """The state of one operator partition after the epoch, and the bytes of its delta."""

    bytes: int
    rows: int
    changed_bytes: int


@dataclass(frozen=True, slots=True)
class Made:
    """What a muted epoch of one operator partition has for one topic partition.

    `checksum`: as that of a `SinkWindow`.
    """

    topic: str
    partition: int
    count: int
    checksum: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One operator partition's epoch: durations, records sent to sinks, refused rows.

    `dead_letters`: not those of sources, which are counted where they are read. `state`: None
    without state. `made`: what a muted epoch has for sinks, None without sinks or if not muted.
    """

    process_ms: int = 0
    commit_ms: int = 0
    sent: int = 0
    dead_letters: int = 0
    state: StateSize | None = None
    made: tuple[Made, ...] | None = None


Reads = Mapping[tuple[int, str], ReadCount]  # by split and source
Buffered = Mapping[tuple[str, int, int], int]  # bytes that were sent, by reader, input and origin


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task, or all tasks so far, report of `epoch`. `partitions`: by gid.

    `buffered`: what went to buffer topics; the operator that reads one names it.
    """

    epoch: int
    reads: Reads = field(default_factory=dict)
    partitions: Mapping[int, PartitionReport] = field(default_factory=dict)
    buffered: Buffered = field(default_factory=dict)

    def merged(self, other: TaskReport) -> TaskReport:
        """Both; of different epochs only the later one, since the other comes from a straggler.

        >>> TaskReport(7, {}, {0: PartitionReport(sent=1)}).merged(TaskReport(6)).epoch
        7
        """
        if self.epoch != other.epoch:
            return max(self, other, key=lambda report: report.epoch)
        return TaskReport(
            self.epoch, {**self.reads, **other.reads}, {**self.partitions, **other.partitions},
            {**self.buffered, **other.buffered},
        )  # fmt: skip

    @property
    def state_bytes(self) -> dict[int, int]:
        """The size of the state by gid, of the partitions that have one."""
        found = {gid: report.state for gid, report in self.partitions.items()}
        return {gid: state.bytes for gid, state in found.items() if state is not None}
