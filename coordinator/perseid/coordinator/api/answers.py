"""The API's answers as models: they define the OpenAPI document and validate each answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers; an unknown field is an error and is never dropped silently."""

    model_config = ConfigDict(extra="forbid")


class ErrorText(Answer):
    """An error: what is wrong, and what to do next."""

    kind: str = Field(description="its name, as the command line's --json has it")
    message: str
    leader: str | None = Field(None, description="URL of the leader, where another one leads")


class Problem(Answer):
    """Every answer with a status of 400 or above."""

    error: ErrorText


class Health(Answer):
    """The health of this process."""

    ok: bool
    leader: bool = Field(description="whether it leads")


class Leader(Answer):
    """The leading coordinator."""

    id: str
    pid: int
    url: str
    epoch: int = Field(description="the fence that its writes carry")
    looked_ms: int | None = Field(description="each `lag` and `backlog` is as of then or later")


class Fragment(Answer):
    """A job that a worker owns, or a fragment or replica of it."""

    job: str
    fragment: str = Field(description="its name; `whole` of a job that is one fragment")
    role: str = Field(description="primary, replica or gate")
    generation: int
    state: str


class Worker(Answer):
    """A live worker."""

    id: str
    incarnation: str
    pid: int
    supervisor_pid: int
    host: str
    cores: int
    master: str
    state: str
    version: str
    fragments: list[Fragment]


class NewestCheckpoint(Answer):
    """The newest complete checkpoint."""

    epoch: int
    age_s: float
    bytes: int


class Failing(Answer):
    """What a job fails at repeatedly."""

    failures: int = Field(description="in a row, without an epoch done in between")
    for_s: int = Field(description="since the first of them")
    text: str = Field(description="the line with the cause of the last failure")


class StalledInput(Answer):
    """A source partition whose records wait for an open transaction to end."""

    topic: str
    partition: int
    offset: int = Field(description="the last stable one: where the transaction begins")
    records: int
    for_s: int


class JobFragment(Answer):
    """A fragment of a job that has several, or that has a replica."""

    name: str
    role: str = Field(description="primary or replica")
    state: str | None = Field(description="waiting, restoring or running, as the leader knows it")
    partitions: str | None = Field(description="its operator partitions, as in `counts 0-1`")
    owner: str | None = Field(description="the worker's incarnation")
    generation: int
    epoch: int | None = Field(description="its last done epoch, as the leader knows it")


class JobGate(Answer):
    """The wanted revision, which is compared with the running one before the job switches to it."""

    revision: str
    state: str = Field(description="waiting, comparing, refused or switching")
    epochs: int = Field(description="so many have to be equal")
    equal: int | None = Field(description="so many were; null where only the leader knows it")
    worker: str | None = Field(description="the incarnation that runs it, muted")
    reason: str | None = Field(description="why it waits or is refused")


class Buffers(Answer):
    """How full a job's buffer topics are."""

    bytes_max: int = Field(description="the bound of each")
    bytes: dict[str, int] = Field(description="by the operator that reads one")


class JobNow(Answer):
    """A job as the leader sees it; an unknown value is null."""

    name: str
    uuid: str
    state: str
    desired: str
    revision: str
    wanted_revision: str
    generation: int
    owner: str | None = Field(description="null for a job of several fragments")
    fragments: list[JobFragment] = Field(
        description="empty for a job that is one fragment without a replica"
    )
    protected: bool | None = Field(
        description="whether a replica takes over when a worker dies; null if none is asked for"
    )
    unprotected: str | None = Field(description="why `protected` is false")
    gate: JobGate | None = Field(description="null unless a revision was applied with a gate")
    epoch: int | None
    committed_epoch: int | None
    epochs_in_flight: int | None
    lag: int | None = Field(description="records that no committed epoch has")
    backlog: int | None = Field(description="records that no token names")
    checkpoint: NewestCheckpoint | None
    mode: str | None
    parallelism: int | None
    state_bytes: int
    watermark_ms: int | None
    late_records: int
    failures: int
    stalled_input: list[StalledInput]
    failing: Failing | None = Field(description="null for a job that has failed once or twice")
    error: dict[str, Any] | None
    held_back: str | None
    buffers: Buffers | None = Field(description="null for a job that is one fragment")
    events: list[str]
    records_in_per_s: float
    records_out_per_s: float
    epochs_per_s: float
    epoch_ms: int | None


class Status(Answer):
    """The cluster as the leader sees it."""

    leader: Leader
    workers: list[Worker]
    jobs: list[JobNow]


class JobSummary(Answer):
    """One line of `perseid jobs list`."""

    name: str
    state: str
    desired: str = Field(description="running, stopped or removed")
    revision: str
    generation: int
    owner: str | None = Field(
        description="the worker's incarnation; null for a job of several fragments"
    )
    fragments: list[JobFragment] = Field(
        description="empty for a job that is one fragment without a replica; epochs and states are "
        "in `status` only"
    )
    applied_ms: int


class Jobs(Answer):
    """What `perseid jobs list --json` prints."""

    jobs: list[JobSummary]


