"""The two sides of a comparison behind one port: perseid's wordcount and plain Spark's.

Each side has the machine to itself while it runs: the other's processes are down, only Kafka, and
for both ZooKeeper and Redis, stay up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from perseid.cli.benches.peer import VERSION, Install, Peer
from perseid.cli.trials.stage import Names, connect
from perseid.cli.trials.victims import Victims
from perseid.embedded import Cluster
from perseid.embedded.identity import send
from perseid.errors import PermanentError

ENGINES = ("worker", "coordinator")


class Side(Protocol):
    """A system that counts the words of `names.source` into `names.sink`."""

    system: str
    version: str
    guarantee: str

    def start(self, names: Names) -> None:
        """Returns when the system has been started; it may need some time to its first output."""
        ...

    def kill(self) -> int:
        """SIGKILL for the driver that runs the job; the time just before, in ms."""
        ...

    def roots(self) -> list[int]:
        """The processes whose trees are the system's memory."""
        ...

    def state_bytes(self) -> int:
        """Serialised state as the system has written it last."""
        ...

    def stop(self, names: Names) -> None: ...


@contextmanager
def running(side: Side, names: Names) -> Iterator[None]:
    """The side counts `names`; it is stopped however this ends, so nothing outlives a benchmark."""
    try:
        side.start(names)
        yield
    finally:
        side.stop(names)


class Perseid:
    """The shipped wordcount example: exactly once, ledger, state log and checkpoints on.

    Words are split by the example's Python operator; the SQL form is in tests/benchmarks/README.md.
    """

    system = "perseid"
    guarantee = "exactly once"

    def __init__(self, cluster: Cluster, workers: int = 2) -> None:
        self.version = version("perseid")
        self._cluster, self._workers = cluster, workers
        if workers == 1:
            self.system = "perseid, one worker"
        self._names: Names | None = None

    def start(self, names: Names) -> None:
        deployment = self._cluster.up(workers=self._workers, coordinators=2)
        self._names = names
        with connect(deployment) as stage:
            stage.start(names, sql=False)

    def kill(self) -> int:
        with self._victims() as victims:
            deadline_s = time.monotonic() + 30
            while (victim := victims.find("worker")) is None:
                if time.monotonic() > deadline_s:
                    raise PermanentError("no worker owns the job for 30 s")
                time.sleep(0.05)
            now_ms = time.time_ns() // 1_000_000
            send(victim, 9)
        return now_ms

    def roots(self) -> list[int]:
        rows = self._cluster.processes()
        return [p.pid for p in rows if p.kind in ENGINES and p.pid is not None]

    def state_bytes(self) -> int:
        """Bytes of the newest complete checkpoint."""
        names = self._names
        with connect(self._cluster.deployment) as stage:
            found = stage.registry.pointers(names.job) if names is not None else None
        return found.pointers[0].bytes if found is not None and found.pointers else 0

    def stop(self, names: Names) -> None:
        with connect(self._cluster.deployment) as stage:
            stage.end(names)
        self._cluster.up(workers=0, coordinators=0)

    @contextmanager
    def _victims(self) -> Iterator[Victims]:
        if self._names is None:
            raise PermanentError("nothing was started")
        with connect(self._cluster.deployment) as stage:
            yield Victims(self._cluster, stage.registry, self._names.job)


class Spark:
    """Plain PySpark Structured Streaming."""

    system = "spark"
    version = VERSION
    guarantee = "at least once"

    def __init__(
        self, installed: Install, data: Path, kafka: str, *, memory: str, max_offsets: int
    ) -> None:
        self._peer = Peer(installed, data, memory)
        self._kafka, self._max_offsets = kafka, max_offsets

    def start(self, names: Names) -> None:
        self._peer.start(self._kafka, names.source, names.sink, max_offsets=self._max_offsets)

    def kill(self) -> int:
        self._peer.pid()
        now_ms = time.time_ns() // 1_000_000
        self._peer.kill()
        return now_ms

    def roots(self) -> list[int]:
        return self._peer.roots()

    def state_bytes(self) -> int:
        return self._peer.checkpoint_bytes()

    def stop(self, names: Names) -> None:
        self._peer.stop()
