"""A real Redis for tests: a process that is killed, paused and set back to a snapshot."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType

from perseid.embedded.health import redis as fault_of
from perseid.embedded.parts import redis_executable
from perseid.testing.wait import until

_START_TIMEOUT_S = 20.0
_SNAPSHOT = "dump.rdb"


class RedisServer:
    """Started by `with`; `start` after `kill` finds the data of the last snapshot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.kill()

    def start(self) -> None:
        command = [
            redis_executable(), "--port", str(self._port), "--bind", "127.0.0.1", "--save", "",
            "--dir", str(self.folder), "--dbfilename", _SNAPSHOT, "--daemonize", "no",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: fault_of(self.url) is None, _START_TIMEOUT_S, "Redis answers")

    def kill(self) -> None:
        """SIGKILL, as a crash: nothing is saved."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def save(self) -> None:
        """A snapshot of this moment."""
        self.command("SAVE")

    def restart(self, *, with_snapshot: bool) -> None:
        self.kill()
        if not with_snapshot:
            (self.folder / _SNAPSHOT).unlink(missing_ok=True)
        self.start()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def command(self, *words: str) -> None:
        """Sent as it is."""
        from redis import Redis

        client = Redis.from_url(self.url)
        client.execute_command(*words)  # type: ignore[no-untyped-call]
        client.close()

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise RuntimeError("the server is not running")
        self._process.send_signal(number)
