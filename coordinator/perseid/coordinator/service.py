"""The leader's shell: threads put events into one queue; one thread decides, an outbox acts.

Without a valid lease nothing is decided or done, and events wait in the queue. The state is one
frozen value that other threads may read at any time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from perseid.clocks import Clock
from perseid.coordinator import change_log, invariants, view
from perseid.coordinator import events as ev
from perseid.coordinator.actions import Action
from perseid.coordinator.audit_keeper import AuditKeeper
from perseid.coordinator.core import decide
from perseid.coordinator.decision_log.recorder import Recorder
from perseid.coordinator.leadership import Lease, LeaseKeeper
from perseid.coordinator.loading import Clients, Known, Loader
from perseid.coordinator.looking import Looking, Sources
from perseid.coordinator.mirror import OffsetsMirror
from perseid.coordinator.model import ClusterState
from perseid.coordinator.outbox import Outbox
from perseid.coordinator.performing import Performer, StepDown
from perseid.coordinator.store_sweep import StoreSweeper
from perseid.coordinator.token_time import Now, Time
from perseid.coordinator.watching import Watcher
from perseid.errors.texts import named
from perseid.records import LeaderInfo
from perseid.registry import FencedRegistry, SessionState
from perseid.topics.groups import GroupWriter
from perseid.topics.log import LogReader

_log = logging.getLogger(__name__)

TICK_S = 0.1  # the interval of ticks: idle tokens, retries, overdue checkpoints
LEASE_LOOK_S = 0.1  # how often a leader without a lease checks whether it must step down
ACTING_THREADS = 16  # jobs whose appends or writes may take long before another job waits


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything the leader works with. `new_reader` and `new_clients`: one for each thread.

    `new_group`: the writer of a job's consumer group.
    """

    clients: Clients
    new_clients: Callable[[], Clients]
    new_reader: Callable[[], LogReader]
    new_group: Callable[[str], GroupWriter]
    clock: Clock


