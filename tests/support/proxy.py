"""A loopback TCP proxy that a test cuts: connections end, or bytes pass in one direction only.

Only the thread that reads a socket closes it, after its last read: the kernel restarts an
interrupted `accept` or `recv` with a file number that may meanwhile belong to another socket, whose
connections it would then take.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 65_536


class Proxy:
    """Between clients and the server at `port`. Used by `with`; `.port` is the clients' one.

    `at`: where clients come in, by default at a free port. `taken`: connections so far.
    """

    def __init__(self, port: int, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._target = port
        self._listener = socket.create_server(at)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = False
        self.taken = 0
        self.requests_pass = True
        self.answers_pass = True

    def __enter__(self) -> Proxy:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        _end(self._listener)
        self._accepting.join()

    @property
    def busy(self) -> bool:
        """Whether a connection is open."""
        with self._lock:
            return bool(self._open)

    def cut(self) -> None:
        """Ends all connections; new ones are closed at once."""
        with self._lock:
            self._cut = True
            self._end_all()

    def mend(self) -> None:
        """Lets new connections pass."""
        with self._lock:
            self._cut, self.requests_pass, self.answers_pass = False, True, True
            self._end_all()

    def _end_all(self) -> None:
        for connection in self._open:
            _end(connection)

    def _accept(self) -> None:
        with suppress(OSError), self._listener:  # until it is ended
            while True:
                self._take(self._listener.accept()[0])

    def _take(self, client: socket.socket) -> None:
        with self._lock:
            self.taken += 1
            if self._cut:
                client.close()
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                return
            self._open |= {client, server}
        threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(
            target=_pump, args=(server, client, lambda: self.answers_pass), daemon=True
        )
        back.start()
        _pump(client, server, lambda: self.requests_pass)
        back.join()
        with self._lock:
            self._open -= {client, server}
            client.close()
            server.close()


def _pump(source: socket.socket, target: socket.socket, passes: Callable[[], bool]) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            if passes():
                target.sendall(data)
    for end in (source, target):
        _end(end)


def _end(connection: socket.socket) -> None:
    """Shuts the connection down; its reader sees the end."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
