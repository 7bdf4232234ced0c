"""Checks of a job with replicas, by plans, topics and states, without production's decisions.

After every event:
- what a replica's generation names commits nothing, has no part of a checkpoint, and reports no
  event times and no checks of the input;
- after an epoch of one token, a partition's state and outputs are the same in both copies;
- a fragment whose copy of the state changes was the replica, and gets a generation above all, or
  it waits for an owner, since what was the replica had diverged;
- no replica takes over that has made other outputs than were committed while it ran;
- who takes one copy of the state logs over leaves the other one where it is;
- what a gate's generation names is muted like a replica;
- the epochs with which a gate begins were equal on workers that have not died or failed with it;
- no epoch counts as done before each partition has committed it.
At the end, once all faults are over: the replica is there, and has run all tokens (`protected`).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perseid.errors import Diverged
from perseid.records import APART, MAIN, PAIR, Gate, Plan
from perseid.registry import paths
from perseid.registry.codec import decode
from perseid.state.durability.owners import replica_directory
from perseid.testing.files import MemoryFiles
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect
from perseid.testing.znodes import Tree, TreeNode
from perseid.topics import codec, names
from perseid.topics.records import (
    EpochDone,
    EpochsEqual,
    EventTimes,
    FragmentState,
    LedgerRecord,
    PartDone,
    PartFailed,
    Token,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from perseid.jobs.model.layout import Task

PROGRESS = names.progress(job.JOB)
Place = tuple[int, int, int, int, int, int]  # layout, gid, and what identifies the token
Made = tuple[str, int, int]  # operator, partition and token offset of outputs
Totals = dict[tuple[str, int], tuple[int, int]]  # as `engine.comparison`


@dataclass
class Roles:
    """Checks one job. `hit` counts what occurs."""

    kafka: ModelKafka
    tree: Tree
    hit: Callable[[str], None]
    plan: Plan | None = None
    diverges: bool = False  # what replicas make differs from what their primaries do
    audits: bool = True  # whether the threads of audits get to look
    slow_s: float = 0.0  # how long each epoch of a replica takes
    _committed: dict[Made, Totals] = field(default_factory=dict)
    _made: dict[int, dict[Made, Totals]] = field(default_factory=dict)  # by replica's generation
    _earlier: dict[int, set[Made]] = field(default_factory=dict)  # what it is not compared with
    revised: bool = False  # what a gate makes differs
    refuses: bool = False  # and that is not approved
    _node: TreeNode | None = None  # of the plan
    _primary: set[int] = field(default_factory=set)  # generations that a plan gave to one
    _muted: set[int] = field(default_factory=set)
    _takeovers: Counter[tuple[int, str]] = field(default_factory=Counter)  # begun and ended ones
    _read: int = 0  # of the reports
    _began: dict[int, int] = field(default_factory=dict)  # by a gate's generation: equal before
    _equal: dict[int, int] = field(default_factory=dict)  # the same, with its own
    _left: set[int] = field(default_factory=set)  # gates that were stopped
    _done: dict[int, int] = field(default_factory=dict)  # by generation of a replica that runs
    _states: dict[Place, tuple[int, str]] = field(default_factory=dict)  # checksum, whose log

    def look(self) -> None:
        """Reads a new plan and new reports. Raises Defect."""
        node = self.tree.nodes.get(paths.plan(job.JOB))
        if node is not None and node is not self._node:
            self._node = node
            self._follow(decode(node.data, Plan, "the plan"))
        log = self.kafka.topics[PROGRESS].logs[0] if PROGRESS in self.kafka.topics else None
        if log is not None and log.end != self._read:
            self._read = min(self._read, log.end)  # the broker may have lost records
            for record in log.between(self._read, log.end):
                self._hear(codec.decode(record.value or b""))
            self._read = log.end

    def _follow(self, plan: Plan) -> None:
        before, self.plan = self.plan, plan
        placed = "replica placed again" if self._muted else "replica placed"
        self._primary |= {a.generation for a in plan.primaries}
        self._muted |= {a.generation for a in plan.every if a.muted}
        if both := self._primary & self._muted:
            raise Defect(f"generation {both} is a primary's and a replica's: {plan}")
        self._gate_follows(before, plan)
        if before is None:
            return
        for own in plan.replicas:
            earlier = before.replica_of(own.fragment)
            if earlier is None or earlier.generation != own.generation:
                self.hit(placed)
                stayed = earlier is not None and earlier.owner == own.owner
                if stayed and earlier is not None and earlier.generation in self._done:
                    self.hit("replica began again")
        for own in plan.primaries:
            known = before.of_fragment(own.fragment)
            replica = before.replica_of(own.fragment)
            newly = own.owner is None and plan.diverged and not before.diverged
            if known is not None and newly and own.log == known.log:
                raise Defect(f"{own} has diverged, and keeps its log")
            if known is None or own.log == known.log or plan.layout != before.layout:
                continue
            if plan.diverged and own.owner is None and not plan.replicas:
                continue
            self.hit("replica promoted")
            if replica is None or (replica.owner, replica.log) != (own.owner, own.log):
                raise Defect(f"{own} is the primary, and {replica} was the replica")
            if own.generation <= max(self._primary - {own.generation} | self._muted):
                raise Defect(f"{own} was promoted without a generation of its own")

    def _gate_follows(self, before: Plan | None, plan: Plan) -> None:
        gate = plan.gate
        if gate is None or (before is not None and gate == before.gate):
            return
        if gate.refused:
            self.hit("gate refused")
        elif gate.run is not None:
            self.hit("gate placed")
            if gate.run.archive == plan.archive:
                raise Defect(f"a gate compares a revision with itself: {plan}")
            self._continues(before.gate if before is not None else None, gate)
            self._began[gate.run.generation] = self._equal[gate.run.generation] = gate.equal

    def _continues(self, earlier: Gate | None, gate: Gate) -> None:
        if not gate.equal:
            return
        self.hit("gate continued")
        last = earlier.run if earlier is not None and earlier.counter == gate.counter else None
        if last is not None and last.generation not in self._left:
            raise Defect(f"{gate} counts epochs of {last}, which has died or failed")
        if gate.equal > max(self._equal.values(), default=0):
            raise Defect(f"{gate} counts more epochs than were equal: {self._equal}")

    def _hear(self, record: object) -> None:
        """Judges one report."""
        match record:
            case PartDone() | PartFailed() | EventTimes() if record.generation in self._muted:
                raise Defect(f"a replica reports {record}")
            case EpochDone(generation=generation) if generation in self._muted:
                if record.checks:
                    raise Defect(f"a replica reports checks of the input: {record}")
                self._done[generation] = record.epoch
            case FragmentState(generation=generation) if generation in self._muted:
                self._done.pop(generation, None)
                if record.state == "running":
                    self._done[generation] = record.epoch
                if record.error_kind == Diverged.__name__:
                    self._diverged(record)
                if record.state == "stopped":
                    self._left.add(generation)
            case EpochsEqual(generation=generation, epochs=epochs):
                before = self._equal.get(generation, 0)
                self._equal[generation] = max(before, self._began.get(generation, 0) + epochs)
                return
            case FragmentState(error_kind=Diverged.__name__):
                self.hit("diverged at its promotion")
                self._diverged(record)
                return
            case _:
                return
        if not record.fragment.endswith((".replica", ".gate")):
            raise Defect(f"a replica reports in its primary's name: {record}")

    def _diverged(self, record: FragmentState) -> None:
        self.hit("diverged")
        expected = self.refuses if record.fragment.endswith(".gate") else self.diverges
        if not expected:
            raise Defect(f"a replica of a deterministic job has diverged: {record.error}")

    def commits(self, record: LedgerRecord) -> None:
        """Judges a committed record of the ledger."""
        if record.generation in self._muted:
            raise Defect(f"a replica commits {record}")
        totals = {(w.topic, w.partition): (w.count, w.checksum) for w in record.outputs}
        self._committed.setdefault((record.operator, record.partition, record.token_offset), totals)

    def begins(self, replica: int) -> None:
        """A replica of this generation runs and is compared from now on."""
        self._made[replica], self._earlier[replica] = {}, set(self._committed)

    def made(self, replica: int, task: Task, token_offset: int, outputs: Totals) -> None:
        self._made[replica][task.operator, task.partition, token_offset] = outputs

    def differing(self, replica: int) -> list[Made]:
        """Where it has made other outputs than were committed since it began."""
        found, earlier = self._made.get(replica, {}), self._earlier.get(replica, set())
        return [
            place for place, totals in found.items()
            if place not in earlier and self._committed.get(place, totals) != totals
        ]  # fmt: skip

    def took_over(self, replica: int) -> None:
        """It is the primary now, with what it has made."""
        if found := self.differing(replica):
            raise Defect(f"a replica took over that has made other outputs: {found}")

    def ran(
        self, task: Task, token: Token, token_offset: int, log: str,
        state: dict[str, pa.Table], outputs: dict[str, pa.Table],
    ) -> None:  # fmt: skip
        """Compares what a partition has after an epoch with what the other copy had."""
        if log == APART and self.revised:
            return
        place = (token.layout, task.gid, token.epoch, token_offset, token.coordinator_epoch,
                 token.time_ms)  # fmt: skip
        found = _checksum(state, outputs)
        known, other = self._states.setdefault(place, (found, log))
        if log != other:
            self.hit("states compared")
        if found != known:
            raise Defect(
                f"{task.label} has after epoch {token.epoch} another state or output in {log} "
                f"than in {other}"
            )

    @contextmanager
    def taking_over(self, files: MemoryFiles, root: str, plan: Plan) -> Iterator[None]:
        """Looks whether the other copy's logs on the host are where they were. Raises Defect."""
        mine, other = (
            replica_directory(root, plan.job_uuid, plan.layout, log)
            for log in (plan.only.log, PAIR if plan.only.log == MAIN else MAIN)
        )
        before, at = _owners(files, other), self._takeovers[id(files), other]
        self._takeovers[id(files), mine] += 1
        try:
            yield
        finally:
            self._takeovers[id(files), mine] += 1
        undisturbed = at == self._takeovers[id(files), other] and at % 2 == 0
        lost = before - _owners(files, other)
        if lost and undisturbed:
            raise Defect(f"who takes {mine} over takes {other} of {lost} too")

    def counts(self, done: int, committed: int) -> None:
        """Judges what a leader takes for done; `committed`: what each ledger partition has."""
        if done > committed:
            raise Defect(f"epoch {done} counts as done, and {committed} is committed")

    def is_zombie(self, plan: Plan) -> bool:
        """Whether it is of a primary whose fragment a replica has taken over since."""
        own = self.plan.of_fragment(plan.only.fragment) if self.plan is not None else None
        return (
            own is not None and not plan.only.muted and own.log != plan.only.log
            and own.generation > plan.generation
        )  # fmt: skip

    def start_again(self) -> None:
        """The broker has lost records: offsets come again with other tokens."""
        self._states.clear()
        self._committed.clear()
        self._made = {replica: {} for replica in self._made}

    def protected(self, tip: int) -> bool:
        """Whether each primary has a replica that has run the token of epoch `tip`."""
        plan = self.plan
        if plan is None:
            return False
        replicas = [plan.replica_of(a.fragment) for a in plan.primaries]
        return all(r is not None and self._done.get(r.generation, -1) >= tip for r in replicas)


def _owners(files: MemoryFiles, folder: str) -> set[str]:
    try:
        return set(files.list(folder))
    except FileNotFoundError:
        return set()


def _checksum(*tables: dict[str, pa.Table]) -> int:
    """Of the rows, whatever their order."""
    rows = [
        {name: sorted(map(repr, table.to_pylist())) for name, table in sorted(found.items())}
        for found in tables
    ]
    return zlib.crc32(repr(rows).encode())
