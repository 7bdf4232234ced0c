"""Consumer groups in memory: offsets, and the one permitted writer of each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseid.errors import FencedError, RetryableError
from perseid.topics.admin import Partition


@dataclass
class ModelGroups:
    """A broker's groups. `commits`: accepted commits with their groups. `away`: no answers."""

    offsets: dict[str, dict[Partition, int]] = field(default_factory=dict)
    writers: dict[str, FakeGroupWriter] = field(default_factory=dict)
    commits: list[tuple[str, dict[Partition, int]]] = field(default_factory=list)
    away: bool = False

    def writer(self, group: str) -> FakeGroupWriter:
        return FakeGroupWriter(self, group)


class FakeGroupWriter:
    """GroupWriter on ModelGroups."""

    def __init__(self, groups: ModelGroups, group: str) -> None:
        self._groups, self._group = groups, group
        self._acquired = False

    @property
    def is_open(self) -> bool:
        return self._acquired

    def acquire(self) -> None:
        self._acquired = False
        self._answered()
        self._groups.writers[self._group] = self
        self._acquired = True

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        acquired, self._acquired = self._acquired, False
        if not acquired:
            raise RetryableError(f"group {self._group} has to be acquired before a commit")
        self._answered()
        if self._groups.writers[self._group] is not self:
            raise FencedError(f"{self._group}: a newer writer has acquired it")
        self._groups.offsets.setdefault(self._group, {}).update(offsets)
        self._groups.commits.append((self._group, dict(offsets)))
        self._acquired = True

    def close(self) -> None:
        self._acquired = False

    def _answered(self) -> None:
        if self._groups.away:
            raise RetryableError("the broker is away")
