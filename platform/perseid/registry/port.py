"""The coordination service as a port: nodes with versions, atomic writes, watches, a session.

Everything that perseid needs of ZooKeeper goes through `Coordination`; the adapter is
`perseid.registry.zookeeper`, the fake is `perseid.testing.registry`. Paths start with "/" and are
relative to the deployment's root.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from perseid.errors import FencedError, RetryableError

ANY_VERSION = -1


class ConflictError(RetryableError):
    """A version did not match, or a node did or did not exist: read again, then decide again."""

    def __init__(self, message: str, path: str) -> None:
        self.path = path
        super().__init__(message, path)


class FenceLostError(FencedError):
    """The fence of a write has moved: another coordinator leads. Nothing was written."""


class UnknownOutcomeError(RetryableError):
    """The connection broke or the time ran out: a write may or may not have happened."""


class SessionState(Enum):
    """SUSPENDED: start nothing new. LOST: all ephemeral nodes of this session are gone."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Node:
    """`mine`: an ephemeral node of this very session."""

    data: bytes
    version: int
    ephemeral: bool = False
    mine: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """Fails with a conflict when the node exists, or its parent is missing or ephemeral."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Fails with a conflict when the node is absent or has another version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Fails with a conflict when the node is absent, has children or another version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Writes nothing; fails the whole write when the node has another version."""

    path: str
    version: int


Write = Create | Set | Delete | Check


class Coordination(Protocol):
    """Linearisable writes, reads that are at least as new as this client's own last write.

    All methods raise RetryableError (UnknownOutcomeError for writes) when the service is
    unavailable; none may block longer than the adapter's request timeout.
    """

    def get(self, path: str) -> Node | None: ...

    def children(self, path: str) -> tuple[str, ...]:
        """Names of the children, sorted; empty when the node is absent."""
        ...

    def write(self, *writes: Write) -> None:
        """All of them or none. Raises ConflictError; must not retry by itself."""
        ...

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Calls back after the node or its list of children changed, and after each reconnection.

        Active until the client is closed. Calls are merged, so the callback must read the state
        again and must not count calls. It runs in the client's thread and must not block.
        """
        ...

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """Calls back at every change of the session's state; the callback must not block."""
        ...

    def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted at once. Must not raise."""
        ...
