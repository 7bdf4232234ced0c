"""Where kazoo connects to: an address that the server's name has at that moment.

kazoo looks the names of all servers up once, tries their addresses one after the other, and looks
again only when it has tried the last one. While a connection lasts that list gets old: after a
rolling restart under new addresses each attempt at an old one would cost its whole time-out, and
with it the session.
"""

from __future__ import annotations

import logging
import socket
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_log = logging.getLogger(__name__)


class CurrentAddresses(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler; an attempt at one server takes `attempt_s` at most.

    kazoo gives one as long as the session lasts, so one server that is gone would end it although
    others answer. With the session's time divided by the number of servers all of them are tried.
    """

    def __init__(self, attempt_s: float) -> None:
        super().__init__()
        self._attempt_s = attempt_s

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **over: Any
    ) -> socket.socket:
        host, port = address
        now = current(hostname, host, port)
        if now != host:
            _log.warning("ZooKeeper's %s is at %s now, and was at %s", hostname, now, host)
        made: socket.socket = super().create_connection(
            address=(now, port), hostname=hostname, timeout=min(timeout, self._attempt_s), **over
        )
        return made


def current(name: str, address: str, port: int) -> str:
    """`address` if `name` still has it, or cannot be looked up; else one that it has now."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError:
        return address
    addresses = [str(one[4][0]) for one in found]
    return address if address in addresses else addresses[0]