class Checkpoint(Answer):
    """A complete checkpoint."""

    epoch: int
    generation: int
    layout: int
    revision: str
    token_offset: int
    manifest: str = Field(description="its path in the checkpoint store")
    crc: int
    bytes: int = Field(description="what it has written")
    time_ms: int
    base_epoch: int = Field(description="the oldest epoch whose files it needs")
    needs: list[int] = Field(description="all epochs whose files it needs")


class JobAudit(Answer):
    """How far back a job's audits may ask, and the checkpoints with which they may begin."""

    horizon_s: float
    checkpoints: int
    from_epoch: int | None = Field(description="the oldest checkpoint's; null before the first")
    from_ms: int | None = Field(description="its token time")


class JobDetails(JobSummary):
    """What `perseid jobs show --json` prints."""

    uuid: str
    archive: str
    running_revision: str | None
    layout: int | None
    gate: JobGate | None = Field(description="null unless a revision was applied with a gate")
    checkpoints: list[Checkpoint]
    audit: JobAudit | None = Field(description="null without an audit horizon")
    error: dict[str, Any] | None
    events: list[str]
    failing: Failing | None
    spec: dict[str, Any] | None = Field(description="the job file; null when it cannot be read")
    spec_error: str | None = Field(description="why it cannot")


class Checkpoints(Answer):
    """The complete checkpoints of a job, the newest first."""

    job: str
    checkpoints: list[Checkpoint]


class Asked(Answer):
    """What `perseid jobs start --no-wait --json` prints: the request is written."""

    name: str
    state: str = Field(description="at this moment; GET the job to see what comes of the request")
    desired: str
    revision: str
    generation: int
    error: dict[str, Any] | None


class CheckpointAsked(Answer):
    """What `perseid checkpoint --no-wait --json` prints."""

    name: str
    state: str
    above_epoch: int = Field(description="done once the job has a checkpoint above this epoch")
    checkpoint: Checkpoint | None


class Moved(Answer):
    """A fragment that moves to another worker."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    job: str
    fragment: str = Field(description="its name; `whole` of a job that is one fragment")
    source: str = Field(alias="from", description="the incarnation of the worker that has it")
    to: str = Field(description="that of the worker that gets it")
    why: str


class Rebalance(Answer):
    """What `perseid rebalance --no-wait --json` prints."""

    state: str = Field(description="`asked for`, or `even` where nothing is to move")
    moves: list[Moved] = Field(description="as far as they are known now")


class Removal(Answer):
    """What `perseid jobs remove --no-wait --json` prints."""

    name: str
    state: str
    purged_topics: list[str]


class RepositoryJob(Answer):
    """The result of one job folder of the followed repository."""

    folder: str
    job: str = Field(description="empty while its job file cannot be read")
    result: str = Field(description="applied, broken, refused or gone")
    tree: str = Field(description="digest of the files that the result is about")
    commit: str = Field(description="what was applied last")
    archive: str
    text: str = Field(description="what is wrong, and what to do")


class RepositoryFault(Answer):
    """Why the last look failed."""

    kind: str
    text: str
    next: str


class Repository(Answer):
    """The followed config repository, as `perseid status --json` has it."""

    url: str
    ref: str
    interval_s: float
    state: str = Field(description="applying, applied, refused or unreachable")
    looked_ms: int
    commit: str = Field(description="the last one that was taken")
    seen: str = Field(description="the last one that the ref was found at")
    unfinished: bool
    rewritten: bool = Field(description="whether the ref was rewritten")
    fault: RepositoryFault | None
    jobs: list[RepositoryJob]
    faults: list[str] = Field(description="what needs attention")


class LookAsked(Answer):
    """What `perseid jobs look --json` prints."""

    url: str
    ref: str
    state: str


class AuditProgress(Answer):
    """How far an audit is."""

    epoch: int = Field(description="the last one that ran again")
    of: int = Field(description="the last one that will")
    differences: int


class Audit(Answer):
    """An audit that a worker runs, will run or has run; unknown values are null."""

    id: str
    job: str
    state: str = Field(description="waiting, running, done, failed, refused or canceled")
    verdict: str | None = Field(description="of one that is done")
    text: str | None = Field(description="why it has this verdict, failed or was refused")
    arguments: list[str] = Field(description="options of `perseid replay`")
    by: str = Field(description="who asked for it")
    continuous: bool = Field(description="whether job.yaml asks for it")
    requested_ms: int
    began_ms: int | None
    ended_ms: int | None
    worker: str | None = Field(description="the incarnation that runs it, or ran it last")
    attempt: int = Field(description="1, and one more for each worker that died meanwhile")
    progress: AuditProgress | None
    first_epoch: int | None = Field(description="of the compared range")
    last_epoch: int | None
    epochs: int = Field(description="so many ran again")
    records: int = Field(description="so many they read")
    report: bool = Field(description="whether it has a report")


class Audits(Answer):
    """What `perseid audits list --json` prints."""

    audits: list[Audit]
