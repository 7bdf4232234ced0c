"""A ZooKeeper in memory: one `FakeZooKeeper`, any number of `FakeCoordination` sessions.

Sessions end on the server's clock: one that is silent for `session_s` is gone for all others at
once; its own client learns of it on reconnection. Watches are one-shot; the session arms them again
before the callback, so changes in between are merged and none is missed. They are delivered in the
caller's thread, or with `deliver_at_once=False` collected until `deliver`. Tests inject faults:
`suspend` and `resume` a connection, `expire` a session, or let the next write have an unknown
outcome, "done" or "not done". A write while suspended has an unknown outcome for its caller, and is
done when the connection is back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import Literal

from perseid.clocks import Clock, ManualClock
from perseid.errors import RetryableError
from perseid.registry.port import (
    Check,
    ConflictError,
    Create,
    Node,
    SessionState,
    Set,
    UnknownOutcomeError,
    Write,
)
from perseid.testing.znodes import Tree, parent

# ZooKeeper closes the connection on a larger request (jute.maxbuffer), before it parses it.
REQUEST_BYTES_MAX = 1_048_575
_REQUEST_OVERHEAD_BYTES = 100  # around the data of one write, about


@dataclass(slots=True)
class _Watch:
    """`armed` until it has fired; its session arms it again."""

    session: FakeCoordination
    path: str
    callback: Callable[[], None]
    armed: bool = True

    def call(self) -> None:
        self.armed = True  # before the callback reads, so that no change is missed
        self.callback()


@dataclass
class FakeZooKeeper:
    """The server. Every method takes its lock, so sessions may be used from different threads."""

    deliver_at_once: bool = True
    tree: Tree = field(default_factory=Tree)
    watches: list[_Watch] = field(default_factory=list)
    pending: list[_Watch] = field(default_factory=list)
    sessions: int = 0
    clock: Clock = field(default_factory=ManualClock)
    session_s: float = 2.0
    silent_since_s: dict[int, float] = field(default_factory=dict)  # sessions without a connection
    lock: RLock = field(default_factory=RLock)

    def session(self) -> FakeCoordination:
        return FakeCoordination(self, self.new_session())

    def new_session(self) -> int:
        self.sessions += 1
        return self.sessions

    def expire_silent(self) -> None:
        """Ends sessions that have been silent for too long. Every call to the server does so."""
        if not self.silent_since_s:
            return
        with self.lock:
            now_s = self.clock.monotonic_s()
            for session, since_s in list(self.silent_since_s.items()):
                if now_s - since_s >= self.session_s:
                    self.drop_session(session)

    def apply(self, session: int, writes: tuple[Write, ...]) -> None:
        """Applies all writes or none, like one ZooKeeper transaction."""
        self.expire_silent()
        with self.lock:
            self.tree.apply(session, writes)
            self._touch([w.path for w in writes if not isinstance(w, Check)])

    def drop_session(self, session: int) -> None:
        with self.lock:
            self.silent_since_s.pop(session, None)
            self._touch(self.tree.drop(session))

    def deliver(self) -> None:
        """Calls fired watches whose clients are connected; each once, however often it fired."""
        with self.lock:
            pending = [w for w in self.pending if w.session.hears]
            self.pending = [w for w in self.pending if not w.session.hears]
        for watch in pending:
            if watch.session.state is SessionState.CONNECTED:
                watch.call()

    def _touch(self, changed: list[str]) -> None:
        seen = set(changed) | {parent(path) for path in changed}
        for watch in self.watches:
            if watch.armed and watch.path in seen:
                watch.armed = False
                self.pending.append(watch)
        if self.deliver_at_once:
            self.deliver()


class FakeCoordination:
    """One session after another. `unknown_next` makes the next write's outcome unknown."""

    def __init__(self, server: FakeZooKeeper, session: int) -> None:
        self._server = server
        self._session = session
        self._listeners: list[Callable[[SessionState], None]] = []
        self._late: list[tuple[Write, ...]] = []
        self._silent = False  # the server receives nothing of it
        self.state = SessionState.CONNECTED
        self.unknown_next: Literal["done", "not done"] | None = None

    def get(self, path: str) -> Node | None:
        self._check_connected()
        with self._server.lock:
            node = self._server.tree.nodes.get(path)
            if node is None:
                return None
            mine = node.session == self._session
            return Node(node.data, node.version, node.session is not None, mine)

    def children(self, path: str) -> tuple[str, ...]:
        self._check_connected()
        with self._server.lock:
            return self._server.tree.children(path)

    def write(self, *writes: Write) -> None:
        if self.state is not SessionState.CONNECTED:
            self._late.append(writes)  # the client keeps it, although its caller got an error
            raise UnknownOutcomeError("the session is suspended")
        unknown, self.unknown_next = self.unknown_next, None
        if unknown == "not done":
            raise UnknownOutcomeError("no answer")
        if sum(map(_request_bytes, writes)) > REQUEST_BYTES_MAX:
            self.suspend()
            self.resume()
            raise UnknownOutcomeError("the server has closed the connection")
        self._server.apply(self._session, writes)
        if unknown == "done":
            raise UnknownOutcomeError("no answer")

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        with self._server.lock:
            self._server.watches.append(_Watch(self, path, callback))
        callback()  # as a real watch that has just been armed

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._listeners.append(callback)

    def close(self) -> None:
        self._server.drop_session(self._session)
        self._server.watches = [w for w in self._server.watches if w.session is not self]
        self._server.pending = [w for w in self._server.pending if w.session is not self]
        self.state = SessionState.LOST

    @property
    def hears(self) -> bool:
        """Whether the server's messages reach it."""
        return True

    def fall_silent(self) -> None:
        """Drops this client's messages to the server unnoticed; the session timeout starts."""
        if not self._silent:
            self._silent = True
            self._server.silent_since_s[self._session] = self._server.clock.monotonic_s()

    def suspend(self) -> None:
        """Breaks the connection; the client knows."""
        self.fall_silent()
        self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Restores the connection, with a new session if the old one has expired meanwhile.

        Waiting writes are done now, whatever became of their callers; writes of an expired session
        are not.
        """
        self._server.expire_silent()
        late, self._late = self._late, []
        if self._silent:
            self._silent = False
            if self._server.silent_since_s.pop(self._session, None) is None:
                self._session, late = self._server.new_session(), []
                self._become(SessionState.LOST)
        self._become(SessionState.CONNECTED)
        for writes in late:
            with suppress(ConflictError):
                self._server.apply(self._session, writes)
        for watch in [w for w in self._server.watches if w.session is self]:
            watch.call()

    def expire(self) -> None:
        """Expires the session on the server; its client learns of it on reconnection."""
        self._server.drop_session(self._session)
        self._session, self._late = self._server.new_session(), []
        self._become(SessionState.SUSPENDED)
        self._become(SessionState.LOST)

    def _become(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            listener(state)

    def _check_connected(self) -> None:
        if self.state is not SessionState.CONNECTED:
            raise RetryableError("the session is suspended")
        self._server.expire_silent()


def _request_bytes(write: Write) -> int:
    data = write.data if isinstance(write, Create | Set) else b""
    return len(data) + len(write.path) + _REQUEST_OVERHEAD_BYTES
