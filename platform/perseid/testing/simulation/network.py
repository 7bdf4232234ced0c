"""The way between processes and servers, cut in one direction or both; and ZooKeeper's sessions.

A request that does not arrive has no effect. An answer that does not arrive leaves the effect, and
the client waits for its timeout either way. A session lives as long as the server hears of it: that
is the server's decision on the server's clock, and the client learns of it when it next gets
through. Until then it only knows that it is suspended.

Delivery twice, late and out of order are faults of single calls (`ports`): clients see to it that a
broken connection loses nothing that TCP would keep.
"""

from __future__ import annotations

from enum import Enum

from perseid.errors import RetryableError
from perseid.registry.port import Node, SessionState, UnknownOutcomeError, Write
from perseid.testing.registry import FakeCoordination, FakeZooKeeper
from perseid.testing.simulation.engine import Group, Simulation
from perseid.testing.simulation.faults import Gates

SESSION_S = 2.0
SUSPENDED_S = SESSION_S * 2 / 3  # kazoo gives up a connection that is silent for so long
BEAT_S = 0.25
TIMEOUT_S = 1.0  # of a request
EVERY_S = 0.5
CUTS_S = (0.3, 1.0, 3.0, 6.0, 12.0)
SERVERS = ("kafka", "zookeeper")


class Cut(Enum):
    """What does not get through."""

    REQUESTS = "requests"
    ANSWERS = "answers"
    BOTH = "both"


class Network:
    """Which process groups do not reach which servers."""

    def __init__(self, simulation: Simulation, gates: Gates) -> None:
        self._simulation, self._gates = simulation, gates
        self._clients: list[Group] = []
        self._cuts: dict[tuple[Group, str], tuple[Cut, float]] = {}
        simulation.after(EVERY_S, self._weather)

    def join(self, group: Group) -> None:
        self._clients.append(group)

    def heal(self) -> None:
        self._cuts.clear()

    def cut_off(self, group: Group, server: str, seconds: float) -> None:
        """Both ways, from now on."""
        self._simulation.say(f"CUT of {group.name} and {server} for {seconds} s")
        self._cuts[group, server] = (Cut.BOTH, self._simulation.now_s + seconds)

    def cut(self, group: Group | None, server: str) -> Cut | None:
        """What is cut between them now."""
        if not self._cuts or group is None:
            return None
        found, until_s = self._cuts.get((group, server), (None, 0.0))
        return found if self._simulation.now_s < until_s else None

    def cut_here(self, server: str) -> Cut | None:
        """What is cut between the running process and `server`."""
        if not self._cuts:
            return None
        process = self._simulation.current
        return self.cut(process.group, server) if process is not None else None

    def _weather(self) -> None:
        self._simulation.after(EVERY_S, self._weather)
        self._clients = [group for group in self._clients if not group.dead]
        if not self._clients or not self._gates.strikes("cut"):
            return
        chance = self._simulation.random
        group, server = chance.choice(self._clients), chance.choice(SERVERS)
        way, seconds = chance.choice(list(Cut)), chance.choice(CUTS_S)
        self._simulation.say(f"CUT {way.value} of {group.name} and {server} for {seconds} s")
        self._gates.hit(f"cut {way.value} {server}")
        self._cuts[group, server] = (way, self._simulation.now_s + seconds)


class SimulatedCoordination(FakeCoordination):
    """One session of one process group."""

    def __init__(
        self, server: FakeZooKeeper, network: Network, gates: Gates, simulation: Simulation,
        group: Group,
    ) -> None:  # fmt: skip
        server.sessions += 1
        super().__init__(server, server.sessions)
        self._network, self._gates, self._simulation = network, gates, simulation
        self.number, self.group, self.dropped = server.sessions, group, False
        self._heard_s = self._answered_s = simulation.now_s

    def get(self, path: str) -> Node | None:
        self._ask()
        return super().get(path)

    def children(self, path: str) -> tuple[str, ...]:
        self._ask()
        return super().children(path)

    def write(self, *writes: Write) -> None:
        self._gates.reach("before zookeeper write")
        cut = self._network.cut_here("zookeeper")
        if cut is not None:
            if cut is Cut.ANSWERS and not self.dropped and self._gates.toss():
                super().write(*writes)
            self._simulation.sleep(TIMEOUT_S)
            raise UnknownOutcomeError("no answer: the way is cut")
        if self.dropped:
            self._become(SessionState.LOST)
            raise UnknownOutcomeError("the session has expired")
        if self._gates.strikes("zookeeper_unknown"):
            if self._gates.toss():
                raise UnknownOutcomeError("no answer, not done")
            super().write(*writes)
            raise UnknownOutcomeError("no answer, done")
        super().write(*writes)
        self._gates.reach("after zookeeper write")

    def beat(self) -> None:
        """One heartbeat of both sides, from the scheduler."""
        now_s = self._simulation.now_s
        frozen = self.group.dead or now_s < self.group.paused_until_s
        cut = self._network.cut(self.group, "zookeeper")
        if not frozen and cut is None:
            self._heard_s = self._answered_s = now_s
            if self.dropped:
                self._become(SessionState.LOST)
            elif self.state is SessionState.SUSPENDED:
                self._become(SessionState.CONNECTED)
        elif not frozen and now_s - self._answered_s < SUSPENDED_S:
            if cut is Cut.ANSWERS:
                self._heard_s = now_s  # until the client closes the connection
        elif not frozen and self.state is SessionState.CONNECTED:
            self._become(SessionState.SUSPENDED)
        if now_s - self._heard_s > SESSION_S:
            self.drop()

    def drop(self) -> None:
        """The server forgets it; nothing happens when it has already."""
        if not self.dropped:
            self.dropped = True
            self._gates.hit("session expired")
            self._server.drop_session(self.number)

    def _ask(self) -> None:
        if self._network.cut_here("zookeeper") is not None:
            self._simulation.sleep(TIMEOUT_S)
            raise RetryableError("no answer: the way is cut")
        if self.dropped:
            self._become(SessionState.LOST)
            raise RetryableError("the session has expired")

    def _become(self, state: SessionState) -> None:
        if state is not self.state:
            self._gates.hit(f"session {state.value}")
            super()._become(state)
