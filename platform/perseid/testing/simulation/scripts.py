"""Scripted faults and user actions, instead of those that a seed draws.

A script is a dataclass whose fields have defaults, so that a command can name it (`again`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from perseid.jobs.model.layout import build
from perseid.jobs.model.spread import spread_of
from perseid.state.durability.log import DELTA
from perseid.testing.simulation import job, mishaps
from perseid.testing.simulation.engine import Defect, Simulation
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.role_scripts import (
    Audited,
    Diverging,
    DivergingAtDeath,
    Gated,
    SlowReplica,
)
from perseid.testing.simulation.swarm import Swarm, kill_owner
from perseid.testing.simulation.world import STATE, World
from perseid.topics import names


@dataclass(frozen=True)
class Rescaled:
    """1 -> 3 -> 2 partitions; `what` ("worker", "leader", or nothing) dies soon after each."""

    name: ClassVar[str] = "rescaled"
    SHAPE: ClassVar[Shape] = Shape(
        workers=2, hosts=2, totals=1, relays=1, sink_on_totals=True, echoed=True
    )  # fmt: skip
    STEPS_S: ClassVar[tuple[float, ...]] = (4.0, 12.0)  # when the user applies
    SIZES: ClassVar[tuple[int, ...]] = (3, 2)

    what: str = ""
    moment_s: float = 0.0

    def __call__(self, simulation: Simulation, world: World) -> None:
        for at_s, size in zip(self.STEPS_S, self.SIZES, strict=True):
            simulation.after(at_s, partial(world.rescale, size, size))
            if self.what:
                simulation.after(at_s + self.moment_s, partial(self._kill, simulation, world))
        simulation.after(self.SHAPE.input_s, partial(self._look, world))

    def _kill(self, simulation: Simulation, world: World) -> None:
        plan, leader = world.registry.plan(job.JOB), world.registry.leader()
        owner = plan.assignments[0].owner if plan is not None else None
        found = owner if self.what == "worker" else leader and leader.id
        simulation.note(f"KILLED {found}")
        simulation.kill_named(found or "")

    def _look(self, world: World) -> None:
        plan = world.registry.plan(job.JOB)
        last = 1 + len(self.SIZES)
        if plan is None or (plan.layout, plan.archive) != (last, f"archive-{last}"):
            raise Defect(f"the plan is {plan}, expected layout {last} of archive-{last}")


@dataclass(frozen=True)
class SwitchedOff:
    """All machines are off for a month: what expires within a month has expired."""

    name: ClassVar[str] = "switched-off"
    OFF_S: ClassVar[int] = 30 * 86_400
    AT_S: ClassVar[float] = 8.0

    def __call__(self, simulation: Simulation, world: World) -> None:
        simulation.after(self.AT_S, partial(mishaps.switch_off, world, self.OFF_S))
        simulation.after(world.shape.input_s, partial(self._look, world))

    def _look(self, world: World) -> None:
        last = world.checker.tokens.last
        right_ms = world.clock.wall_ms() + self.OFF_S * 1000
        if last is None or last[2] < right_ms - world.shape.input_s * 1000:
            raise Defect(f"the last token's leader, epoch and time are {last}, it is {right_ms} ms")


@dataclass
class Corrected(Swarm):
    """The running revision's code raises at some rows until the user corrects it; faults come too.

    `where`: at a "source" (nothing of the epoch is committed); in the task of a label, while others
    may have committed the epoch; "limit": after every epoch but a final one; "after": after every
    epoch. `dies`: instead of raising, the process dies, which is no error of the job. A correction
    is applied once and must be the next revision to run.
    """

    name: ClassVar[str] = "corrected"
    SHAPE: ClassVar[Shape] = Shape(workers=2, hosts=1, totals=3, relays=2, sink_on_totals=True)
    TIMES_S: ClassVar[tuple[float, ...]] = (3.0, 8.0, 13.0)
    LOOK_S: ClassVar[float] = 0.3

    where: str = "source"
    dies: bool = False

    def __call__(self, simulation: Simulation, world: World) -> None:
        super().__call__(simulation, world)
        world.dies = self.dies
        for at_s in self.TIMES_S:
            simulation.after(at_s, partial(self._break, world))
        simulation.after(self.LOOK_S, partial(self._correct, simulation, world))

    def _break(self, world: World) -> None:
        entry = world.registry.job_entry(job.JOB)
        assert entry is not None
        world.broken[entry.value.archive] = self.where

    def _correct(self, simulation: Simulation, world: World) -> None:
        world.correct()
        simulation.after(self.LOOK_S, partial(self._correct, simulation, world))


@dataclass(frozen=True)
class LedgerCut:
    """Every ledger loses its last `offsets` once: a record and its marker are two.

    `before`: the broker call before which the loss happens; "checkpoint": instead, while the newest
    epoch is that of the first checkpoint. `of_new_owner`: the worker dies first, and the loss
    precedes the next owner's first such call. `kills`: the worker dies after the loss.
    """

    name: ClassVar[str] = "ledger-cut"
    AT_S: ClassVar[float] = 6.0

    before: str = "commit"
    offsets: int = 1
    of_new_owner: bool = False
    kills: bool = False

    def __call__(self, simulation: Simulation, world: World) -> None:
        if self.before == "checkpoint":
            self._await_checkpoint(simulation, world)
        else:
            simulation.after(self.AT_S, partial(self._arm, simulation, world))

    def _arm(self, simulation: Simulation, world: World) -> None:
        if self.of_new_owner:
            kill_owner(simulation, world)
        world.kafka.before(self.before, partial(self._cut, simulation, world))

    def _await_checkpoint(self, simulation: Simulation, world: World) -> None:
        committed = {entry.epoch for entry in world.checker.ledger.values()}
        if committed == {world.checkpoint_epoch}:
            self._cut(simulation, world)
        else:
            simulation.after(0.05, partial(self._await_checkpoint, simulation, world))

    def _cut(self, simulation: Simulation, world: World) -> None:
        topic = names.ledger(job.JOB)
        for partition, log in enumerate(world.kafka.topics[topic].logs):
            simulation.note(f"LEDGER {partition} ENDS AT {log.end - self.offsets}, not {log.end}")
            world.disk.cut((topic, partition), log.end - self.offsets)
        world.tails_lost = True
        world.checker.start_again()
        if self.kills:
            kill_owner(simulation, world)


@dataclass(frozen=True)
class SourceCut:
    """Before the last input comes, every source partition loses its last `offsets`."""

    name: ClassVar[str] = "source-cut"
    BEFORE_S: ClassVar[float] = 0.5  # the end of the input

    offsets: int = 1

    def __call__(self, simulation: Simulation, world: World) -> None:
        simulation.after(world.shape.input_s - self.BEFORE_S, partial(self._cut, simulation, world))

    def _cut(self, simulation: Simulation, world: World) -> None:
        for topic in ("left", "right"):
            for partition, log in enumerate(world.kafka.topics[topic].logs):
                simulation.note(f"{topic}[{partition}] ENDS BELOW {log.end}")
                world.disk.cut((topic, partition), log.end - self.offsets)
        world.tails_lost = True
        world.checker.start_again()


@dataclass(frozen=True)
class LateAnswers:
    """The broker answers each append to the token log up to `longest_s` after its effect."""

    name: ClassVar[str] = "late-answers"

    longest_s: float = 3.0

    def __call__(self, simulation: Simulation, world: World) -> None:
        def answer_s(where: str) -> float:
            late = where == "append to tokens"
            return self.longest_s * simulation.random.random() if late else 0.0

        world.broker.answer_s = answer_s


@dataclass(frozen=True)
class Overtaken:
    """The owner is cut off from ZooKeeper, and keeps working while the next one restores.

    `waits_s`: how long the next one waits for an answer when it fences the first producer.
    """

    name: ClassVar[str] = "overtaken"
    AT_S: ClassVar[float] = 6.0
    CUT_S: ClassVar[float] = 14.0

    waits_s: float = 3.0

    def __call__(self, simulation: Simulation, world: World) -> None:
        simulation.after(self.AT_S, partial(self._cut, simulation, world))

    def _cut(self, simulation: Simulation, world: World) -> None:
        plan = world.registry.plan(job.JOB)
        assert plan is not None
        for group in (g for groups in world.groups_of_host.values() for g in groups):
            if group.name == plan.owner:
                world.network.cut_off(group, "zookeeper", self.CUT_S)
        self._slow_down(simulation, world, plan.owner)

    def _slow_down(self, simulation: Simulation, world: World, before: str | None) -> None:
        """Delays the first answer to another process that fences a producer."""
        fence = world.kafka.fence

        def waiting(transactional_id: str) -> int:
            if simulation.running().group.name != before:
                world.kafka.fence = fence  # type: ignore[method-assign]
                simulation.note(f"WAITS for {self.waits_s} s")
                simulation.sleep(self.waits_s)
            return fence(transactional_id)

        world.kafka.fence = waiting  # type: ignore[method-assign]


@dataclass(frozen=True)
class DamagedLogs:
    """While the job runs, every file of `kind` in all state logs gets one byte changed.

    Then Python processes die, each at a gate with the probability `kill_task`: so an epoch reads
    the damage, and not a restore. With `kills` the worker dies instead. `spared`: this many newest
    files of each log stay undamaged; a process that lags has to read newest deltas.
    """

    name: ClassVar[str] = "damaged-logs"
    SHAPE: ClassVar[Shape] = Shape(
        workers=2, hosts=1, totals=2, relays=1, sink_on_totals=True, echoed=True
    )  # fmt: skip
    AT_S: ClassVar[float] = 8.0
    FOR_S: ClassVar[float] = 2.0

    kill_task: float = 0.05
    spared: int = 0
    kind: str = DELTA
    kills: bool = False

    def __call__(self, simulation: Simulation, world: World) -> None:
        simulation.after(self.AT_S, partial(self._strike, simulation, world))

    def _strike(self, simulation: Simulation, world: World) -> None:
        for files in world.hosts:
            logs: dict[str, list[str]] = {}
            for path in files.below(STATE):  # sorted: those of one log by epoch
                folder, _, name = path.rpartition("/")
                if name.endswith(f".{self.kind}"):
                    logs.setdefault(folder, []).append(path)
            for paths in logs.values():
                for path in paths[: len(paths) - self.spared]:
                    mishaps.damage(world, files, path)
        if self.kills:
            kill_owner(simulation, world)
            return
        world.faults.kill_task = self.kill_task
        simulation.after(self.FOR_S, world.faults.stop)


@dataclass(frozen=True)
class Slow:
    """From a moment on the broker is busy for `record_s` with each record.

    It allows transactions of up to `longest_s`. Either a longer transaction has time for the epoch,
    or the job fails with an error that names what to change. Then the user repairs the broker, and
    applies the failed job again.
    """

    name: ClassVar[str] = "slow"
    SHAPE: ClassVar[Shape] = Shape(workers=2, hosts=1, totals=2, relays=1, sink_on_totals=True)
    AT_S: ClassVar[float] = 6.0
    LOOK_S: ClassVar[float] = 0.3
    ERROR: ClassVar[str] = "epoch.maxRecords"

    record_s: float = 3.0
    longest_s: float = 900.0

    def __call__(self, simulation: Simulation, world: World) -> None:
        world.broker.transaction_max_s = self.longest_s
        world.expected_error = self.ERROR
        simulation.after(self.AT_S, partial(self._slow_down, simulation, world))

    def _slow_down(self, simulation: Simulation, world: World) -> None:
        simulation.note(f"the broker is busy for {self.record_s} s with each record")
        world.broker.record_s = self.record_s
        self._look(simulation, world)

    def _look(self, simulation: Simulation, world: World) -> None:
        corrected = world.correct()
        if corrected or world.gates.struck["slow, and given longer"]:
            world.broker.record_s = 0.0
        simulation.after(self.LOOK_S, partial(self._look, simulation, world))


@dataclass(frozen=True)
class PartLost:
    """The owner of the first fragment dies; the fragments of other components commit meanwhile.

    Of fragments whose workers live, and that wait for none of the lost ones, every token is
    committed within `LATE_S`.
    """

    name: ClassVar[str] = "part-lost"
    SHAPE: ClassVar[Shape] = Shape(
        workers=2, hosts=2, totals=2, relays=0, every_s=0.3, spread=2, parted=True
    )  # fmt: skip
    AT_S: ClassVar[float] = 6.0
    FOR_S: ClassVar[float] = 12.0
    LATE_S: ClassVar[float] = 3.0
    LOOK_S: ClassVar[float] = 0.25

    def __call__(self, simulation: Simulation, world: World) -> None:
        simulation.after(self.AT_S, partial(self._lose, simulation, world))

    def _lose(self, simulation: Simulation, world: World) -> None:
        plan = world.registry.plan(job.JOB)
        assert plan is not None
        lost = plan.assignments[0].owner
        layout = build(world.specs[plan.archive], plan.layout)
        spread = spread_of(world.specs[plan.archive], layout)
        assert spread is not None, "a spread job"
        gone = {at for at, a in enumerate(plan.assignments) if a.owner == lost}
        gids = [
            gid for at, share in enumerate(spread.shares)
            if gone.isdisjoint(spread.waits_for(at)) for gid in share.gids
        ]  # fmt: skip
        ledgers = [task.ledger for task in layout.ledger_tasks if task.gid in gids]
        if not ledgers:
            raise Defect(f"{lost} has fragments of all components: {plan.assignments}")
        kill_owner(simulation, world)
        until_s = simulation.now_s + self.FOR_S
        self._look(simulation, world, [n for n in ledgers if n is not None], until_s)

    def _look(
        self, simulation: Simulation, world: World, ledgers: list[int], until_s: float
    ) -> None:  # fmt: skip
        tip = world.checker.tokens.epoch
        simulation.after(self.LATE_S, partial(self._committed, world, ledgers, tip))
        if simulation.now_s < until_s:
            simulation.after(self.LOOK_S, partial(self._look, simulation, world, ledgers, until_s))

    def _committed(self, world: World, ledgers: list[int], epoch: int) -> None:
        done = {ledger: world.checker.ledger[ledger].epoch for ledger in ledgers}
        if min(done.values()) < epoch:
            raise Defect(f"epoch {epoch} was issued {self.LATE_S} s ago, committed is {done}")
        if min(done.values()) > min(entry.epoch for entry in world.checker.ledger.values()):
            world.gates.hit("ahead of the lost part")


_KINDS = (
    LedgerCut, SourceCut, LateAnswers, Overtaken, Rescaled, Swarm, DamagedLogs, Corrected, Slow,
    PartLost, Diverging, DivergingAtDeath, SlowReplica, Gated, Audited,
)  # fmt: skip
SCRIPTS: dict[
    str,
    type[
        Audited
        | Corrected
        | DamagedLogs
        | Diverging
        | DivergingAtDeath
        | Gated
        | LateAnswers
        | LedgerCut
        | Overtaken
        | PartLost
        | Rescaled
        | Slow
        | SlowReplica
        | SourceCut
        | Swarm
    ],
] = {kind.name: kind for kind in _KINDS}