class Service:
    """One term as leader; `run` ends with StepDown. `time`: the process's time."""

    def __init__(
        self, ports: Ports, fenced: FencedRegistry, leader: LeaderInfo, session_s: float,
        time: Time, recorder: Recorder,
    ) -> None:  # fmt: skip
        self._ports, self._clock, self._leader = ports, ports.clock, leader
        self._recorder, self._violations = recorder, 0
        self.state = ClusterState(leader.epoch, time)
        self._queue: SimpleQueue[ev.Event | StepDown] = SimpleQueue()
        self._held_back: deque[ev.Event] = deque()  # taken from the queue without a lease
        self._lease = Lease(session_s)
        self._keeper = LeaseKeeper(fenced, self._lease, session_s, self._clock, self._lost)
        clients = ports.clients
        self._performer = Performer(
            fenced, clients.writer, clients.store, self._loader, self._queue.put,
            self._queue.put,
        )  # fmt: skip
        self._acting = ThreadPoolExecutor(ACTING_THREADS, thread_name_prefix="acting")
        self._outbox = Outbox(
            self._performer.perform,
            self._queue.put,
            self._act,
            lambda: self._lease.wait(self._clock, LEASE_LOOK_S),
        )
        self._looking = Looking(
            Sources(
                clients.registry, clients.topics, ports.new_clients().topics, ports.new_reader
            ),
            lambda: self.state, self._queue.put, Watcher.start, self._clock.monotonic_s,
        )  # fmt: skip
        self._mirror = OffsetsMirror(
            lambda: self.state.jobs, ports.new_group, self._leads, self._clock.monotonic_s
        )
        self._sweeper = StoreSweeper(clients.registry, clients.store, self._leads, self._clock)
        self._audits = AuditKeeper(
            clients.registry, clients.store, lambda: self.state.jobs, self._leads, self._clock
        )
        self._ending: StepDown | None = None
        self._ticked_s = 0.0
        self._of_thread = threading.local()
        self._known = Known()  # to the loaders of all threads
        clients.registry.on_session(self._session_changed)

    def run(self) -> None:
        """Leads until StepDown is raised."""
        self._keeper.start()
        self._recorder.start()
        self._looking.begin()
        for watcher in (self._mirror, self._sweeper, self._audits):
            watcher.start()
        try:
            while True:
                self._step()
        finally:
            self._keeper.stop()
            self._outbox.close()
            self._acting.shutdown(wait=False, cancel_futures=True)
            self._performer.close()
            self._looking.stop()
            for watcher in (self._mirror, self._sweeper, self._audits):
                watcher.stop()
            self._recorder.close()

    def stop(self, reason: str) -> None:
        """Ends `run`, from another thread or a signal handler; waiting events are not decided."""
        self._ending = StepDown(reason)
        self._queue.put(self._ending)  # wakes `run` up

    def look(self) -> view.Look:
        state, now = self.state, self._now()
        now = replace(now, time_ms=state.time.after(now))
        return view.Look(
            state, self._leader, now, self._mirror.failed, self._recorder.lost, self._violations,
            self._audits.seen,
        )  # fmt: skip

    # -- deciding --------------------------------------------------------------------------------

    def _step(self) -> None:
        self._feed(self._next())
        if self._clock.monotonic_s() - self._ticked_s >= TICK_S:
            self._ticked_s = self._clock.monotonic_s()
            self._feed(ev.Tick())

    def _next(self) -> ev.Event:
        if self._ending is not None:
            raise self._ending
        if self._held_back:
            return self._held_back.popleft()
        try:
            event = self._queue.get(timeout=TICK_S)
        except Empty:
            return ev.Tick()
        if isinstance(event, StepDown):
            raise event
        return event

    def _feed(self, event: ev.Event) -> None:
        self._await_lease()
        before = self.state.jobs
        self._outbox.heard(event)
        actions = self._decide(event, self._now())
        for level, text, about in change_log.log_lines(before, self.state.jobs):
            _log.log(level, "%s", text, extra=about)
        self._looking.follow(event, before)
        self._outbox.put(actions)

    def _decide(self, event: ev.Event, now: Now) -> list[Action]:
        """Decides and records; what the core raises, a defect, is recorded and ends the term."""
        before = self.state
        try:
            self.state, actions = decide(before, event, now)
        except Exception as defect:
            self._recorder.put(before, event, now, before, [], raised=named(defect))
            raise
        self._recorder.put(before, event, now, self.state, actions)
        self._check(before, event, actions)
        return actions

    def _check(self, before: ClusterState, event: ev.Event, actions: list[Action]) -> None:
        """Logs broken invariants, and continues: fence, claims and ledgers protect the data."""
        try:
            found = invariants.broken(before, self.state, actions)
        except Exception as defect:
            found = [f"the invariants cannot be checked: {named(defect)}"]
        self._violations += len(found)
        for text in found:
            _log.error(
                "a defect of the coordinator, which continues: after %s, %s; copy its files "
                "of decisions: `perseid decisions list`",
                type(event).__name__,
                text,
            )

    def _await_lease(self) -> None:
        """Waits until the lease holds. Meanwhile only a reason to step down is looked for."""
        if self._leads():
            return
        _log.warning("the lease has run out: nothing is decided until ZooKeeper confirms it")
        while not self._lease.wait(self._clock, LEASE_LOOK_S):
            while not self._queue.empty():
                event = self._queue.get()
                if isinstance(event, StepDown):
                    raise event
                self._held_back.append(event)

    # -- from other threads ----------------------------------------------------------------------

    def _act(self, run: Callable[[], None]) -> None:
        """Runs a job's actions in a thread. What it raises is a defect, which ends the term."""

        def guarded() -> None:
            try:
                run()
            except Exception as error:
                _log.exception("a defect in performing actions")
                self._lost(f"a defect in performing actions: {named(error)}")

        self._acting.submit(guarded)

    def _leads(self) -> bool:
        return self._lease.holds(self._clock.monotonic_s())

    def _loader(self) -> Loader:
        """The loader of the calling thread; its clients stay connected."""
        found: Loader | None = getattr(self._of_thread, "loader", None)
        if found is None:
            found = Loader(
                self._ports.new_clients(), self._leader.epoch, self._leader.id, self._known
            )
            self._of_thread.loader = found
        return found

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._lost("the ZooKeeper session is lost")
        elif state is SessionState.SUSPENDED:
            self._lease.suspend()

    def _lost(self, reason: str) -> None:
        self._queue.put(StepDown(reason))

    def _now(self) -> Now:
        return Now(self._clock.monotonic_s(), self._clock.wall_ms())
