"""A real ZooKeeper for tests: one server from pyspark's jars on a free loopback port.

Ticks of 500 ms, so that a session of 2 s is granted as it is in the embedded cluster.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

_START_TIMEOUT_S = 30.0  # a JVM on a busy two-core machine; normally it takes one second


class ZooKeeperServer:
    """Started by `with`; `kill` and `start` again keep data and port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.kill()

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "zoo.cfg"
        settings.write_text(
            f"tickTime=500\ndataDir={self.folder / 'data'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n"
        )
        command = ["java", "-Xmx128m", "-cp", _jars(),
                   "org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait_until_it_answers()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise RuntimeError("the server is not running")
        os.kill(self._process.pid, number)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer from ZooKeeper; see {self.folder / 'log'}")
            time.sleep(0.02)

    def _answers(self) -> bool:
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
