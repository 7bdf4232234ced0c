"""Servers that come back under another address of the same name.

The clients look the names up as they always do, and get what a test sets. `Names` is for clients in
this process: Python's own look-ups, which are kazoo's and redis-py's, and those of the librdkafka
clients that `perseid.topics.librdkafka` makes. `HostsFile` is for processes, with all that they do;
it needs root. All of 127/8 is this machine's.
"""

from __future__ import annotations

import ctypes
import socket
from collections import UserDict
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from ctypes import POINTER, c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any, Literal, Self
from unittest.mock import patch

from perseid.testing.server import free_port
from perseid.topics import librdkafka
from support.broker import KafkaServer
from support.proxy import Proxy

FIRST, SECOND = "127.0.0.1", "127.0.0.2"
Left = Literal["refused", "silent"]
_ResolveCallback = ctypes.CFUNCTYPE(
    c_int, c_char_p, c_char_p, c_void_p, POINTER(c_void_p), c_void_p
)


class Names(UserDict[str, str]):
    """What each name leads to now; all other names are looked up as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._libc = ctypes.CDLL(None)
        self._callback = _ResolveCallback(self._resolve)  # as long as any client

    @contextmanager
    def looked_up(self) -> Iterator[None]:
        """Clients that are made while the block runs get these addresses."""
        real = socket.getaddrinfo
        library: Any = librdkafka._library()
        made = library.rd_kafka_conf_new
        library.rd_kafka_conf_set_resolve_cb.argtypes = c_void_p, _ResolveCallback

        def look_up(host: Any, *more: Any, **named: Any) -> Any:
            return real(self.get(host, host), *more, **named)

        def new_conf() -> Any:
            conf = made()
            library.rd_kafka_conf_set_resolve_cb(conf, self._callback)
            return conf

        with patch.object(socket, "getaddrinfo", look_up):
            with patch.object(library, "rd_kafka_conf_new", new_conf):
                yield

    def _resolve(
        self, node: bytes | None, service: bytes | None, hints: int | None, found: Any, _: object
    ) -> int:
        """As getaddrinfo; without a name it frees what it has found."""
        if node is None:
            self._libc.freeaddrinfo(c_void_p(found[0]))
            return 0
        name = node.decode()
        address = self.get(name, name).encode()
        code: int = self._libc.getaddrinfo(address, service, c_void_p(hints), found)
        return code


class HostsFile(UserDict[str, str]):
    """The /etc/hosts of processes that are started with `before` in front of their command."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        self.before = ["unshare", "--mount", "sh", "-c", script, str(path)]

    def __setitem__(self, name: str, address: str) -> None:
        """In place: a new file would not be the one that they have."""
        super().__setitem__(name, address)
        lines = [f"{at} {of}\n" for of, at in {"localhost": FIRST, **self.data}.items()]
        self._path.write_text("".join(lines))


class Movable:
    """The server at `port`, reached by `name`: at FIRST, and after `move` at SECOND.

    Used by `with`; `.port` is the clients' one at both.
    """

    def __init__(self, names: MutableMapping[str, str], name: str, port: int) -> None:
        self._names, self._name, self._target = names, name, port
        self._proxies = [Proxy(port, (FIRST, 0))]
        self.port = self._proxies[0].port
        names[name] = FIRST

    def __enter__(self) -> Self:
        self._proxies[0].__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            proxy.__exit__()

    @property
    def at(self) -> str:
        return f"{self._name}:{self.port}"

    @property
    def old(self) -> Proxy:
        """What is at the first address."""
        return self._proxies[0]

    def move(self, left: Left) -> None:
        """After it the old address ends connections, or takes them and never answers."""
        self._proxies.append(Proxy(self._target, (SECOND, self.port)).__enter__())
        self._names[self._name] = SECOND
        if left == "refused":
            self.old.cut()
        else:
            self.old.requests_pass = self.old.answers_pass = False


class Gone:
    """An address where no machine is any more: who connects hears nothing at all.

    Of a listener whose queue is full the kernel drops what comes. Used by `with`.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((FIRST, 0), backlog=0)
        self.port: int = self._listener.getsockname()[1]
        self._queued: list[socket.socket] = []

    def __enter__(self) -> Self:
        with suppress(TimeoutError):
            while True:
                self._queued.append(socket.create_connection((FIRST, self.port), timeout=0.5))
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._queued, self._listener):
            each.close()


class NamedKafka(KafkaServer):
    """Advertises another place: `advertised`. What is there leads to its port `named`.

    At its own port it does not move.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.named = free_port()
        self.advertised = ""

    def settings(self) -> str:
        own, controller = f"PLAINTEXT://{self.bootstrap}", self.ports["controller"]
        return (
            f"listeners={own},NAMED://127.0.0.1:{self.named},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners={own},NAMED://{self.advertised}\n"
            "listener.security.protocol.map="
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,NAMED:PLAINTEXT\n"
        )

    def restart_at(self, advertised: str) -> None:
        """It is killed, and advertises another place when it is back."""
        self.kill()
        file = self.folder / "server.properties"
        before, after = f"NAMED://{self.advertised}\n", f"NAMED://{advertised}\n"
        file.write_text(file.read_text().replace(before, after))
        self.advertised = advertised
        self.start()
