"""The peers as sides: their commands and settings (README.md, invariant 4)."""

from __future__ import annotations

import subprocess
import time

from benches.bench_cluster import Place
from benches.install import PROGRAMS, Install
from benches.peer import Peer
from benches.sides import EXACT
from perseid.cli.scenario.bed import Names
from perseid.embedded import ports
from perseid.embedded.java import java_home
from perseid.errors import PermanentError

TRIGGER_LINES = 400_000  # Spark's largest trigger is our largest epoch (`maxRecords` of the job)
PROCESSES = 2  # one a core, of peers that run Python alone
SNAPSHOT_S = 10  # between Bytewax's snapshots


class PeerSide:
    """What all peers have in common. `job`: wordcount, balances or enrich."""

    guarantee: str

    def __init__(self, installed: Install, place: Place, job: str) -> None:
        self.system, self.version = installed.name, installed.version
        self._installed, self._place, self._job = installed, place, job
        self._peer = Peer(place.data / "peer")

    def start(self, names: Names) -> None:
        self._peer.clear()
        self.prepare()
        self._peer.start(self.commands(names), self.environment())

    def prepare(self) -> None:
        """What is to be done in the empty state folder first."""

    def commands(self, names: Names) -> list[list[str]]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def roots(self) -> list[int]:
        return self._peer.roots()

    def stop(self, names: Names) -> None:
        self._peer.stop()

    def _command(self, program: str, names: Names, *more: str) -> list[str]:
        return [
            str(self._installed.python), str(PROGRAMS / program), f"--kafka={self._place.kafka}",
            f"--source={names.source}", f"--sink={names.sink}", f"--job={self._job}", *more,
        ]  # fmt: skip


class Spark(PeerSide):
    """Plain PySpark Structured Streaming, its state in Spark's HDFS-backed store or in RocksDB.

    `memory` is the driver's.
    """

    guarantee = "at least once"

    def __init__(self, installed: Install, place: Place, job: str, *, memory: str = "1g") -> None:
        super().__init__(installed, place, job)
        self._memory = memory

    def commands(self, names: Names) -> list[list[str]]:
        more = (
            f"--ivy={self._installed.ivy}", f"--checkpoint={self._peer.state}",
            f"--max-offsets={TRIGGER_LINES}", f"--memory={self._memory}",
            f"--state={self.system.partition('-')[2] or 'hdfs'}",
        )  # fmt: skip
        return [self._command("spark.py", names, *more)]

    def environment(self) -> dict[str, str]:
        return {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(self._installed.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._installed.python),
        }

    def kill(self) -> int:
        self._peer.pid()
        now_ms = time.time_ns() // 1_000_000
        self._peer.kill()
        return now_ms

    def state_bytes(self) -> int:
        return self._peer.state_bytes()


class Bytewax(PeerSide):
    """Bytewax with recovery: processes that exchange keys, snapshots into SQLite."""

    guarantee = "at least once"

    def prepare(self) -> None:
        folder = str(self._peer.state)
        _run([str(self._installed.python), "-m", "bytewax.recovery", folder, str(PROCESSES)])

    def commands(self, names: Names) -> list[list[str]]:
        arguments = ", ".join(
            repr(a) for a in (self._place.kafka, names.source, names.sink, self._job)
        )
        flow = f"{PROGRAMS / 'bytewax_flow.py'}:flow({arguments})"
        addresses = ";".join(f"127.0.0.1:{port}" for port in ports.free(PROCESSES))
        return [
            [
                str(self._installed.python), "-m", "bytewax.run", flow, "-i", str(process),
                "-a", addresses, "-r", str(self._peer.state), "-s", str(SNAPSHOT_S), "-b", "0",
            ]
            for process in range(PROCESSES)
        ]  # fmt: skip


class Quix(PeerSide):
    """Quix Streams, exactly once; its default is a commit each 5 s."""

    guarantee = EXACT

    def __init__(
        self, installed: Install, place: Place, job: str, *, commit_s: float = 5.0
    ) -> None:
        super().__init__(installed, place, job)
        self._commit_s = commit_s

    def commands(self, names: Names) -> list[list[str]]:
        return [
            self._command(
                "quix.py", names, f"--group={names.job}", f"--commit={self._commit_s}",
                f"--state={self._peer.state / str(process)}",
            )
            for process in range(PROCESSES)
        ]  # fmt: skip

    def stop(self, names: Names) -> None:
        super().stop(names)
        own = [t for t in self._place.topics.list() if names.job in t and t.startswith("changelog")]
        self._place.topics.delete(own)


class Loop(PeerSide):
    """A bare confluent-kafka loop, one process; a crash loses its state."""

    guarantee = "transactions, state in memory"

    def commands(self, names: Names) -> list[list[str]]:
        return [self._command("loop.py", names, f"--group={names.job}")]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PermanentError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
