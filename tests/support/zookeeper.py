"""A real ZooKeeper for tests: one server from pyspark's jars on a free loopback port.

Its tick is 500 ms, so that a session of 2 s is granted as in the embedded cluster.
"""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from perseid.embedded.health import zookeeper as fault_of
from perseid.records.access import Access
from perseid.testing.server import Server, free_port
from support.certificates import Authority


class ZooKeeperServer(Server):
    """A server of the test's own."""

    name = "ZooKeeper"
    start_timeout_s = 30.0  # a JVM on a busy two-core machine; normally it takes one second

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        (folder / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={folder / 'data'}\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=ruok,srvr\n{self.settings()}"
        )

    def settings(self) -> str:
        """Returns the settings of its addresses and access."""
        return f"clientPort={self.port}\nclientPortAddress=127.0.0.1\n"

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


class SecuredZooKeeperServer(ZooKeeperServer):
    """TLS only, with a certificate for `localhost`; it requires none of its clients."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        self._own = self.authority.issue("zookeeper", ["localhost"])
        super().__init__(folder)

    def settings(self) -> str:
        return (
            f"secureClientPort={self.port}\nsecureClientPortAddress=127.0.0.1\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={self._own.both}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.authority.ca}\nssl.trustStore.type=PEM\n"
            "ssl.clientAuth=none\n"
        )

    @property
    def hosts(self) -> str:
        return f"localhost:{self.port}"

    def access(self, **settings: str) -> Access:
        """Returns the access of a client that trusts it."""
        return Access.model_validate(
            {"part": "ZOOKEEPER", "ca": str(self.authority.ca), **settings}
        )

    def answers(self) -> bool:
        return fault_of(self.hosts, self.access()) is None


def _jars() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeError("pyspark, whose jars hold ZooKeeper, is not installed")
    return str(Path(found.origin).parent / "jars" / "*")
