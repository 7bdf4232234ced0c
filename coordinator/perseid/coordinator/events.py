"""Events: the coordinator's inputs. An event states what happened, not what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseid.coordinator.job.chain import Issued, Tip
from perseid.coordinator.job.positions import Position
from perseid.coordinator.job.program import Program
from perseid.coordinator.token_time import NEVER, Time
from perseid.records import (
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    JobFailures,
    JobStatus,
    Plan,
    WorkerInfo,
)
from perseid.topics.records import Begin, ProgressRecord, Rewind, Token


@dataclass(frozen=True, slots=True)
class RegistrySeen:
    """All job entries and live workers, read after a change and periodically.

    `damaged`: why the entries of some jobs cannot be read; `entries` has them as last seen.
    """

    entries: Mapping[str, JobEntry]
    workers: tuple[WorkerInfo, ...]
    damaged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobLoaded:
    """Everything about a job that ZooKeeper and Kafka hold, read after the leader's own claim.

    `tokens`: the valid ones after `base`, including the base if it is a token. `begun`: a plan of
    this job UUID exists, so its chain is open. `starts`: the first offsets of sources that no token
    names; for sources that only rolled-back tokens name, where those began. `ledger`: the last
    epoch of each ledger partition. `log_time`: the broker's clock when the claim was appended.
    """

    job: str
    entry: JobEntry
    program: Program
    plan: Plan | None
    generation: int
    pointers: CheckpointPointers | None
    status: JobStatus | None
    failures: JobFailures | None
    begun: bool
    base: Tip
    tokens: tuple[Issued, ...]
    highest_epoch: int
    starts: Mapping[tuple[str, int], Position]
    ledger: Mapping[int, int]
    progress: tuple[ProgressRecord, ...] = ()
    progress_offset: int = 0  # of the first progress record after those in `progress`
    log_time: Time = NEVER


@dataclass(frozen=True, slots=True)
class JobLoadFailed:
    """A job could not be loaded. `permanent`: a person must act; otherwise the load is retried."""

    job: str
    entry: JobEntry
    kind: str
    text: str
    permanent: bool


@dataclass(frozen=True, slots=True)
class ProgramLoaded:
    """The target of a switch. `starts`: first offsets of sources that the old program lacks."""

    job: str
    program: Program
    starts: Mapping[tuple[str, int], Position]


@dataclass(frozen=True, slots=True)
class ProgramFailed:
    """The target of a switch cannot be loaded. `permanent`: not before another apply."""

    job: str
    archive: str
    kind: str
    text: str
    permanent: bool


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """One record of a job's progress topic."""

    job: str
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class ProgressLost:
    """The progress topic lost records that were read from it: workers' reports may be missing."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class EndsSeen:
    """Last stable offsets of source partitions, by (topic, partition).

    `asked_s`: the leader's clock before it asked the broker; later changes are not included.
    `all_asked`: of all partitions that jobs read, so those that `ends` lacks have not moved.
    """

    ends: Mapping[tuple[str, int], int]
    asked_s: float = float("-inf")
    all_asked: bool = False


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A source topic as it is now; `starts` are the earliest offsets by partition."""

    topic: str
    topic_id: str
    compacted: bool
    starts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """All source topics that were asked for; None for one that does not exist.

    `highs`: the high watermarks of their partitions, which are above the ends that can be read
    while a transaction is open. `asked_s`: as of EndsSeen. `sinks`: the broker's answers about sink
    topics that cannot be written to, by topic.
    """

    topics: Mapping[str, SourceTopic | None]
    highs: Mapping[tuple[str, int], int] = field(default_factory=dict)
    asked_s: float = float("inf")
    sinks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeginAppended:
    """The chain of a job UUID is open."""

    job: str
    begin: Begin
    offset: int


@dataclass(frozen=True, slots=True)
class RewindAppended:
    """The tokens above the target are no longer valid."""

    job: str
    rewind: Rewind
    offset: int


@dataclass(frozen=True, slots=True)
class TokenAppended:
    """A token is in the log at `offset`."""

    job: str
    token: Token
    offset: int


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The manifest is durable in the store; the checkpoint is valid once the pointer has moved."""

    job: str
    job_uuid: str
    pointer: CheckpointPointer


@dataclass(frozen=True, slots=True)
class ManifestFailed:
    """The checkpoint of `epoch` will not be complete."""

    job: str
    job_uuid: str
    epoch: int
    text: str


@dataclass(frozen=True, slots=True)
class LogsTrimmed:
    """Records before the oldest checkpoint are deleted, or remain because of `error`."""

    job: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """A write of this job failed or has an unknown outcome: the job's state may be wrong."""

    job: str
    action: str
    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


JobEvent = (
    JobLoaded | JobLoadFailed | ProgramLoaded | ProgramFailed | ProgressSeen | ProgressLost
    | BeginAppended | RewindAppended | TokenAppended | ManifestWritten | ManifestFailed
    | LogsTrimmed
    | ActionFailed
)  # fmt: skip
Event = RegistrySeen | EndsSeen | TopicsSeen | Tick | JobEvent
