"""The network between processes and servers, cut in one or both directions; ZooKeeper's sessions.

A request that is lost has no effect. A lost answer leaves the effect; in both cases the client
waits for its timeout. A session lives as long as the server receives its heartbeats, by the
server's clock. The client learns of an expiry when it reconnects; until then it only knows that it
is suspended. Its client may keep what it writes meanwhile, and send it on reconnection.

Delivery twice, late and out of order are faults of single calls (`ports`): clients ensure that a
broken connection loses nothing that TCP would keep.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum

from perseid.errors import RetryableError
from perseid.registry.port import ConflictError, Node, SessionState, UnknownOutcomeError, Write
from perseid.testing.registry import FakeCoordination, FakeZooKeeper
from perseid.testing.simulation.engine import Group, Simulation
from perseid.testing.simulation.faults import Gates

SESSION_S = 2.0
SUSPENDED_S = SESSION_S * 2 / 3  # kazoo closes a connection that is silent for so long
BEAT_S = 0.25
TIMEOUT_S = 1.0  # of a request
EVERY_S = 0.5
CUTS_S = (0.3, 1.0, 3.0, 6.0, 12.0)
SERVERS = ("kafka", "zookeeper")


class Cut(Enum):
    """The direction that is cut."""

    REQUESTS = "requests"
    ANSWERS = "answers"
    BOTH = "both"


class Network:
    """Which process groups cannot reach which servers."""

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
        """Cuts both directions, from now on."""
        self._simulation.note(f"CUT of {group.name} and {server} for {seconds} s")
        self.sever(group, server, Cut.BOTH, seconds)

    def sever(self, group: Group, server: str, way: Cut, seconds: float) -> None:
        self._cuts[group, server] = (way, self._simulation.now_s + seconds)

    def cut(self, group: Group | None, server: str) -> Cut | None:
        """What is currently cut between them."""
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
        self._simulation.note(f"CUT {way.value} of {group.name} and {server} for {seconds} s")
        self._gates.hit(f"cut {way.value} {server}")
        self.sever(group, server, way, seconds)


class SimulatedCoordination(FakeCoordination):
    """The successive sessions of one process group."""

    def __init__(
        self, server: FakeZooKeeper, network: Network, gates: Gates, simulation: Simulation,
        group: Group,
    ) -> None:  # fmt: skip
        super().__init__(server, server.new_session())
        self._network, self._gates, self._simulation = network, gates, simulation
        self.group = group
        self._answered_s = simulation.now_s
        self._counted = False  # whether its expiry was counted

    @property
    def hears(self) -> bool:
        return not self._frozen and self._cut in (None, Cut.REQUESTS)

    @property
    def gone(self) -> bool:
        """Whether the server has expired it, which its client may not know yet."""
        return self._silent and self._session not in self._server.silent_since_s

    def get(self, path: str) -> Node | None:
        self._ask()
        return super().get(path)

    def children(self, path: str) -> tuple[str, ...]:
        self._ask()
        return super().children(path)

    def write(self, *writes: Write) -> None:
        self._gates.reach("before zookeeper write")
        cut = self._cut
        if cut is not None:
            self._write_through(cut, writes)
            self._simulation.sleep(TIMEOUT_S)
            raise UnknownOutcomeError("no answer: the way is cut")
        if not self._connect():
            raise UnknownOutcomeError("the session has expired")
        if self._gates.strikes("zookeeper_unknown"):
            self.unknown_next = "not done" if self._gates.toss() else "done"
        super().write(*writes)
        self._gates.reach("after zookeeper write")

    def beat(self) -> None:
        """One heartbeat of both sides, called by the scheduler."""
        now_s, cut = self._simulation.now_s, self._cut
        if not self._frozen and cut is None:
            self._answered_s = now_s
            self._connect()
            return
        patient = now_s - self._answered_s < SUSPENDED_S
        if self._frozen or cut is not Cut.ANSWERS or not patient:
            self.fall_silent()
        if not self._frozen and not patient and self.state is SessionState.CONNECTED:
            self.suspend()
        if self.gone and not self._counted:
            self._counted = True
            self._gates.hit("session expired")

    def drop(self) -> None:
        """Expires the session on the server, unless it has already expired."""
        self.fall_silent()
        self._server.drop_session(self._session)

    @property
    def _frozen(self) -> bool:
        return self.group.dead or self._simulation.now_s < self.group.paused_until_s

    @property
    def _cut(self) -> Cut | None:
        return self._network.cut(self.group, "zookeeper")

    def _connect(self) -> bool:
        """Reconnects if the connection was broken; returns whether the session is the same."""
        if not self._silent and not self._late:
            return True
        before = self._session
        if self._late:
            self._gates.hit("late zookeeper write")
        self._counted = False
        self.resume()
        return self._session == before

    def _ask(self) -> None:
        if self._cut is not None:
            self._simulation.sleep(TIMEOUT_S)
            raise RetryableError("no answer: the way is cut")
        if not self._connect():
            raise RetryableError("the session has expired")

    def _write_through(self, cut: Cut, writes: tuple[Write, ...]) -> None:
        """Decides what happens to an unanswered write: it is done now, later, or never.

        A client that knows of the broken connection queues all writes.
        """
        if self.state is SessionState.CONNECTED and not self._gates.toss():
            return
        if cut is Cut.ANSWERS and not self._silent:
            with suppress(ConflictError):
                self._server.apply(self._session, writes)
        else:
            self._late.append(writes)

    def _become(self, state: SessionState) -> None:
        if state is not self.state:
            self._gates.hit(f"session {state.value}")
            super()._become(state)
