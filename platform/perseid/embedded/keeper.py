"""`python -m perseid.embedded.keeper DATA`: keeps one supervisor running for every wanted process.

The keeper forks into the background and holds the keeper's lock. It compares `run/cluster.json`
with the live supervisors (its own and those of a dead keeper, which it adopts) when a child dies,
on SIGHUP (the file has changed), and every second. On SIGTERM, or when the process to which the
cluster is tied is gone, it stops the supervisors group by group, in stop order, and exits. When its
folder was removed it kills them: there is nothing to stop in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from perseid import logs
from perseid.embedded import keeper_lock
from perseid.embedded.identity import send, wait_gone
from perseid.embedded.paths import Home
from perseid.embedded.rotation import rotate
from perseid.embedded.signals import Signals
from perseid.embedded.table import (
    ProcessSpec,
    Running,
    is_orphan,
    read_running,
    read_specs,
    remove_running,
    write_running,
    write_specs,
)
from perseid.records.marks import Mark, alive, mark

# An adopted supervisor is not a child, so its death is detected by polling.
LOOK_S = 0.2
STOP_MARGIN_S = 5.0


class Keeper:
    """The reconciliation loop."""

    def __init__(self, home: Home, lock: int) -> None:
        self.home = home
        self.lock = lock
        self.signals = Signals()
        self.supervisors: dict[str, Mark] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.specs: dict[str, ProcessSpec] = {}

    def run(self) -> None:
        self._adopt()
        while not self.signals.stop:
            if not keeper_lock.is_held(self.home, self.lock):
                self._abandon()
                return
            if is_orphan(self.home):
                write_specs(self.home, [])
                break
            try:
                self._reconcile()
            except FileNotFoundError:  # the folder is being removed right now, or a file is lost
                if keeper_lock.is_held(self.home, self.lock):
                    raise
                continue
            self.signals.wait(LOOK_S)
        self._stop(list(self.specs.values()))
        remove_running(self.home, "keeper")

    def _abandon(self) -> None:
        """Ends all processes: the folder was removed, and may now belong to another cluster.

        Without this a later `up` in the same place would find our processes on its ports.
        """
        for who in self.supervisors.values():
            send(who, signal.SIGKILL)  # their children die with them (die_with_parent)

    def _adopt(self) -> None:
        """Takes over the living supervisors of a dead keeper."""
        write_running(self.home, _own_record())
        for spec in read_specs(self.home):
            running = read_running(self.home, spec.name)
            if running is not None and running.supervisor and alive(running.supervisor):
                self.supervisors[spec.name] = running.supervisor
                self.specs[spec.name] = spec

    def _reconcile(self) -> None:
        for child in self.children.values():
            child.poll()  # reaps, so that a dead supervisor is not a zombie for long
        rotate(self.home.log("keeper"))
        wanted = {spec.name: spec for spec in read_specs(self.home)}
        self._stop([spec for name, spec in self.specs.items() if wanted.get(name) != spec])
        self.specs = wanted
        for name in wanted:
            if not alive(self.supervisors.get(name)):
                self._start(name)

    def _start(self, name: str) -> None:
        with self.home.log(name).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "perseid.embedded.supervise", str(self.home.data), name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home.data,
                start_new_session=True,
            )
        who = mark(child.pid)
        self.children[name] = child
        if who is not None:
            self.supervisors[name] = who

    def _stop(self, specs: list[ProcessSpec]) -> None:
        """Stops supervisors, lowest stop order first, and waits for each group."""
        for order in sorted({spec.stop_order for spec in specs}):
            group = [spec for spec in specs if spec.stop_order == order]
            for spec in group:
                send(self.supervisors.get(spec.name), signal.SIGTERM)
            for spec in group:
                who = self.supervisors.pop(spec.name, None)
                child = self.children.pop(spec.name, None)
                _wait(who, child, spec.stop_grace_s + STOP_MARGIN_S)
                remove_running(self.home, spec.name)


def _wait(who: Mark | None, child: subprocess.Popen[bytes] | None, timeout_s: float) -> None:
    if not wait_gone(who, timeout_s):
        send(who, signal.SIGKILL)  # its child dies with it (die_with_parent)
        wait_gone(who, STOP_MARGIN_S)
    if child is not None:
        child.wait()


def _own_record() -> Running:
    me = mark(os.getpid())
    return Running("keeper", "keeper", me, None, started_ms=time.time_ns() // 1_000_000)


def main(arguments: list[str]) -> int:
    home = Home(Path(arguments[0]))
    if os.fork() != 0:
        return 0  # the starting process need not reap the keeper
    os.setsid()
    lock = keeper_lock.take(home)
    if lock is None:
        return 0
    log = os.open(home.log("keeper"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logs.set_up("keeper")
    Keeper(home, lock).run()
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
