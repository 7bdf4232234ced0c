"""Waits for signals: a process sleeps until a child dies, a stop is requested, or a timeout.

The handler only sets the flag; the wake-up descriptor ends the sleep, so no signal is missed
between checking the flag and going to sleep.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from types import FrameType

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Signals:
    """Owns SIGTERM, SIGINT, SIGHUP and SIGCHLD of this process."""

    def __init__(self) -> None:
        self.stop = False
        self.reload = False
        self._wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes

    def wait(self, timeout_s: float) -> None:
        """Sleeps until any signal or the timeout."""
        ready, _, _ = select.select([self._wake_read], [], [], max(0.0, timeout_s))
        if ready:
            os.read(self._wake_read, 4096)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.reload = True


def die_with_parent(parent: int) -> None:
    """To be called in a new child: SIGKILL comes when `parent` dies, also if it already has."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
