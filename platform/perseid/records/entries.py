"""Entries of ZooKeeper (contracts.md, ZooKeeper): jobs, their plans, and the processes.

No entry grows with the data; large content is in Kafka or in the checkpoint store, and entries
point to it. `perseid.registry` gives each entry its path, its JSON form and its CRC.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The leading coordinator. `epoch` is the fence that all of its writes carry.

    `version` and `protocol`: see `perseid.records.version`.
    """

    id: str
    epoch: int
    pid: int
    url: str
    version: str = ""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class CoordinatorInfo:
    """One life of one coordinator, whether it leads or is a standby."""

    id: str
    host: str
    pid: int
    url: str
    version: str = ""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One life of one worker. `pid` is the Spark driver's; `incarnation` is new at every start.

    `leaving`: it completes its running epochs and gets nothing new. `version` and `protocol`: see
    `perseid.records.version`.
    """

    id: str
    incarnation: str
    host: str
    pid: int
    supervisor_pid: int
    cores: int
    master: str
    started_ms: int
    leaving: bool = False
    version: str = ""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class ApprovedCause:
    """Differences that a user has approved: of one operator, kind and set of columns.

    `kind`, `fields`: as an audit lists them (`perseid.replay.findings.Cause`).
    """

    operator: str
    kind: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobEntry:
    """What the user wants: written by the command line, read by the coordinator.

    `desired`: "running" | "stopped" | "removed". `archive` is the SHA-256 name of the validated
    tree in the store (`archives/<sha256>.tar`). `counter` increases with every change, so that a
    repeated request is recognised. `stop_checkpoint`: take a checkpoint before stopping. `start`:
    {"from": "checkpoint" | "scratch" | "<ISO time>"}. `checkpoint_above`: take a checkpoint of an
    epoch above this one now. `rebalance_until_ms` (since 1970): until then its fragments may move
    to other workers at once. These two change nothing else, so `counter` stays. `writes`: the
    topics that the revision writes, and whether every record marks its job; None: only the archive
    shows them. `gate`: so many epochs of the revision have to be equal to those of the running one
    before the job switches to it; 0: it switches at once. `approved`: differences that a gate takes
    for none.
    """

    name: str
    uuid: str
    revision: str
    archive: str
    desired: str
    counter: int
    applied_ms: int
    start: dict[str, Any] = field(default_factory=dict)
    stop_checkpoint: bool = False
    checkpoint_above: int | None = None
    rebalance_until_ms: int | None = None
    writes: dict[str, bool] | None = None
    gate: int = 0
    approved: tuple[ApprovedCause, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointPointer:
    """One complete checkpoint. `manifest` is a path in the store, `crc` its CRC-32.

    `generation`: the highest under which a part was made.
    `token_offset` is the offset of the token of `epoch` in the token log: replay resumes after it.
    `bytes`: size of its own files. `needs`: the epochs whose files it needs, its own included;
    `base_epoch`: the oldest of them.
    """

    epoch: int
    generation: int
    layout: int
    revision: str
    token_offset: int
    manifest: str
    crc: int
    bytes: int
    time_ms: int
    base_epoch: int = 0
    needs: tuple[int, ...] = ()

    def shares_files(self, other: CheckpointPointer) -> bool:
        """Whether one damaged file may damage both."""
        return not set(self.needs).isdisjoint(other.needs)


@dataclass(frozen=True, slots=True)
class CheckpointPointers:
    """Complete checkpoints of a job, newest first. `pointers`: what restores need, three at most.

    Only with an audit horizon: `past`, other ones that audits begin with, and `archives`: of the
    revisions of all of them.
    """

    job_uuid: str
    pointers: tuple[CheckpointPointer, ...] = ()
    past: tuple[CheckpointPointer, ...] = ()
    archives: dict[str, str] = field(default_factory=dict)

    @property
    def every(self) -> tuple[CheckpointPointer, ...]:
        """All complete ones, newest first."""
        return tuple(sorted((*self.pointers, *self.past), key=lambda p: -p.epoch))


@dataclass(frozen=True, slots=True)
class BackupMark:
    """The record of the token log with which a restore of a backup begins.

    `taken_ms`: when the backup was taken, since 1970, by the clock of who took it, but not before
    the newest checkpoint.
    """

    job_uuid: str
    epoch: int
    token_offset: int
    taken_ms: int


@dataclass(frozen=True, slots=True)
class BackupMarks:
    """The backups of a job that may be restored, newest first."""

    marks: tuple[BackupMark, ...] = ()


WHOLE = "whole"  # the id of a fragment that has all operator partitions
PRIMARY = "primary"  # the role that commits
REPLICA = "replica"  # runs the same epochs, muted, to become the primary when that one dies
GATE = "gate"  # runs the same epochs with the code of the revision that is wanted, muted
AUDIT = "audit"  # runs past epochs again, muted, in no plan but its own
MAIN, PAIR = "main", "pair"  # the two copies of a fragment's state; either may be the primary's
APART = "gate"  # the state of another revision: no copy of the job's


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who runs one fragment: the operator partitions `gids` of the plan's layout.

    `gids` None: all of them, whatever the layout. `owner` is a worker incarnation, None while no
    worker may run the fragment. Of a partition the highest `generation` is valid. `from_epoch`:
    the fragment runs the epochs above it. `split`: the only one that it reads of each token; None:
    all splits. `log`: which copy of the state logs it has, MAIN or PAIR; APART for a gate.
    `archive`: whose code a gate runs; None: the plan's. `approved`: see JobEntry, of a gate.
    """

    fragment: str
    gids: tuple[int, ...] | None
    owner: str | None
    generation: int
    role: str = PRIMARY
    from_epoch: int = 0
    split: int | None = None
    log: str = MAIN
    archive: str | None = None
    approved: tuple[ApprovedCause, ...] = ()

    @property
    def muted(self) -> bool:
        return self.role != PRIMARY

    @property
    def name(self) -> str:
        """In reports and names of threads: no other assignment of its job has it."""
        return f"{self.fragment}.{self.role}" if self.muted else self.fragment

    @property
    def other_log(self) -> str:
        return PAIR if self.log == MAIN else MAIN


