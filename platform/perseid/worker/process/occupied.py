"""Whether this Python worker does something beside its tasks: then it is not ended for being idle.

The daemon that forked it listens on the other end of a socket (`sticky_workers.py`). A process
without such a daemon, as in tests, is never ended and sends nothing.
"""

from __future__ import annotations

import socket
from contextlib import suppress

HOLD = b"h"
RELEASE = b"r"
_daemons: list[socket.socket] = []  # this process's one, if it has one


def connect(daemon: socket.socket) -> None:
    """From here on `hold` and `release` reach the daemon."""
    _daemons[:] = [daemon]


def hold() -> None:
    """From here on this process is not ended for being idle, until as many calls of `release`."""
    _say(HOLD)


def release() -> None:
    """What `hold` was called for is over."""
    _say(RELEASE)


def _say(what: bytes) -> None:
    for daemon in _daemons:
        with suppress(OSError):  # the daemon has ended, and so will this process
            daemon.send(what)
