"""The supervisor's hint: the registration of a dead worker or leader is removed at once.

Only a hint: without it the registration ends with the ZooKeeper session two seconds later. So it
gets little time and its failures are only logged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from perseid.embedded.paths import Home
from perseid.embedded.table import ProcessSpec
from perseid.errors import PerseidError
from perseid.records import Deployment

HINT_TIMEOUT_S = 1.5
REGISTERED = frozenset({"worker", "coordinator"})


class Hint:
    """Acts only for workers and coordinators."""

    def __init__(self, home: Home, spec: ProcessSpec) -> None:
        self._home, self._spec = home, spec

    def prepare(self) -> None:
        """Imports what `died` needs ahead of time."""
        if self._spec.kind in REGISTERED:
            import perseid.registry.zookeeper  # noqa: F401

    def died(self, pid: int, log: Callable[[str], None]) -> None:
        """Removes the registration of the process that ran as `pid`."""
        if self._spec.kind not in REGISTERED:
            return
        try:
            self._remove(pid)
        except (PerseidError, OSError, ImportError) as error:
            log(f"the registration of pid {pid} was left to its session: {error}")

    def _remove(self, pid: int) -> None:
        from perseid.registry import Registry

        deployment = Deployment.load(self._home.deployment)
        with closing(Registry.connect(deployment, timeout_s=HINT_TIMEOUT_S)) as registry:
            if self._spec.kind == "worker":
                registry.remove_worker(self._spec.name, pid)
            else:
                registry.remove_leader(self._spec.name, pid)
