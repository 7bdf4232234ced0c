"""What the coordinator knows: frozen values, replaced and never changed in place.

`JobState` is a cache of ZooKeeper and Kafka. Everything in it can be read again from there, which
happens when another process becomes leader or when the outcome of a write is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perseid.coordinator import lifecycle
from perseid.coordinator.job.buffers import Buffers
from perseid.coordinator.job.chain import TokenChain
from perseid.coordinator.job.checkpointing import Checkpointing
from perseid.coordinator.job.health import Health
from perseid.coordinator.job.inputs import Inputs
from perseid.coordinator.job.ownership import Ownership
from perseid.coordinator.job.program import Program
from perseid.coordinator.job.standby import Standby
from perseid.coordinator.job.switch import Switch
from perseid.coordinator.job.transfer import Transfer
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.token_time import Now, Time
from perseid.coordinator.totals import Totals
from perseid.jobs.model.layout import Layout, build
from perseid.jobs.model.spread import Spread, spread_of
from perseid.records import (
    WHOLE,
    CheckpointPointer,
    Gate,
    JobEntry,
    Plan,
    WorkerInfo,
)

TRANSITIONS_MAX = 40  # enough to show how a job reached its state


@dataclass(frozen=True)
class JobState:
    """One job: the user's entry, its phase, its program, and eight parts (`coordinator/job/`).

    While the phase is LOADING, what is known of its logs and its plan is outdated.
    """

    name: str
    entry: JobEntry
    phase: Phase = Phase.LOADING
    transition_log: tuple[str, ...] = ()
    load_at_s: float | None = None  # when to try again after a load that failed
    loading_s: float = 0.0  # when that was begun, or was last reported to take long
    program: Program | None = None  # of the plan, or of the entry while there is no plan
    layout: Layout | None = None
    spread: Spread | None = None  # its fragments in this layout, if it has several
    unheard: str = ""  # why workers' reports may be missing, until it is loaded
    transfer: Transfer | None = None  # of fragments that are to move (`rebalancing`)
    chain: TokenChain = field(default_factory=TokenChain)
    inputs: Inputs = field(default_factory=Inputs)
    ownership: Ownership = field(default_factory=Ownership)
    standby: Standby = field(default_factory=Standby)
    gating: Standby = field(default_factory=Standby)  # the same of a gate
    buffers: Buffers = field(default_factory=Buffers)
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
            and (not self.wants_gate or self.gate_passed)
        )  # fmt: skip

    @property
    def wants_gate(self) -> bool:
        """Whether the wanted revision is compared before the job switches to it."""
        plan = self.plan
        return self.entry.gate > 0 and plan is not None and self.entry.archive != plan.archive

    @property
    def gate(self) -> Gate | None:
        """The plan's, if it is of this entry."""
        return self.plan.gate_of(self.entry) if self.plan is not None else None

    @property
    def gate_refused(self) -> str:
        return self.gate.refused if self.gate is not None else ""

    @property
    def gate_equal(self) -> int:
        """How many epochs of the wanted revision were equal to those of the running one."""
        return self.gating.of(WHOLE).equal if self.gate is not None else 0

    @property
    def gate_passed(self) -> bool:
        return not self.gate_refused and self.gate_equal >= self.entry.gate

    @property
    def in_flight(self) -> int:
        return max(0, self.chain.tip.epoch - self.done)

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

    def owned(self, ownership: Ownership, now: Now, why: str) -> JobState:
        """With that ownership, in the phase that follows from it."""
        return replace(self, ownership=ownership).move(ownership.phase, now, why)

    def with_program(self, program: Program, layout: int) -> JobState:
        """With this program in the layout of that number."""
        made = build(program.spec, layout)
        return replace(self, program=program, layout=made, spread=spread_of(program.spec, made))

    def with_buffers(self, buffers: Buffers) -> JobState:
        return replace(self, buffers=buffers)

    def with_events(self, *lines: str) -> JobState:
        """With more events for users."""
        return replace(self, health=self.health.with_events(*lines))


@dataclass(frozen=True, slots=True)
class Balance:
    """What is known of how even the workers' shares are. The rules: `rebalancing`.

    `uneven_s`: since when they are uneven, under these `workers`. `moved_s`: when fragments were
    last to move, of which `job`.
    """

    uneven_s: float | None = None
    workers: frozenset[str] = frozenset()
    moved_s: float = float("-inf")
    job: str = ""


@dataclass(frozen=True)
class ClusterState:
    """Everything the leader decides on. `epoch`: its coordinator epoch; `time`: its own time.

    `looked_s`: before the last look at the ends of all source partitions, only for users.
    """

    epoch: int
    time: Time
    workers: Mapping[str, WorkerInfo] = field(default_factory=dict)  # by incarnation
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    looked_s: float = float("-inf")
    balance: Balance = Balance()

    def with_job(self, job: JobState) -> ClusterState:
        if self.jobs.get(job.name) is job:  # most events change nothing
            return self
        return replace(self, jobs={**self.jobs, job.name: job})

    def without_job(self, name: str) -> ClusterState:
        return replace(self, jobs={n: j for n, j in self.jobs.items() if n != name})
