"""A real Kafka for tests: one broker per test, which may lose the ends of its logs.

Its background work runs every 0.2 s, so that retention and transaction timeouts act soon. `kill -9`
keeps the page cache, so a power failure is emulated: the broker is killed, the log file of a
partition truncated, and the files derived from it removed; the broker rebuilds those.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from perseid.embedded import parts
from perseid.embedded.jars import kafka_jars
from perseid.embedded.java import java_home
from perseid.embedded.kafka_probe import brokers
from perseid.embedded.ports import ports
from perseid.errors import PerseidError
from perseid.testing.server import Server
from perseid.topics.admin import Partition
from support.proxy import Proxy

_CLUSTER_ID = "conformance-of-models0"  # 22 characters, as Kafka's UUIDs
_BATCH_PREFIX_BYTES = 12  # base offset (8) and length (4) of a record batch
_SETTINGS = {
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "log.segment.delete.delay.ms": 0,
    "file.delete.delay.ms": 0,
}


class KafkaServer(Server):
    """A broker of the test's own. Entering it formats its folder."""

    name = "Kafka"
    start_timeout_s = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ports = ports(folder / "ports.json")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self.ports["kafka"]

    def __enter__(self) -> Self:
        self.prepare()
        return super().__enter__()

    def prepare(self) -> None:
        """Writes the settings and formats the folder; `launch` needs both."""
        self._java = java_home()
        self._jars = kafka_jars(self._java)
        broker = parts.broker_properties(self.folder, self.port, self.ports["controller"])
        added = "".join(f"{name}={value}\n" for name, value in _SETTINGS.items())
        (self.folder / "server.properties").write_text(broker + added + self.settings())
        (self.folder / "log4j2.properties").write_text(parts.LOG4J)
        subprocess.run(
            self.format_command(),
            check=True, capture_output=True, timeout=self.start_timeout_s,
        )  # fmt: skip
        binary, *rest = parts.broker(self._java, self.folder, self._jars).command
        self._command = [binary, "-XX:TieredStopAtLevel=1", *rest]  # starts a second sooner

    def settings(self) -> str:
        """Returns the settings that follow all others, for special brokers."""
        return ""

    def format_command(self) -> list[str]:
        return parts.format_command(self._java, self.folder, self._jars, _CLUSTER_ID)

    def command(self) -> list[str]:
        return self._command

    def power_failure(self, ends: Mapping[Partition, int]) -> None:
        """Restarts the broker; then these partitions end at these offsets."""
        self.kill()
        for place, end in ends.items():
            self._cut(place, end)
        self.start()

    def _cut(self, place: Partition, end: int) -> None:
        """Cuts a log of one segment; `end` is a batch's base offset or the log's end."""
        folder = self.folder / "data" / f"{place[0]}-{place[1]}"
        log = folder / f"{0:020d}.log"
        size = next((at for at, offset in _batches(log) if offset >= end), None)
        with log.open("r+b") as file:
            file.truncate(size)
        for derived in (*folder.glob("*.*index"), *folder.glob("*.snapshot")):
            derived.unlink()

    def answers(self) -> bool:
        try:
            return brokers(self.bootstrap, 0.5) > 0
        except PerseidError:
            return False


class ProxiedKafka(KafkaServer):
    """A broker whose clients connect through a proxy that a test cuts; `proxy` leads to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.proxy = Proxy(self.port)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    def settings(self) -> str:
        return f"advertised.listeners=PLAINTEXT://{self.bootstrap}\n"


class JoiningBroker(KafkaServer):
    """Node 2 of the cluster of `first`, which is a single broker and its controller."""

    def __init__(self, folder: Path, first: KafkaServer) -> None:
        super().__init__(folder)
        self._controller = first.ports["controller"]

    def settings(self) -> str:
        address = f"PLAINTEXT://127.0.0.1:{self.port}"
        own = {
            "process.roles": "broker",
            "node.id": 2,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": address,
            "advertised.listeners": address,
        }
        return "".join(f"{name}={value}\n" for name, value in own.items())


def _batches(log: Path) -> Iterator[tuple[int, int]]:
    """Yields position and base offset of each record batch, and last the file's end."""
    data = log.read_bytes()
    at = 0
    while at < len(data):
        offset = int.from_bytes(data[at : at + 8], "big")
        length = int.from_bytes(data[at + 8 : at + _BATCH_PREFIX_BYTES], "big")
        if length <= 0:  # preallocated
            break
        yield at, offset
        at += _BATCH_PREFIX_BYTES + length
    yield at, 1 << 62
