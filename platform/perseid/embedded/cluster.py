"""`Cluster`: a data folder's cluster as an object, for the command line, the demo and tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from perseid.embedded import lifecycle, table
from perseid.embedded.identity import send, tag, tagged, wait_gone
from perseid.embedded.paths import Home, deployment, locate
from perseid.embedded.prepare import Outside
from perseid.embedded.table import ProcessInfo
from perseid.embedded.waiting import until
from perseid.errors import RefusedError
from perseid.records import Deployment
from perseid.records.marks import Mark, mark


class Cluster:
    """The cluster in one data folder; holds no process and no open file itself."""

    def __init__(
        self,
        data: Path | None = None,
        note: Callable[[str], None] = lambda _: None,
        *,
        tied: bool = False,
    ) -> None:
        """`tied`: what `up` starts ends when this process ends in any way (for tests)."""
        self.data = locate(data)
        self.home = Home(self.data)
        self._note = note
        self._owner = mark(os.getpid()) if tied else None

    def up(
        self,
        workers: int | None = 2,
        coordinators: int | None = 2,
        master: str | None = None,
        outside: Outside | None = None,
    ) -> Deployment:
        """Starts what is missing, waits until healthy. None: as many as are running, else 2."""
        chosen = outside or Outside(master=master)
        return lifecycle.up(
            self.data, lifecycle.Wanted(workers, coordinators, chosen), self._note, self._owner
        )

    def down(self, purge: bool = False) -> list[str]:
        """Stops what `up` started; returns the names of what was running."""
        return lifecycle.down(self.data, purge=purge, note=self._note)

    @property
    def deployment(self) -> Deployment:
        return deployment(self.data)

    def processes(self) -> list[ProcessInfo]:
        return table.processes(self.data)

    def process(self, name: str) -> ProcessInfo:
        """The row of `name`; refused with the known names when there is none."""
        rows = self.processes()
        for row in rows:
            if row.name == name:
                return row
        known = ", ".join(row.name for row in rows) or "none, the cluster is down"
        raise RefusedError(f"no process {name!r} here; there are: {known}")

    def pid(self, name: str) -> int:
        """The pid of a living process; waits a moment for one that is being restarted."""
        self.process(name)
        return until(lambda: self.process(name).pid, 30.0, f"process {name} to live")

    def kill(self, name: str, supervisor: bool = False) -> int:
        """Sends SIGKILL to the process or its supervisor, whose child dies too; returns the pid.

        Returns when it is dead; by then it may run again under another pid.
        """
        pid = self._supervisor_pid(name) if supervisor else self.pid(name)
        who = mark(pid)
        send(who, signal.SIGKILL)
        wait_gone(who, 10.0)
        return pid

    def pause(self, name: str) -> list[int]:
        """Sends SIGSTOP to the process and its descendants; `resume` undoes it."""
        self.process(name)
        # Retried while it is being restarted: then there is no process to stop for a moment.
        return until(lambda: self._signal_all(name, signal.SIGSTOP), 30.0, f"{name} to live")

    def resume(self, name: str) -> list[int]:
        """Sends SIGCONT to the process and its descendants."""
        return self._signal_all(name, signal.SIGCONT)

    def wait_alive(self, name: str, other_than: int | None = None, timeout_s: float = 30.0) -> int:
        """The pid of `name` once it runs under a pid other than `other_than`."""

        def fresh() -> int | None:
            pid = self.process(name).pid
            return pid if pid != other_than else None

        return until(fresh, timeout_s, f"a new process {name}")

    def _supervisor_pid(self, name: str) -> int:
        self.process(name)
        return until(
            lambda: self.process(name).supervisor_pid, 30.0, f"the supervisor of {name} to live"
        )

    def _signal_all(self, name: str, number: int) -> list[int]:
        below = [Mark(m.pid, m.started) for m in map(mark, tagged(tag(self.data, name))) if m]
        return [who.pid for who in below if send(who, number)]
