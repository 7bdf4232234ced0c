"""The sides of a comparison, as one port, and perseid's own; `peer_sides.py` has the others.

Each side has the machine to itself while it runs: the other's processes are down, only Kafka, and
for both ZooKeeper and Redis, stay up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Protocol

from perseid.cli.scenario.bed import WORDS_IN_PYTHON, Names, Scenario, connect
from perseid.cli.scenario.nemesis import Nemesis
from perseid.embedded import Cluster
from perseid.embedded.identity import send
from perseid.errors import PermanentError

EXACT = "exactly once"
ENGINES = ("worker", "coordinator")


class Side(Protocol):
    """A system that runs a job from `names.source` to `names.sink`."""

    system: str
    version: str
    guarantee: str

    def start(self, names: Names) -> None:
        """Returns when the system has been started; it may need some time to its first output."""
        ...

    def roots(self) -> list[int]:
        """The processes whose trees are the system's memory."""
        ...

    def stop(self, names: Names) -> None: ...


class RecoveringSide(Side, Protocol):
    """A side that is also killed."""

    def kill(self) -> int:
        """SIGKILL for the driver that runs the job; the time just before, in ms."""
        ...

    def state_bytes(self) -> int:
        """Serialised state as the system has written it last."""
        ...


@contextmanager
def running(side: Side, names: Names) -> Iterator[None]:
    """The side runs `names`; it is stopped however this ends, so nothing outlives a benchmark."""
    try:
        side.start(names)
        yield
    finally:
        side.stop(names)


class Perseid:
    """A shipped example: exactly once, ledger, state log and checkpoints on."""

    system = "perseid"
    guarantee = EXACT

    def __init__(
        self, cluster: Cluster, scenario: Scenario = WORDS_IN_PYTHON, workers: int = 2
    ) -> None:
        self.version = version("perseid")
        self._cluster, self._scenario, self._workers = cluster, scenario, workers
        if workers == 1:
            self.system = "perseid, one worker"
        self._names: Names | None = None

    def start(self, names: Names) -> None:
        deployment = self._cluster.up(workers=self._workers, coordinators=2)
        self._names = names
        with connect(deployment) as bed:
            bed.start(names, self._scenario)

    def kill(self) -> int:
        with self._nemesis() as nemesis:
            deadline_s = time.monotonic() + 30
            while (target := nemesis.find("worker")) is None:
                if time.monotonic() > deadline_s:
                    raise PermanentError("no worker owns the job for 30 s")
                time.sleep(0.05)
            now_ms = time.time_ns() // 1_000_000
            send(target, 9)
        return now_ms

    def roots(self) -> list[int]:
        rows = self._cluster.processes()
        return [p.pid for p in rows if p.kind in ENGINES and p.pid is not None]

    def state_bytes(self) -> int:
        """Bytes of the newest complete checkpoint."""
        names = self._names
        with connect(self._cluster.deployment) as bed:
            found = bed.registry.pointers(names.job) if names is not None else None
        return found.pointers[0].bytes if found is not None and found.pointers else 0

    def stop(self, names: Names) -> None:
        with connect(self._cluster.deployment) as bed:
            bed.end(names)
        self._cluster.up(workers=0, coordinators=0)

    @contextmanager
    def _nemesis(self) -> Iterator[Nemesis]:
        if self._names is None:
            raise PermanentError("nothing was started")
        with connect(self._cluster.deployment) as bed:
            yield Nemesis(self._cluster, bed.registry, self._names.job)
