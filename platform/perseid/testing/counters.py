"""A Redis in memory: one `FakeRedis`, any number of `FakeCounters` on it.

It loses data: a restart empties it, a lagging replica that takes over sets it back, and it may not
answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perseid.errors import DamagedFile, RetryableError
from perseid.state.durability.counters import CounterKey, Divergence, decode, encode


@dataclass
class FakeRedis:
    """The server. Texts by name, so that a test may store an invalid counter."""

    answers: bool = True
    texts: dict[str, str] = field(default_factory=dict)
    _saved: dict[str, str] = field(default_factory=dict)

    def session(self) -> FakeCounters:
        return FakeCounters(self)

    def empty(self) -> None:
        """Restarts without data, or flushes."""
        self.texts.clear()

    def save(self) -> None:
        """Takes a replica's copy or a snapshot on disk."""
        self._saved = dict(self.texts)

    def fall_back(self) -> None:
        """The replica takes over, or the snapshot is loaded: later acknowledged writes are lost."""
        self.texts = dict(self._saved)


class FakeCounters:
    """`Counters` on the model."""

    def __init__(self, server: FakeRedis) -> None:
        self._server = server

    def publish(self, key: CounterKey, divergence: Divergence) -> bool:
        texts, name = self._texts(), self.name(key)
        try:
            if name in texts and decode(texts[name], name).stamp >= divergence.stamp:
                return False
        except DamagedFile:
            pass
        texts[name] = encode(divergence)
        return True

    def read(self, key: CounterKey) -> Divergence | None:
        text, name = self._texts().get(self.name(key)), self.name(key)
        return None if text is None else decode(text, name)

    def close(self) -> None:
        """Nothing is open."""

    def name(self, key: CounterKey) -> str:
        return f"{key.job}:{key.operator}:{key.partition}"

    def _texts(self) -> dict[str, str]:
        if not self._server.answers:
            raise RetryableError("Redis does not answer")
        return self._server.texts
