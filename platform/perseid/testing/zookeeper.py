"""A real ZooKeeper for tests: one server from pyspark's jars on a free loopback port.

Ticks of 500 ms, so that a session of 2 s is granted as it is in the embedded cluster.
"""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from perseid.testing.server import Server, free_port


class ZooKeeperServer(Server):
    """One of its own for a test."""

    name = "ZooKeeper"
    start_timeout_s = 30.0  # a JVM on a busy two-core machine; normally it takes one second

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        (folder / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={folder / 'data'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n"
        )

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return ["java", "-Xmx128m", "-cp", _jars(),
                "org.apache.zookeeper.server.ZooKeeperServerMain",
                str(self.folder / "zoo.cfg")]  # fmt: skip

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False


def _jars() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeError("pyspark, whose jars hold ZooKeeper, is not installed")
    return str(Path(found.origin).parent / "jars" / "*")
