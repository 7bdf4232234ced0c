"""Reports to the daemon that this Python worker has background activity, so is not idle.

The daemon that forked it listens on the other end of a socket (`sticky_workers.py`). A process
without such a daemon, as in tests, is never ended and sends nothing.
"""

from __future__ import annotations

import socket
from contextlib import suppress

HOLD = b"h"
RELEASE = b"r"
_daemons: list[socket.socket] = []  # this process's daemon, if it has one


def connect(daemon: socket.socket) -> None:
    """From now on `hold` and `release` reach the daemon."""
    _daemons[:] = [daemon]


def hold() -> None:
    """Until as many calls of `release`, the daemon does not end this process as idle."""
    _send(HOLD)


def release() -> None:
    """Ends what the matching `hold` began."""
    _send(RELEASE)


def _send(what: bytes) -> None:
    for daemon in _daemons:
        with suppress(OSError):  # the daemon has ended, and so will this process
            daemon.send(what)
