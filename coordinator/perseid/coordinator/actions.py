"""What is to be done: the coordinator's outputs, carried out in order by the shell.

Each write of one job is its own action, so that a crash between any two of them is a case that the
next leader must handle, and a test can provoke it.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.coordinator.model import Tip
from perseid.records import (
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    JobFailures,
    JobStatus,
    Plan,
)
from perseid.topics.records import Begin, PartDone, Rewind, Token


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Append a claim, then read everything about the job. Ends in JobLoaded or JobLoadFailed."""

    job: str
    entry: JobEntry


@dataclass(frozen=True, slots=True)
class LoadProgram:
    """Get the archive of a switch ready, and grow the ledger topic for it.

    `known` are the (source, topic) pairs whose positions the job has. Ends in ProgramLoaded or
    ProgramFailed.
    """

    job: str
    revision: str
    archive: str
    known: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class AppendBegin:
    """Open the chain of a job UUID. Ends in BeginAppended."""

    job: str
    begin: Begin


@dataclass(frozen=True, slots=True)
class AppendRewind:
    """Take tokens back. Ends in RewindAppended."""

    job: str
    rewind: Rewind


@dataclass(frozen=True, slots=True)
class AppendToken:
    """Open an epoch. Ends in TokenAppended."""

    job: str
    token: Token


@dataclass(frozen=True, slots=True)
class PutPlan:
    """Say who runs the job; also its generation."""

    job: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class PutStatus:
    """Tell people."""

    job: str
    status: JobStatus


@dataclass(frozen=True, slots=True)
class PutFailures:
    """Keep the count of failures for the next leader."""

    job: str
    failures: JobFailures


@dataclass(frozen=True, slots=True)
class PutPointers:
    """Make a checkpoint count: what it names is durable."""

    job: str
    pointers: CheckpointPointers


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Ends in ManifestWritten or ManifestFailed."""

    job: str
    job_uuid: str
    epoch: int
    generation: int
    layout: int
    revision: str
    token_offset: int
    time_ms: int
    parts: tuple[PartDone, ...]


@dataclass(frozen=True, slots=True)
class DeleteCheckpoints:
    """Delete what is older than all of `live` and that none refers to.

    Failing is harmless: garbage stays.
    """

    job: str
    job_uuid: str
    live: tuple[CheckpointPointer, ...]


@dataclass(frozen=True, slots=True)
class TrimLogs:
    """Delete what is behind `kept` in the token log, and of its epochs in the ledger.

    Not what a backup needs that was taken at `backups_since_ms` (since 1970) or later. Ends in
    LogsTrimmed.
    """

    job: str
    job_uuid: str
    kept: Tip
    backups_since_ms: int


@dataclass(frozen=True, slots=True)
class RemoveJob:
    """Delete the job's entries; its generation stays."""

    job: str


Action = (
    LoadJob | LoadProgram | AppendBegin | AppendRewind | AppendToken | PutPlan | PutStatus
    | PutFailures | PutPointers | WriteManifest | DeleteCheckpoints | TrimLogs | RemoveJob
)  # fmt: skip
