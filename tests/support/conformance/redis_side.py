"""One Redis as a script uses it: sessions, and faults of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count

from perseid.state.durability.counters import CounterKey, Counters
from perseid.state.durability.counters_redis import RedisCounters
from perseid.testing.counters import FakeCounters, FakeRedis
from support.redis_server import RedisServer

_TIMEOUT_S = 0.3
_jobs = count()


class RedisSide(ABC):
    """Each script has its own key, of a job that no other script uses."""

    def __init__(self) -> None:
        self.key = CounterKey(f"job{next(_jobs)}", "op", 0)

    @abstractmethod
    def session(self) -> Counters: ...

    @abstractmethod
    def empty(self) -> None:
        """Restarts the server without data."""

    @abstractmethod
    def save(self) -> None:
        """Sets an asynchronous replica to the current data."""

    @abstractmethod
    def fall_back(self) -> None:
        """Makes the replica take over."""

    @abstractmethod
    def silence(self, *, on: bool) -> None:
        """The server accepts connections and does not answer."""

    @abstractmethod
    def put(self, text: str) -> None:
        """Writes `text` under the script's key as a foreign client."""


class FakeSide(RedisSide):
    """Uses a model of its own."""

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
    """Uses the server of the test module."""

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
