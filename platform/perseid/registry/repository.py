"""The nodes of a followed config repository: its record, who follows, and who wants a look now.

The ephemeral node says which of several followers looks. It is no fence: one that was paused may go
on when it is gone. So each look begins with a new version of the record, and every job entry that
is written by it checks that version.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.errors import FencedError
from perseid.records.repository import RepoRecord
from perseid.registry import codec, paths
from perseid.registry.facade import Registry, Stored
from perseid.registry.port import Check, ConflictError, Create, Set, UnknownOutcomeError


class RepoNodes:
    """All methods raise RetryableError while ZooKeeper is out of reach."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._coordination = registry.coordination

    def record(self) -> Stored[RepoRecord] | None:
        """None: nobody has ever followed a repository here."""
        return self._registry.read(paths.REPOSITORY, RepoRecord)

    def put(self, record: RepoRecord, version: int | None) -> int:
        """Writes over `version`, None for the first record; the new version.

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
            raise FencedError("somebody else follows the repository now") from None
        return new

    def guard(self, version: int) -> Check:
        """What a write needs beside it to fail once another look has begun."""
        return Check(paths.REPOSITORY, version)

    def hold(self, who: str) -> bool:
        """Whether this session is the one that follows; asking again is harmless."""
        node = self._coordination.get(paths.FOLLOWER)
        if node is not None:
            return node.mine
        try:
            self._coordination.write(Create(paths.FOLLOWER, who.encode(), ephemeral=True))
        except (ConflictError, UnknownOutcomeError):
            return False  # if it came through after all, the next call sees it
        return True

    def follower(self) -> str | None:
        """Who follows now."""
        node = self._coordination.get(paths.FOLLOWER)
        return node.data.decode() if node is not None else None

    def ask(self, accept: str = "") -> None:
        """Asks for a look now; `accept`: a commit to take although it is not behind the last."""
        data = accept.encode()
        try:
            self._coordination.write(Set(paths.LOOK_ASKED, data))
        except ConflictError:
            try:
                self._coordination.write(Create(paths.LOOK_ASKED, data))
            except ConflictError:  # somebody else asks at the same moment
                self._coordination.write(Set(paths.LOOK_ASKED, data))

    def asked(self) -> tuple[int, str]:
        """How often a look was asked for, and the commit that was accepted with it."""
        node = self._coordination.get(paths.LOOK_ASKED)
        return (node.version + 1, node.data.decode()) if node is not None else (0, "")

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back when a look is asked for or the follower goes; it must not block."""
        for path in (paths.LOOK_ASKED, paths.FOLLOWER):
            self._coordination.watch(path, callback)
