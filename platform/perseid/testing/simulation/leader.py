"""A coordinator: the real core, loader, performer and fenced registry in one simulated process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator import invariants, token_time
from perseid.coordinator.core import decide
from perseid.coordinator.job.program import Program
from perseid.coordinator.leadership import PROOFS_PER_SESSION, Lease, LeaseKeeper
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.loading import Clients, Known, Loader
from perseid.coordinator.looking import Looking, Sources
from perseid.coordinator.model import ClusterState
from perseid.coordinator.outbox import Outbox
from perseid.coordinator.performing import Performer, StepDown
from perseid.coordinator.token_time import Now
from perseid.coordinator.watching import Watcher
from perseid.errors import ProcessDied, RetryableError, UnexpectedError
from perseid.jobs.model import assignments
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.records import LeaderInfo, Plan
from perseid.registry import FencedRegistry, Registry, SessionState
from perseid.registry.fenced import Fence, lead
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect, Group, Reported, Signal
from perseid.testing.simulation.fullness import Fullness
from perseid.testing.simulation.network import SESSION_S, SimulatedCoordination
from perseid.testing.simulation.ports import (
    SimulatedLogReader,
    SimulatedLogWriter,
    SimulatedTransactions,
)
from perseid.testing.simulation.world import World
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import Entry

LOOK_S = 0.2  # between checks of what is due
RESPAWN_S = 0.5
SKEWS_MS = (0, -40, 250)
DIED = ProcessDied.__name__  # the kind of an error
UNEXPECTED = UnexpectedError.__name__


class SimulatedLoader(Loader):
    """Loads programs from the world instead of an archive."""

    specs: Mapping[str, JobSpec]

    def _spec(self, archive: str) -> JobSpec:
        return self.specs[archive]

    def _with_digests(self, program: Program) -> Program:
        """Gives every other revision the code of its predecessor."""
        return replace(program, code=str(int(program.archive.rpartition("-")[2]) // 2))


class LookingReader(SimulatedLogReader):
    """Does not wait for a record: it runs in the deciding process, which polls again soon."""

    def read_from(
        self, topic: str, partition: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        return super().read_from(topic, partition, offset, max_records=max_records, timeout_s=0.0)


class SimulatedPerformer(Performer):
    """Runs slow actions in a process of their own instead of a thread."""

    spawn: Callable[[str, Callable[[], None]], None]

    def _later(self, task: Callable[..., None], action: act.Action) -> None:
        self.spawn(type(action).__name__, lambda: self._guarded(task, action))


class Coordinator:
    """One coordinator under its supervisor, which restarts it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.lives = world, name, 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        label = f"{self.name}.{self.lives}"
        Life(self.world, self.name, label, self._respawn)

    def _respawn(self) -> None:
        self.world.simulation.after(RESPAWN_S, self.start)


