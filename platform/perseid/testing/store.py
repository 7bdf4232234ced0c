"""A checkpoint store in memory, which a test can damage or let fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perseid.errors import RetryableError
from perseid.state.durability.store import Counted, checked, missing


class MemoryStore:
    """The fake of `perseid.state.durability.store.Store`. Tests may change `content`."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.times_ms: dict[str, int] = {}  # set by tests, else 0
        self.failing = False

    def write(self, path: str, chunks: Iterable[Any]) -> tuple[int, int]:
        name = checked(path)
        self._answer(name)
        counted = Counted(chunks)
        self.content[name] = b"".join(counted)
        return counted.bytes, counted.crc

    def read(self, path: str) -> memoryview:
        name = checked(path)
        self._answer(name)
        if name not in self.content:
            raise missing(path, "in memory")
        return memoryview(self.content[name])

    def list(self, prefix: str = "") -> list[str]:
        self._answer(prefix)
        top = checked(prefix) + "/" if prefix else ""
        return sorted(path for path in self.content if path.startswith(top))

    def delete(self, path: str) -> None:
        name = checked(path)
        self._answer(name)
        for held in [p for p in self.content if p == name or p.startswith(name + "/")]:
            del self.content[held]

    def written_ms(self, path: str = "") -> dict[str, int]:
        self._answer(path)
        top = checked(path) if path else ""
        return {
            name: self.times_ms.get(name, 0) for name in self.content
            if not top or name == top or name.startswith(top + "/")
        }  # fmt: skip

    def _answer(self, path: str) -> None:
        if self.failing:
            raise RetryableError(f"the store does not answer for {path}")
