"""A real Redis for tests: a process that is killed, paused and set back to a snapshot."""

from __future__ import annotations

from pathlib import Path

from perseid.embedded.health import redis as fault_of
from perseid.embedded.parts import redis_executable
from perseid.testing.server import Server, free_port

_SNAPSHOT = "dump.rdb"


class RedisServer(Server):
    """`start` after `kill` finds the data of the last snapshot."""

    name = "Redis"
    start_timeout_s = 20.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def command(self) -> list[str]:
        return [
            redis_executable(), "--port", str(self._port), "--bind", "127.0.0.1", "--save", "",
            "--dir", str(self.folder), "--dbfilename", _SNAPSHOT, "--daemonize", "no",
        ]  # fmt: skip

    def answers(self) -> bool:
        return fault_of(self.url) is None

    def save(self) -> None:
        """A snapshot of this moment."""
        self.execute("SAVE")

    def restart(self, *, with_snapshot: bool) -> None:
        self.kill()
        if not with_snapshot:
            (self.folder / _SNAPSHOT).unlink(missing_ok=True)
        self.start()

    def execute(self, *words: str) -> None:
        """Sent as it is."""
        from redis import Redis

        client = Redis.from_url(self.url)
        client.execute_command(*words)  # type: ignore[no-untyped-call]
        client.close()
