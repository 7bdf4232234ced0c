"""What the coordinator knows: frozen values, replaced and never changed in place.

`JobState` is a cache of ZooKeeper and Kafka. Everything in it can be read again from there, which
happens when another process becomes leader or when the outcome of a write is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perseid.coordinator import lifecycle
from perseid.coordinator.job.checkpointing import Checkpointing
from perseid.coordinator.job.health import Health
from perseid.coordinator.job.inputs import Inputs
from perseid.coordinator.job.ownership import Ownership
from perseid.coordinator.job.program import Program
from perseid.coordinator.job.switch import Switch
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.token_time import NEVER, Time
from perseid.coordinator.totals import Totals
from perseid.jobs.model.layout import Layout
from perseid.records import (
    CheckpointPointer,
    JobEntry,
    Plan,
    WorkerInfo,
)
from perseid.topics.records import (
    EpochDone,
    EventTimes,
    FragmentState,
    Token,
)

TRANSITIONS_MAX = 40  # enough to show how a job reached its state


@dataclass(frozen=True, slots=True)
class Now:
    """`monotonic_s` decides; `wall_ms` is only written into records that people read.

    `time_ms`: the leader's own time (`token_time`); `decide` sets it.
    """

    monotonic_s: float
    wall_ms: int
    time_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Issued:
    """A valid token and its offset in the token log.

    `stamp_ms`: the log's timestamp since 1970, if the token was read from the log.
    """

    offset: int
    token: Token
    stamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Tip:
    """The last record of the token chain: a token, or the Begin before the first one."""

    epoch: int
    offset: int


@dataclass(frozen=True)
class JobState:
    """One job. Fields below `program` mean nothing while the phase is LOADING."""

    name: str
    entry: JobEntry
    phase: Phase = Phase.LOADING
    transition_log: tuple[str, ...] = ()
    load_at_s: float | None = None  # when to try again after a load that failed
    loading_s: float = 0.0  # when that was begun, or was last reported to take long
    program: Program | None = None  # of the plan, or of the entry while there is no plan
    layout: Layout | None = None
    base: Tip = Tip(0, -1)  # the tokens below start after it
    tokens: tuple[Issued, ...] = ()
    begun: bool = False  # the chain in the token log is this job UUID's
    highest_epoch: int = 0  # of any record under this name; a Begin is above it
    appending: bool = False  # an append's outcome is not known yet
    deferred: tuple[Any, ...] = ()  # events that came meanwhile
    issued_s: float = 0.0  # when the last token was issued
    time: Time = NEVER  # of its last token, or of its load
    log_time: Time = NEVER  # the broker's clock at its load
    apart_ms: float = 0.0  # how far the wall clock is ahead, as last reported
    unheard: str = ""  # why workers' reports may be missing, until it is loaded
    inputs: Inputs = field(default_factory=Inputs)
    ownership: Ownership = field(default_factory=Ownership)
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    switch: Switch = field(default_factory=Switch)
    health: Health = field(default_factory=Health)
    totals: Totals = field(default_factory=Totals)  # of this leader, also while LOADING

    @property
    def plan(self) -> Plan | None:
        return self.ownership.plan

    @property
    def done(self) -> int:
        """All epochs up to this one are logged and committed."""
        return self.ownership.done

    @property
    def wants_stop(self) -> bool:
        return self.entry.desired == "stopped"

    @property
    def wants_switch(self) -> bool:
        """Whether the user wants another revision than the plan has, and it may yet run."""
        return (
            self.entry.desired == "running" and self.plan is not None
            and self.entry.archive not in (self.plan.archive, self.switch.rejected)
        )  # fmt: skip

    @property
    def tip(self) -> Tip:
        last = self.tokens[-1] if self.tokens else None
        return Tip(last.token.epoch, last.offset) if last is not None else self.base

    @property
    def last_token(self) -> Token | None:
        return self.tokens[-1].token if self.tokens else None

    @property
    def in_flight(self) -> int:
        return max(0, self.tip.epoch - self.done)

    @property
    def kept(self) -> tuple[CheckpointPointer, ...]:
        """The complete checkpoints of this job UUID, the newest one first."""
        return self.checkpointing.kept(self.entry.uuid)

    @property
    def newest(self) -> CheckpointPointer | None:
        return next(iter(self.kept), None)

    def move(self, phase: Phase, now: Now, why: str) -> JobState:
        """This job in another phase; raises InvalidTransition when the table forbids it."""
        lifecycle.check(self.name, self.phase, phase, self.transition_log)
        line = f"{now.monotonic_s:.3f} {self.phase.name} -> {phase.name}: {why}"
        loading_s = now.monotonic_s if phase is Phase.LOADING else self.loading_s
        transition_log = (*self.transition_log, line)[-TRANSITIONS_MAX:]
        return replace(self, phase=phase, transition_log=transition_log, loading_s=loading_s)

    def with_events(self, *lines: str) -> JobState:
        """With more events for users."""
        return replace(self, health=self.health.with_events(*lines))


@dataclass(frozen=True)
class ClusterState:
    """Everything the leader decides on. `epoch`: its coordinator epoch; `time`: its own time."""

    epoch: int
    time: Time
    workers: Mapping[str, WorkerInfo] = field(default_factory=dict)  # by incarnation
    jobs: Mapping[str, JobState] = field(default_factory=dict)

    def with_job(self, job: JobState) -> ClusterState:
        if self.jobs.get(job.name) is job:  # most events change nothing
            return self
        return replace(self, jobs={**self.jobs, job.name: job})

    def without_job(self, name: str) -> ClusterState:
        return replace(self, jobs={n: j for n, j in self.jobs.items() if n != name})


def issued_token(job: JobState, epoch: int) -> Issued | None:
    """The token of `epoch`, if it is remembered. The epochs of a chain have no gaps."""
    if not job.tokens:
        return None
    index = epoch - job.tokens[0].token.epoch
    return job.tokens[index] if 0 <= index < len(job.tokens) else None


def confirmed_epoch(job: JobState, record: EpochDone | EventTimes | FragmentState) -> int:
    """The epoch that `record` proves done, or 0: its token may have been rolled back."""
    if isinstance(record, FragmentState):
        return record.epoch if record.state in ("running", "stopped", "failed", "repeated") else 0
    token = issued_token(job, record.epoch)
    if token is None:
        return record.epoch if record.epoch <= job.base.epoch else 0
    return record.epoch if token.offset == record.token_offset else 0
