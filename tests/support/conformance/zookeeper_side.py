"""One ZooKeeper as a script uses it: sessions, their connections, and the server's clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from itertools import count
from typing import Any, Literal

from perseid.registry.port import Create, SessionState, UnknownOutcomeError, Write
from perseid.registry.zookeeper import KazooCoordination
from perseid.testing.registry import FakeCoordination, FakeZooKeeper
from perseid.testing.wait import until
from support.proxy import Proxy

PATIENCE_S = 15.0
SESSION_S = 1.0
REQUEST_S = 0.4
Unknown = Literal["done", "not done"]
_roots = count()


class Watcher:
    """A careful client's view of a node: it reads again at each call, and does not count calls."""

    def __init__(self, session: Any, path: str) -> None:
        self._session, self._path, self._called = session, path, 0
        session.watch(path, self._call)

    def _call(self) -> None:
        self._called += 1  # the callback must not block, so the waiting caller reads

    def sees(self, expected: object) -> object:
        """Reads at each call until it sees `expected`; returns what it sees at last."""
        until(lambda: self._called > 0 and self._look() == expected, PATIENCE_S, f"{expected}")
        return self._look()

    def calls(self) -> int:
        """Returns the number of calls since the last `look`."""
        return self._called

    def look(self) -> object:
        """Reads, and marks all calls so far as seen."""
        self._called = 0
        return self._look()

    def _look(self) -> object:
        node = self._session.get(self._path)
        return (None if node is None else node.data, self._session.children(self._path))


class ZooKeeperSide(ABC):
    """Sessions under one new root. `session` returns a Coordination."""

    @abstractmethod
    def session(self) -> Any:
        """Returns a new session with a connection of its own."""

    @abstractmethod
    def cut(self, session: Any) -> None:
        """Breaks the session's connection and prevents a new one; returns when it is suspended."""

    @abstractmethod
    def mend(self, session: Any) -> None:
        """Allows a connection; returns when the session, or its successor, is connected."""

    @abstractmethod
    def server_time_passes(self) -> None:
        """Waits longer than a silent session lives; connected sessions survive."""

    @abstractmethod
    def write_without_answer(self, session: Any, outcome: Unknown, *writes: Write) -> str:
        """Loses the request or its answer; returns the error's name when connected again."""

    def states(self, session: Any) -> list[str]:
        """Returns the changes of the session's state so far."""
        seen: list[str] = []
        session.on_session(lambda state: seen.append(state.value))
        return seen

    def await_states(self, states: list[str], count: int) -> None:
        until(lambda: len(states) >= count, PATIENCE_S, f"{count} changes of state")

    @abstractmethod
    def close(self) -> None:
        """Closes what is open."""


class FakeSide(ZooKeeperSide):
    """Uses a model of its own; watches are collected and delivered when a script looks."""

    def __init__(self) -> None:
        self.server = FakeZooKeeper(session_s=SESSION_S)

    def session(self) -> FakeCoordination:
        return self.server.session()

    def cut(self, session: FakeCoordination) -> None:
        session.suspend()

    def mend(self, session: FakeCoordination) -> None:
        session.resume()

    def server_time_passes(self) -> None:
        self.server.clock.sleep(2 * SESSION_S)
        self.server.expire_silent()

    def write_without_answer(
        self, session: FakeCoordination, outcome: Unknown, *writes: Write
    ) -> str:
        session.unknown_next = outcome
        try:
            session.write(*writes)
        except UnknownOutcomeError as error:
            return type(error).__name__
        return "answered"

    def close(self) -> None:
        """Nothing is open."""


class RealSide(ZooKeeperSide):
    """Uses a server, each session through a proxy of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._root = f"/conformance/{next(_roots)}"
        self._opened = ExitStack()
        self._proxies: dict[int, Proxy] = {}
        self._states: dict[int, list[str]] = {}

    def session(self) -> KazooCoordination:
        proxy = self._opened.enter_context(Proxy(self._port))
        session = KazooCoordination(
            f"127.0.0.1:{proxy.port}", self._root, SESSION_S, request_timeout_s=REQUEST_S
        )
        session.start(PATIENCE_S)
        self._opened.callback(session.close)
        self._proxies[id(session)] = proxy
        self._states[id(session)] = self.states(session)
        return session

    def cut(self, session: KazooCoordination) -> None:
        self._proxies[id(session)].cut()
        self._wait(session, SessionState.SUSPENDED)

    def mend(self, session: KazooCoordination) -> None:
        self._proxies[id(session)].mend()
        self._wait(session, SessionState.CONNECTED)

    def server_time_passes(self) -> None:
        other = self.session()
        witness = self.session()
        other.write(Create("/witness", b"", ephemeral=True))
        self.cut(other)
        until(lambda: witness.get("/witness") is None, PATIENCE_S, "a silent session ends")

    def write_without_answer(
        self, session: KazooCoordination, outcome: Unknown, *writes: Write
    ) -> str:
        proxy = self._proxies[id(session)]
        if outcome == "done":
            proxy.answers_pass = False
        else:
            proxy.requests_pass = False
        try:
            session.write(*writes)
        except UnknownOutcomeError as error:
            self.cut(session)
            self.mend(session)
            return type(error).__name__
        return "answered"

    def close(self) -> None:
        self._opened.close()

    def _wait(self, session: KazooCoordination, wanted: SessionState) -> None:
        states = self._states[id(session)]
        until(lambda: states[-1:] == [wanted.value], PATIENCE_S, f"the session is {wanted.value}")