class Life:
    """One process of a coordinator."""

    def __init__(self, world: World, host: str, label: str, on_death: Callable[[], None]) -> None:
        self.world, self.label, self._on_death = world, label, on_death
        self.clock = world.clock_of(host, world.simulation.random.choice(SKEWS_MS))
        self._time = token_time.started(self._now())
        self.group: Group = world.simulation.group(label, self._died)
        self.session: SimulatedCoordination = world.session(self.group)
        self.session.on_session(self._session_changed)
        self._lease = Lease(SESSION_S)
        self._queue: deque[ev.Event | StepDown] = deque()
        self._came = Signal(world.simulation)
        self._known = Known()
        self._fullness = Fullness(world)
        self._due: dict[Watcher, float] = {}  # when each polls again
        self._spawn("main", self._live)

    def _spawn(self, what: str, work: Callable[[], None]) -> None:
        process = self.world.simulation.spawn(self.group, f"{self.label} {what}", work)
        process.marks.update(kind="leader")

    def _died(self) -> None:
        if self.world.gates.toss():  # its supervisor ends the session; else the session expires
            self.session.drop()
        self._on_death()

    def _session_changed(self, state: SessionState) -> None:
        """As `perseid.coordinator.service.Service`."""
        if state is SessionState.LOST:
            self._lost("the ZooKeeper session is lost")
        elif state is SessionState.SUSPENDED:
            self._lease.suspend()

    def _lost(self, reason: str) -> None:
        self._queue.append(StepDown(reason))

    def _live(self) -> None:
        try:
            self._lead()
        except StepDown as reason:
            self.world.gates.hit("stepped down")
            self.world.simulation.note(f"steps down: {reason.reason}")
        except RetryableError as error:
            self.world.simulation.note(f"ends: {error}")
        self.world.simulation.kill(self.group)

    def _lead(self) -> None:
        registry = Registry(self.session)
        fence: Fence | None = None
        while fence is None:
            self.world.simulation.sleep(LOOK_S)
            self._end_if_asked()
            fence = lead(registry, lambda epoch: LeaderInfo(self.label, epoch, 1, ""))
        self.world.simulation.note(f"leads with epoch {fence.epoch}")
        self.state = ClusterState(fence.epoch, self._time)
        self._epoch = fence.epoch
        self._registry = registry
        fenced = FencedRegistry(registry, fence)
        keeper = LeaseKeeper(fenced, self._lease, SESSION_S, self.clock, self._lost)
        keeper.prove()
        self._spawn("lease", lambda: self._keep(keeper))
        self.performer = SimulatedPerformer(
            fenced, SimulatedLogWriter(self.world.broker),
            self.world.store, self._loader, self._emit, self._emit,
        )  # fmt: skip
        self.performer.spawn = self._spawn
        self._outbox = Outbox(
            self._perform, self._emit, lambda run: self._spawn("acting", run), self._may_act
        )
        topics = self.world.topics
        self._looking = Looking(
            Sources(registry, topics, topics, lambda: LookingReader(self.world.broker)),
            lambda: self.state, self._queue.append, Watcher.prepare, self.clock.monotonic_s,
        )  # fmt: skip
        self._looking.begin()
        while True:
            self._look()
            self._drain()
            self._wait(LOOK_S)

    def _loader(self) -> Loader:
        reader = SimulatedLogReader(self.world.broker)
        clients = Clients(
            self._registry, self.world.topics, reader, SimulatedLogWriter(self.world.broker),
            LedgerReader(reader, self.world.topics, self.clock),
            SimulatedTransactions(self.world.broker), self.world.store, Path(), self.clock,
        )  # fmt: skip
        loader = SimulatedLoader(clients, self._epoch, self.label, self._known)
        loader.specs = self.world.specs
        return loader

    # Looking ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Does the work of the watchers' threads."""
        for watcher in list(self._looking):
            due_s = self._due.get(watcher, 0.0)
            if not watcher.stopped and (watcher.wake.is_set() or self.clock.monotonic_s() >= due_s):
                watcher.wake.clear()
                self._due[watcher] = self.clock.monotonic_s() + watcher.turn()
        self._queue.append(ev.Tick())

    # Deciding -----------------------------------------------------------------------------------

    def _drain(self) -> None:
        while self._queue:
            event = self._queue.popleft()
            if isinstance(event, StepDown):
                if event.reason.startswith("a defect"):
                    raise Defect(event.reason)
                raise event
            if isinstance(event, ev.JobLoadFailed | ev.ProgramFailed) and event.kind == UNEXPECTED:
                raise Defect(event.text)
            self._feed(event)

    def _emit(self, event: ev.Event | StepDown) -> None:
        self._queue.append(event)
        self._came.set()

    def _wait(self, seconds: float) -> None:
        """Decides on the outcomes that come within `seconds`."""
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            self._came = Signal(self.world.simulation)
            self.world.simulation.after(until_s - self.clock.monotonic_s(), self._came.set)
            self._came.wait()
            self._drain()

    def _keep(self, keeper: LeaseKeeper) -> None:
        while True:
            self.world.simulation.sleep(SESSION_S / PROOFS_PER_SESSION)
            keeper.prove()

    def _await_lease(self) -> None:
        while not self._lease.holds(self.clock.monotonic_s()):
            self.world.gates.hit("no lease")
            self._end_if_asked()
            self.world.simulation.sleep(LOOK_S)

    def _may_act(self) -> bool:
        """As `Lease.wait`, in virtual time."""
        if not self._lease.holds(self.clock.monotonic_s()):
            self.world.simulation.sleep(LOOK_S)
        return self._lease.holds(self.clock.monotonic_s())

    def _end_if_asked(self) -> None:
        for event in self._queue:
            if isinstance(event, StepDown):
                raise event

    def _feed(self, event: ev.Event) -> None:
        """As `perseid.coordinator.service.Service`."""
        self._await_lease()
        now = self._now()
        jobs = self.state.jobs
        before = jobs.get(job.JOB)
        self._outbox.heard(event)
        decided_on = self.state
        if self.world.shape.spread > 1:
            self._fullness.hears(event)
        self.state, actions = decide(self.state, event, now)
        for broken in invariants.broken(decided_on, self.state, actions):
            raise Defect(f"after {type(event).__name__}: {broken}")
        for token in (a.token for a in actions if isinstance(a, act.AppendToken)):
            self.world.checker.tokens.issues(token)
            if self.world.shape.spread > 1:
                self._fullness.issues(token, self.state.jobs[job.JOB])
        after = self.state.jobs.get(job.JOB)
        if after is not None and after.phase in OWNED:
            self.world.look_at_done(after.done)
        self._looking.follow(event, jobs)
        if after is not None and (before is None or before.phase is not after.phase):
            self.world.simulation.note(f"job {after.phase.value}: {after.transition_log[-1:]}")
        if after is not None and after.phase is Phase.FAILED:
            assert after.health.error is not None
            if self.world.corrects(after.health.error):
                self.world.gates.hit("failed, to be corrected")
            elif self.world.explains(after.health.error):
                self.world.gates.hit(f"ends with {after.health.error['kind']}")
                raise Reported(str(after.health.error))
            else:
                raise Defect(f"the job failed: {after.health.error}")
        self._outbox.put(actions)

    def _perform(self, action: act.Action) -> ev.Event | None:
        outcome = self.performer.perform(action)
        self._report(action, outcome)
        return outcome

    def _now(self) -> Now:
        return Now(self.clock.monotonic_s(), self.clock.wall_ms())

    def _report(self, action: act.Action, outcome: ev.Event | None) -> None:
        match action:
            case act.PutStatus(status=status) if (status.error or {}).get("kind") == DIED:
                self.world.gates.hit("epoch given way")
                text = "PutStatus: an epoch in which processes die is given to another revision"
            case act.PutStatus() | act.PutFailures() | act.DeleteCheckpoints():
                return
            case act.AppendToken(token=token):
                timing = self.state.jobs[job.JOB].checkpointing.timing
                early = timing is not None and timing.early(self.clock.monotonic_s())
                if token.checkpoint and early:
                    self.world.gates.hit("small moment")
                flags = " checkpoint" * token.checkpoint + " final" * token.final
                text = f"token of epoch {token.epoch}{flags}"
            case act.PutPlan(plan=plan):
                owners = [a.owner for a in plan.assignments]
                text = f"plan {plan.generation} for {', '.join(map(str, owners))}"
                assignments.check(plan, build(self.world.specs[plan.archive], plan.layout))
                self._log_change(plan)
            case act.AppendRewind(rewind=rewind):
                text = f"rewind to epoch {rewind.epoch}"
                self.world.gates.hit("tokens taken back")
            case act.PutPointers(pointers=pointers):
                text = f"checkpoints {[p.epoch for p in pointers.pointers]}"
                self.world.gates.hit("checkpoint completed")
                self._fullness.stores(pointers)
                if self.world.gates.strikes("damage_part"):
                    self.world.simulation.after(0.5, self.world.damage_checkpoint)
            case _:
                text = type(action).__name__
        if isinstance(outcome, ev.ActionFailed):
            text += f" FAILED: {outcome.text}"
        self.world.simulation.note(text)

    def _log_change(self, plan: Plan) -> None:
        """Counts the branch of the plan's change."""
        if self.world.shape.replicas or self.world.gated:
            self.world.roles.look()  # the next plan may be written before the next event
        if len(plan.assignments) > 1:
            self.world.gates.hit("several fragments")
            if len({a.owner for a in plan.assignments}) > 1:
                self.world.gates.hit("several owners")
            if len({a.generation for a in plan.assignments}) > 1:
                self.world.gates.hit("fragments placed")
        if plan.reason.startswith("switch"):
            self.world.gates.hit("revision switched")
        elif " ends epoch " in plan.reason and not any(a.owner for a in plan.assignments):
            self.world.gates.hit("epoch ended by another revision")
        elif plan.reason.endswith("only settings differ"):
            self.world.gates.hit("only settings differ")
