"""One Redis in the hands of a script: sessions, and what becomes of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count

from perseid.state.durability.counters import CounterKey, Counters
from perseid.state.durability.counters_redis import RedisCounters
from perseid.testing.counters import FakeCounters, FakeRedis
from perseid.testing.redis_server import RedisServer

_TIMEOUT_S = 0.3
_jobs = count()


class RedisSide(ABC):
    """Scripts have a key of their own, of a job that nobody else has."""

    def __init__(self) -> None:
        self.key = CounterKey(f"job{next(_jobs)}", "op", 0)

    @abstractmethod
    def session(self) -> Counters: ...

    @abstractmethod
    def empty(self) -> None:
        """A restart without data."""

    @abstractmethod
    def save(self) -> None:
        """What an asynchronous replica has by now."""

    @abstractmethod
    def fall_back(self) -> None:
        """The replica takes over."""

    @abstractmethod
    def silence(self, *, on: bool) -> None:
        """The server takes connections and does not answer."""

    @abstractmethod
    def put(self, text: str) -> None:
        """Somebody else writes that under the script's key."""


class FakeSide(RedisSide):
    """On a model of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.server = FakeRedis()

    def session(self) -> FakeCounters:
        return self.server.session()

    def empty(self) -> None:
        self.server.empty()

    def save(self) -> None:
        self.server.save()

    def fall_back(self) -> None:
        self.server.fall_back()

    def silence(self, *, on: bool) -> None:
        self.server.answers = not on

    def put(self, text: str) -> None:
        self.server.texts[self.session().name(self.key)] = text


class RealSide(RedisSide):
    """On a server of the test module."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.server = server

    def session(self) -> RedisCounters:
        return RedisCounters(self.server.url, timeout_s=_TIMEOUT_S)

    def empty(self) -> None:
        self.server.restart(with_snapshot=False)

    def save(self) -> None:
        self.server.save()

    def fall_back(self) -> None:
        self.server.restart(with_snapshot=True)

    def silence(self, *, on: bool) -> None:
        if on:
            self.server.pause()
        else:
            self.server.resume()

    def put(self, text: str) -> None:
        self.server.execute("SET", self.session().name(self.key), text)
