"""A loopback TCP proxy that a test cuts: connections that end, and bytes that go only one way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 65_536


class Proxy:
    """Between clients and the server at `port`. Used by `with`; `.port` is the clients' one."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._cut = False
        self.requests_pass = True
        self.answers_pass = True

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Ends all connections; new ones are closed at once."""
        with self._lock:
            self._cut = True
            self._end_all()

    def mend(self) -> None:
        """All is well, over new connections."""
        with self._lock:
            self._cut, self.requests_pass, self.answers_pass = False, True, True
            self._end_all()

    def _end_all(self) -> None:
        while self._open:
            connection = self._open.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            with self._lock:
                if self._cut:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._open += [client, server]
            for source, target, passes in (
                (client, server, lambda: self.requests_pass),
                (server, client, lambda: self.answers_pass),
            ):
                threading.Thread(target=_pump, args=(source, target, passes), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, passes: Callable[[], bool]) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            if passes():
                target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
