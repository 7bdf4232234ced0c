"""The proxy that cuts connections: what passes, what ends, and that nothing of it is left."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from perseid.testing.wait import until
from support.proxy import Proxy

PATIENCE_S = 10.0


class Ends:
    """A client and what the server has of it, through the proxy."""

    def __init__(self, proxy: Proxy, server: socket.socket) -> None:
        self.client = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
        self.served, _ = server.accept()
        self.served.settimeout(PATIENCE_S)

    def close(self) -> None:
        self.client.close()
        self.served.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


def test_bytes_pass_both_ways_until_one_is_stopped(server: socket.socket) -> None:
    with Proxy(server.getsockname()[1]) as proxy:
        ends = Ends(proxy, server)
        ends.client.sendall(b"asked")
        assert ends.served.recv(99) == b"asked"
        ends.served.sendall(b"hello")
        assert ends.client.recv(99) == b"hello"
        proxy.answers_pass = False
        ends.served.sendall(b"lost")
        ends.client.sendall(b"still asked")
        assert ends.served.recv(99) == b"still asked"
        ends.served.close()
        assert ends.client.recv(99) == b""
        ends.close()


def test_a_cut_ends_what_is_open_and_what_comes_until_it_is_mended(server: socket.socket) -> None:
    with Proxy(server.getsockname()[1]) as proxy:
        ends = Ends(proxy, server)
        proxy.cut()
        assert (ends.client.recv(99), ends.served.recv(99)) == (b"", b"")
        ends.close()
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as refused:
            assert refused.recv(99) == b""
        proxy.mend()
        ends = Ends(proxy, server)
        ends.client.sendall(b"asked")
        assert ends.served.recv(99) == b"asked"
        ends.close()


def test_no_connection_is_accepted_after_its_end(server: socket.socket) -> None:
    """A thread that was left in `accept` took the connections of a later listener."""
    before = set(threading.enumerate())
    for _ in range(20):  # as it may end before it accepts once more
        with Proxy(server.getsockname()[1]) as proxy:
            ends = Ends(proxy, server)
            ends.client.sendall(b"asked")
            assert ends.served.recv(99) == b"asked"
        assert (ends.client.recv(99), ends.served.recv(99)) == (b"", b"")
        ends.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
    until(lambda: set(threading.enumerate()) <= before, PATIENCE_S, "its threads end")
