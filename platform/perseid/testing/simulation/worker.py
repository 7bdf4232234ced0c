"""A worker under its supervisor: registers, follows the plan, and is restarted when it dies."""

from __future__ import annotations

from collections.abc import Callable

from perseid.errors import RetryableError
from perseid.records import Plan, WorkerInfo
from perseid.records.version import PROTOCOL
from perseid.registry import Registry, SessionState
from perseid.testing.simulation import job, mishaps
from perseid.testing.simulation.engine import Process
from perseid.testing.simulation.fragment import Fragment
from perseid.testing.simulation.world import STATE, World
from perseid.worker.fragments import Key, by_fragment, outdated, promotes

LOOK_S = 0.2
LOOKS_MAX = 5  # turns without reading the plans, unless a watch has reported a change
RESPAWN_S = (0.3, 2.0)


class Worker:
    """One worker and its incarnations, always on the same host."""

    def __init__(self, world: World, name: str, host: int) -> None:
        self.world, self.name, self.host, self.lives = world, name, host, 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        WorkerLife(self.world, self, f"{self.name}-{self.lives}")


class WorkerLife:
    """One incarnation."""

    def __init__(self, world: World, worker: Worker, incarnation: str) -> None:
        self.world, self.worker, self.incarnation = world, worker, incarnation
        self.files = world.hosts[worker.host]
        self.group = world.simulation.group(incarnation, self._died)
        self.session = world.session(self.group)
        self.session.on_session(self._session_changed)
        world.groups_of_host.setdefault(worker.host, []).append(self.group)
        self._fragments: dict[Key, Fragment] = {}
        self._changed = False
        self._spawn(incarnation, self._live)

    def _spawn(self, name: str, work: Callable[[], None]) -> Process:
        process = self.world.simulation.spawn(self.group, name, work)
        process.marks.update(kind="worker", host=self.worker.host)
        return process

    def _died(self) -> None:
        simulation, world = self.world.simulation, self.world
        alive = [g for g in world.groups_of_host[self.worker.host] if not g.dead]
        world.groups_of_host[self.worker.host] = alive
        if not alive and world.gates.strikes("erase_state"):
            simulation.note(f"state of host {self.worker.host} ERASED")
            self.files.delete(STATE)
        elif not alive and world.gates.strikes("damage_log"):
            mishaps.flip_byte(world, self.files, STATE)
        if world.gates.toss():  # its supervisor ends the session; else the session expires
            self.session.drop()
        simulation.after(simulation.random.uniform(*RESPAWN_S), self.worker.start)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.world.simulation.note(f"{self.incarnation} lost its session: it ends")
            self.world.simulation.after(0.0, lambda: self.world.simulation.kill(self.group))

    def _live(self) -> None:
        try:
            registry = Registry(self.session)
            registry.watch(self._note_change)
            registry.register_worker(
                WorkerInfo(self.worker.name, self.incarnation, f"h{self.worker.host}", 1, 1, 2,
                           "local[2]", 0, protocol=PROTOCOL)
            )  # fmt: skip
        except RetryableError:
            self.world.simulation.kill(self.group)
        while True:
            self._changed = False
            try:
                self._reconcile(registry)
            except RetryableError as error:
                self.world.simulation.note(f"plans cannot be read now: {error}")
            for _ in range(LOOKS_MAX):
                self.world.simulation.sleep(LOOK_S)
                if self._changed:
                    break

    def _note_change(self) -> None:
        self._changed = True

    def _reconcile(self, registry: Registry) -> None:
        plan = registry.plan(job.JOB)
        plans = plan.for_worker(self.incarnation) if plan is not None else ()
        mine = by_fragment({job.JOB: plans})
        for key in outdated(self._fragments, mine):
            if not self._promoted(self._fragments[key], mine.get(key)):
                self._fragments.pop(key).stopping = True
        for key, one in mine.items():
            if key not in self._fragments:
                self._fragments[key] = self._started(one)
        found = registry.pointers(job.JOB) if mine else None
        if found is not None:
            for fragment in self._fragments.values():
                fragment.pointers = found.pointers

    def _promoted(self, fragment: Fragment, wanted: Plan | None) -> bool:
        """Whether the fragment becomes the primary in place, now or soon."""
        if wanted is None or not promotes(fragment.plan, wanted):
            return False
        if fragment.promote(wanted):
            return True
        self.world.gates.hit("promoted by restart")
        return False

    def _started(self, plan: Plan) -> Fragment:
        fragment = Fragment(self.world, self.group, self.files, plan, self.incarnation)
        which = "" if plan.only.split is None else f" f{plan.only.fragment}"
        which += " replica" if plan.only.muted else ""
        self._spawn(f"{self.incarnation} g{plan.generation}{which}", fragment.live)
        return fragment
