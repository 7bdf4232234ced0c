"""When this process may act as leader: the fence, and a lease on its own monotonic clock.

ZooKeeper ends the session of a leader that it does not hear from, and the leader may learn of that
late. So the lease runs from the *start* of the last round trip that proved the session and the
fence, and ends at two thirds of the session timeout, before any other process can lead. Within the
lease the leader does not ask; after it, the leader does nothing until a new proof. A write that
happens nevertheless (a process can be paused between check and write) fails at the fence or is void
in the token log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from perseid.clocks import Clock
from perseid.errors import FencedError, RetryableError
from perseid.errors.texts import named
from perseid.registry import FencedRegistry

_log = logging.getLogger(__name__)

LEASE_SHARE = 2 / 3  # of the session timeout
PROOFS_PER_SESSION = 8  # so that a few lost round trips do not interrupt a healthy leader


class Lease:
    """Whether the leader may act at a given moment. Thread-safe."""

    def __init__(self, session_s: float) -> None:
        self._length_s = session_s * LEASE_SHARE
        self._until_s = float("-inf")
        self._changed = threading.Condition()

    def proven(self, started_s: float) -> None:
        """A round trip that began at `started_s` proved session and fence."""
        with self._changed:
            self._until_s = max(self._until_s, started_s + self._length_s)
            self._changed.notify_all()

    def suspend(self) -> None:
        """The connection is gone: the lease does not hold until the next proof."""
        with self._changed:
            self._until_s = float("-inf")

    def holds(self, now_s: float) -> bool:
        return now_s < self._until_s

    def wait(self, clock: Clock, timeout_s: float) -> bool:
        """Waits until the lease holds; returns whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self.holds(clock.monotonic_s()), timeout_s)


class LeaseKeeper:
    """Renews a lease in its own thread and reports the loss of the fence."""

    def __init__(
        self, fenced: FencedRegistry, lease: Lease, session_s: float, clock: Clock,
        lost: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._fenced, self._lease, self._clock = fenced, lease, clock
        self._period_s = session_s / PROOFS_PER_SESSION
        self._lost = lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self.prove()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def prove(self) -> None:
        """One proof now. A round trip without an answer proves nothing and is no loss either.

        Any other error is a loss: no other process can lead while this session lives.
        """
        started_s = self._clock.monotonic_s()
        try:
            self._fenced.confirm()
        except FencedError as error:
            self._lost(str(error))
        except RetryableError:
            _log.warning("ZooKeeper did not confirm the leadership")
        except Exception as error:
            _log.exception("the leadership cannot be confirmed")
            self._lost(f"the leadership cannot be confirmed: {named(error)}")
        else:
            self._lease.proven(started_s)

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self.prove()
