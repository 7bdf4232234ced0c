"""Actions: the coordinator's outputs, which the shell performs in order.

Each write of a job is an action of its own. A crash between any two of them is therefore a case
that the next leader must handle, and that a test can provoke.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.coordinator.job.chain import Tip
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
    """Append a claim, then read everything about the job. Leads to JobLoaded or JobLoadFailed."""

    job: str
    entry: JobEntry


@dataclass(frozen=True, slots=True)
class LoadProgram:
    """Fetch the archive of a switch's target and grow the ledger topic for it.

    `known` are the (source, topic) pairs whose positions the job has. Leads to ProgramLoaded or
    ProgramFailed.
    """

    job: str
    revision: str
    archive: str
    known: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class AppendBegin:
    """Open the chain of a job UUID. Leads to BeginAppended."""

    job: str
    begin: Begin


@dataclass(frozen=True, slots=True)
class AppendRewind:
    """Roll tokens back. Leads to RewindAppended."""

    job: str
    rewind: Rewind


@dataclass(frozen=True, slots=True)
class AppendToken:
    """Open an epoch. Leads to TokenAppended."""

    job: str
    token: Token


@dataclass(frozen=True, slots=True)
class PutPlan:
    """Name the job's owner and its generation."""

    job: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class PutStatus:
    """Write the status that users see."""

    job: str
    status: JobStatus


@dataclass(frozen=True, slots=True)
class PutFailures:
    """Store the failure count for the next leader."""

    job: str
    failures: JobFailures


@dataclass(frozen=True, slots=True)
class PutPointers:
    """Make a checkpoint valid: everything that it names is durable."""

    job: str
    pointers: CheckpointPointers


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write a checkpoint's manifest. Leads to ManifestWritten or ManifestFailed.

    `generation`: the highest under which a part was made.
    """

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
    """Delete files older than all `live` checkpoints that no live one refers to.

    Files of the epochs in `spared` stay. A failure is harmless: the files stay in the store.
    """

    job: str
    job_uuid: str
    live: tuple[CheckpointPointer, ...]
    spared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TrimLogs:
    """Delete what precedes `kept` in the token log, and the ledger records of those epochs.

    `kept` None: they stay whole. `once`: `kept` stays for long, so what is done is not done again.
    Records stay that a backup taken at `backups_since_ms` (since
    1970) or later needs. Leads to LogsTrimmed.
    """

    job: str
    job_uuid: str
    kept: Tip | None
    backups_since_ms: int
    once: bool = False


@dataclass(frozen=True, slots=True)
class RemoveJob:
    """Delete the job's entries; its generation stays. Another job's of that name stay, too."""

    job: str
    job_uuid: str


Action = (
    LoadJob | LoadProgram | AppendBegin | AppendRewind | AppendToken | PutPlan | PutStatus
    | PutFailures | PutPointers | WriteManifest | DeleteCheckpoints | TrimLogs | RemoveJob
)  # fmt: skip