@dataclass(frozen=True, slots=True)
class Gate:
    """The comparison of the wanted revision with the running one.

    `counter`: of the JobEntry that asks for it. `run`: who runs the wanted revision, as one
    fragment, None while no worker may. `refused`: why the job stays as it is; empty while that is
    open. `equal`: epochs that were equal before `run`, on workers that have left.
    """

    counter: int
    run: Assignment | None = None
    refused: str = ""
    equal: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Which fragments a job has, and who runs them. The highest generation is valid.

    `generation` is the plan's version: plans and assignments get theirs from one counter of the
    job. `base_epoch` and `base_offset` name the Begin, Rewind target or token after which epochs
    run when there is neither a log nor a checkpoint. `checkpoints` newest first. `rescaled`: the
    checkpoint of `base_epoch` has another number of partitions, and is redistributed.
    `assignments`: the primaries; `replicas`: at most one for each, with the other copy of its logs.
    `diverged`: why it gets no replicas: one had other results than its primary. `gate`: None when
    no revision is compared, or was.
    """

    job: str
    job_uuid: str
    generation: int
    revision: str
    archive: str
    layout: int
    base_epoch: int
    base_offset: int
    assignments: tuple[Assignment, ...]
    checkpoints: tuple[CheckpointPointer, ...] = ()
    reason: str = ""
    rescaled: bool = False
    replicas: tuple[Assignment, ...] = ()
    diverged: str = ""
    gate: Gate | None = None

    @classmethod
    def fused(
        cls, job: str, job_uuid: str, generation: int, owner: str | None, revision: str,
        archive: str, layout: int, base_epoch: int, base_offset: int,
        checkpoints: tuple[CheckpointPointer, ...] = (), reason: str = "", rescaled: bool = False,
    ) -> Plan:  # fmt: skip
        """The plan of a job that is one fragment."""
        whole = Assignment(WHOLE, None, owner, generation, from_epoch=base_epoch)
        return cls(
            job, job_uuid, generation, revision, archive, layout, base_epoch, base_offset, (whole,),
            checkpoints, reason, rescaled,
        )  # fmt: skip

    @property
    def primaries(self) -> tuple[Assignment, ...]:
        return tuple(a for a in self.assignments if a.role == PRIMARY)

    @property
    def only(self) -> Assignment:
        """The assignment of a job that is one fragment; ValueError if the plan has several."""
        if len(self.assignments) != 1:
            raise ValueError(f"the plan of {self.job} has {len(self.assignments)} fragments")
        return self.assignments[0]

    @property
    def owner(self) -> str | None:
        """The owner of a job that is one fragment, its primary's; None for several fragments."""
        return self.assignments[0].owner if len(self.assignments) == 1 else None

    def of_fragment(self, fragment: str) -> Assignment | None:
        return next((a for a in self.assignments if a.fragment == fragment), None)

    @property
    def floor(self) -> int:
        """The generation of the last change of the whole job: a fragment below it is over."""
        return min((a.generation for a in self.primaries), default=self.generation)

    def for_worker(self, incarnation: str) -> tuple[Plan, ...]:
        """The plan as the fragments of that worker see it: each its own assignment alone."""
        return tuple(self.of_one(a) for a in self.every if a.owner == incarnation)

    @property
    def copies(self) -> tuple[Assignment, ...]:
        """Primaries and replicas."""
        return (*self.assignments, *self.replicas)

    @property
    def gated(self) -> Assignment | None:
        """Who runs the revision of a gate, if any worker may."""
        return self.gate.run if self.gate is not None else None

    @property
    def every(self) -> tuple[Assignment, ...]:
        """Primaries, replicas, and who runs the revision of a gate."""
        return self.copies if self.gated is None else (*self.copies, self.gated)

    def gate_of(self, entry: JobEntry) -> Gate | None:
        """The gate, if it is the one that the entry asks for."""
        found = self.gate if self.job_uuid == entry.uuid else None
        return found if found is not None and found.counter == entry.counter else None

    def of_one(self, own: Assignment) -> Plan:
        """The plan with this assignment alone, under its generation.

        A gate's begins at the newest checkpoint, and has the archive of its code; its revision is
        that of the tokens which it runs.
        """
        alone = replace(
            self, generation=own.generation, assignments=(own,), replicas=(), gate=None
        )
        if own.archive is None:
            return alone
        other = replace(alone, archive=own.archive, rescaled=False)
        if not self.checkpoints:
            return other
        newest = self.checkpoints[0]
        based = other.based_on(newest.epoch, newest.token_offset)
        return replace(based, checkpoints=(newest,))

    def gated_by(self, entry: JobEntry, owner: str, generation: int, equal: int = 0) -> Plan:
        """With a gate of that entry, whose revision `owner` runs: all operator partitions."""
        run = Assignment(
            WHOLE, None, owner, generation, GATE, self.base_epoch, log=APART,
            archive=entry.archive, approved=entry.approved,
        )  # fmt: skip
        return replace(self, generation=generation, gate=Gate(entry.counter, run, equal=equal))

    def _with_gate_apart(self) -> Plan:
        """Without who runs a gate, if that worker has a copy of the job: two revisions' code."""
        if self.gate is None or self.gated is None:
            return self
        meets = self.gated.owner in {a.owner for a in self.copies}
        return replace(self, gate=replace(self.gate, run=None)) if meets else self

    def replica_of(self, fragment: str) -> Assignment | None:
        return next((a for a in self.replicas if a.fragment == fragment), None)

    def with_replica(self, fragment: str, owner: str, generation: int) -> Plan:
        """That fragment's replica on `owner`, in the place of an earlier one.

        ValueError if the plan has no such fragment.
        """
        primary = self.of_fragment(fragment)
        if primary is None:
            raise ValueError(f"the plan of {self.job} has no fragment {fragment}")
        made = replace(
            primary, role=REPLICA, owner=owner, generation=generation, log=primary.other_log
        )
        others = self.without_replicas([fragment], generation)
        return replace(others, replicas=(*others.replicas, made))._with_gate_apart()

    def without_replicas(self, fragments: Collection[str], generation: int) -> Plan:
        """Without the replicas of these fragments; all others continue."""
        kept = tuple(a for a in self.replicas if a.fragment not in fragments)
        return replace(self, generation=generation, replicas=kept)

    def promoted(self, fragments: Collection[str], generation: int) -> Plan:
        """The replicas of these fragments are the primaries, in place; all others continue."""
        made = {
            a.fragment: replace(a, role=PRIMARY, generation=generation)
            for a in self.replicas if a.fragment in fragments
        }  # fmt: skip
        assignments = tuple(made.get(a.fragment, a) for a in self.assignments)
        return replace(self.without_replicas(made, generation), assignments=assignments)

    def placed(self, owners: Mapping[str, str | None], generation: int) -> Plan:
        """These fragments under new owners, by fragment; all others continue."""
        placed = tuple(
            replace(a, owner=owners[a.fragment], generation=generation)
            if a.fragment in owners else a
            for a in self.assignments
        )  # fmt: skip
        return replace(self, generation=generation, assignments=placed)._with_gate_apart()

    def renewed(self, generation: int) -> Plan:
        """All fragments under that generation and their owners; no replicas, no gate."""
        alone = replace(self, replicas=(), diverged="", gate=None)
        return alone.placed({a.fragment: a.owner for a in self.assignments}, generation)

    def handed_to(self, owner: str | None, generation: int) -> Plan:
        """All fragments under that owner and generation, the plan's too; no replicas, no gate."""
        handed = tuple(replace(a, owner=owner, generation=generation) for a in self.assignments)
        return replace(
            self, generation=generation, assignments=handed, replicas=(), diverged="", gate=None
        )

    def based_on(self, epoch: int, offset: int) -> Plan:
        """With all fragments beginning after that token."""
        begun = tuple(replace(a, from_epoch=epoch) for a in self.assignments)
        return replace(self, base_epoch=epoch, base_offset=offset, assignments=begun)

    @property
    def usable_checkpoints(self) -> tuple[CheckpointPointer, ...]:
        """The checkpoints from which this plan may restore: none from before its revision."""
        return tuple(p for p in self.checkpoints if p.epoch >= self.base_epoch)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the coordinator last knew of a job, for users.

    state: "waiting" | "restoring" | "rescaling" | "running" | "stopping" | "stopped" | "failed" |
    "removed". `error` has {"kind", "text", "next"} while failed. `counter` is that of the JobEntry
    it answers.
    """

    job_uuid: str
    state: str
    generation: int
    counter: int
    time_ms: int
    error: dict[str, Any] | None = None
    events: tuple[str, ...] = ()


FAILING_MIN = 3  # consecutive failures without an epoch from which on a job counts as failing


@dataclass(frozen=True, slots=True)
class JobFailures:
    """Transient faults of a job since it last made progress; they delay the next attempts.

    `time_ms`: of the last one, `since_ms`: of the first. `counter`: of the entry that failed last.
    """

    job_uuid: str
    count: int
    time_ms: int
    text: str = ""
    since_ms: int = 0
    counter: int = 0

    @property
    def lasts(self) -> bool:
        """Whether users should be warned: one or two faults come with every worker that dies."""
        return self.count >= FAILING_MIN
