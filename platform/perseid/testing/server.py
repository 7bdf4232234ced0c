"""A server process of a test's own: started, killed, paused, and ended with the test."""

from __future__ import annotations

import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from perseid.testing.wait import until

STOP_S = 60.0  # a broker moves its partitions to others first


class Server(ABC):
    """A context manager; `kill` and a new `start` keep data and port. Its output is in `log`."""

    name: str
    start_timeout_s: float

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Returns the command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server answers; polled until it does."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.launch()
        self.await_answers()

    def launch(self) -> None:
        """Starts the process without waiting: a quorum's member answers after the others."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)

    def await_answers(self) -> None:
        until(self.answers, self.start_timeout_s, f"{self.name} answers; see {self.folder / 'log'}")

    def kill(self) -> None:
        """Sends SIGKILL, as a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Sends SIGTERM, as an operator's rolling restart; returns when the process has ended."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            self._process.wait(STOP_S)
            self._process = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        self._process.send_signal(number)


def free_port() -> int:
    """Returns a loopback port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
