"""The nodes of a followed config repository: its record, its follower, and requested checks.

The ephemeral node selects which of several followers checks the repository. It is no fence: a
paused follower may continue after losing it. So each check begins with a new version of the record,
and every job entry that it writes is conditional on that version.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.errors import FencedError
from perseid.records.repository import RepoRecord
from perseid.registry import codec, paths
from perseid.registry.facade import Registry, Stored
from perseid.registry.port import Check, ConflictError, Create, Set, UnknownOutcomeError


class RepoNodes:
    """All methods raise RetryableError while ZooKeeper is unavailable."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._coordination = registry.coordination

    def record(self) -> Stored[RepoRecord] | None:
        """The record; None: this deployment has never followed a repository."""
        return self._registry.read(paths.REPOSITORY, RepoRecord)

    def put(self, record: RepoRecord, version: int | None) -> int:
        """Writes over `version`, None for the first record; returns the new version.

        Raises FencedError when another follower has written since.
        """
        data = codec.encode(record)
        write = (
            Set(paths.REPOSITORY, data, version) if version is not None
            else Create(paths.REPOSITORY, data)
        )  # fmt: skip
        new = version + 1 if version is not None else 0
        try:
            self._coordination.write(write)
        except UnknownOutcomeError:
            stored = self.record()
            if stored is None or stored.version != new or stored.value != record:
                raise
        except ConflictError:
            raise FencedError("another process follows the repository now") from None
        return new

    def guard(self, version: int) -> Check:
        """A condition with which a write fails once another check has begun."""
        return Check(paths.REPOSITORY, version)

    def hold(self, who: str) -> bool:
        """Whether this session is the follower; idempotent."""
        node = self._coordination.get(paths.FOLLOWER)
        if node is not None:
            return node.mine
        try:
            self._coordination.write(Create(paths.FOLLOWER, who.encode(), ephemeral=True))
        except (ConflictError, UnknownOutcomeError):
            return False  # if it succeeded, the next call sees it
        return True

    def follower(self) -> str | None:
        """The present follower."""
        node = self._coordination.get(paths.FOLLOWER)
        return node.data.decode() if node is not None else None

    def ask(self, accept: str = "") -> None:
        """Requests a check now.

        `accept`: a commit to apply although it does not follow the last one.
        """
        data = accept.encode()
        try:
            self._coordination.write(Set(paths.LOOK_ASKED, data))
        except ConflictError:
            try:
                self._coordination.write(Create(paths.LOOK_ASKED, data))
            except ConflictError:  # another process requests one at the same moment
                self._coordination.write(Set(paths.LOOK_ASKED, data))

    def asked(self) -> tuple[int, str]:
        """The number of requested checks, and the commit accepted with the last one."""
        node = self._coordination.get(paths.LOOK_ASKED)
        return (node.version + 1, node.data.decode()) if node is not None else (0, "")

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back when a check is requested or the follower is gone; it must not block."""
        for path in (paths.LOOK_ASKED, paths.FOLLOWER):
            self._coordination.watch(path, callback)
