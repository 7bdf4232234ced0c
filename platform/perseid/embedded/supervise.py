"""`python -m perseid.embedded.supervise DATA NAME`: keeps one process running.

At each death of the child: 1. everything below it is killed (a JVM or Python worker without its
driver would hold ports and files); 2. for a worker, its registration is removed, so that the
coordinator need not wait for the session to time out; 3. it is restarted, the first time at once.
When the supervisor dies its child dies with it; the keeper starts another supervisor, which begins
with steps 1 and 2 for its predecessor's child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from perseid import logs
from perseid.embedded import keeper_lock
from perseid.embedded.hint import Hint
from perseid.embedded.identity import sweep, tag, wait_gone
from perseid.embedded.paths import Home
from perseid.embedded.restarts import delay_s, early_deaths
from perseid.embedded.rotation import rotate
from perseid.embedded.signals import Signals, die_with_parent
from perseid.embedded.table import ProcessSpec, Running, read_running, read_specs, write_running
from perseid.records.marks import Mark, mark

# How often a supervisor checks that the keeper is alive.
KEEPER_CHECK_S = 1.0


class Supervisor:
    """Runs the child of one spec until it is stopped."""

    def __init__(self, home: Home, spec: ProcessSpec) -> None:
        self.home, self.spec = home, spec
        self.tag = tag(home.data, spec.name)
        self.me = mark(os.getpid())
        self.signals = Signals()
        self.hint = Hint(home, spec)
        self.restarts = 0
        self.early = 0

    def run(self) -> int:
        self._bury(self._predecessors_child())
        while not self.signals.stop:
            started_s = time.monotonic()
            child, who = self._start()
            self.hint.prepare()  # after the start: its imports must not delay the child
            code = self._watch(child)
            lived_s = time.monotonic() - started_s
            if self.signals.stop:
                self._stop(child)
                break
            self._log(f"pid {child.pid} died after {lived_s:.1f} s: {_how(code)}")
            self._bury(who)
            self.restarts += 1
            self.early = early_deaths(self.early, lived_s)
            self._pause(delay_s(self.early))
        self._record(None)
        return 0

    def _predecessors_child(self) -> Mark | None:
        left = read_running(self.home, self.spec.name)
        if left is None:
            return None
        self.restarts = left.restarts + 1
        return left.child

    def _start(self) -> tuple[subprocess.Popen[bytes], Mark | None]:
        me = os.getpid()
        with self._open_log() as log:
            child = subprocess.Popen(
                self.spec.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home.data,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(me),  # noqa: PLW1509 - there is one thread
            )
        who = mark(child.pid)
        self._record(who)
        return child, who

    def _environment(self) -> dict[str, str]:
        own = {"PERSEID_PROCESS": self.tag, "PERSEID_SUPERVISOR_PID": str(os.getpid())}
        return {**os.environ, **self.spec.environment, **own}

    def _watch(self, child: subprocess.Popen[bytes]) -> int | None:
        """Waits for the child's death or the order to stop."""
        while child.poll() is None and not self.signals.stop:
            self.signals.wait(KEEPER_CHECK_S)
            keeper_lock.revive(self.home)
            rotate(self.home.log(self.spec.name))
        return child.returncode

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        child.terminate()
        deadline_s = time.monotonic() + self.spec.stop_grace_s
        while child.poll() is None and time.monotonic() < deadline_s:
            self.signals.wait(0.2)
        sweep(self.tag)
        child.wait()

    def _bury(self, dead: Mark | None) -> None:
        sweep(self.tag)
        wait_gone(dead, 5.0)
        if dead is not None:
            self.hint.died(dead.pid, self._log)

    def _pause(self, seconds: float) -> None:
        deadline_s = time.monotonic() + seconds
        while not self.signals.stop and time.monotonic() < deadline_s:
            self.signals.wait(deadline_s - time.monotonic())

    def _record(self, child: Mark | None) -> None:
        write_running(
            self.home,
            Running(
                name=self.spec.name,
                kind=self.spec.kind,
                child=child,
                supervisor=self.me,
                restarts=self.restarts,
                started_ms=time.time_ns() // 1_000_000,
            ),
        )

    def _open_log(self) -> BinaryIO:
        return self.home.log(self.spec.name).open("ab")

    def _log(self, text: str) -> None:
        chosen = self.spec.environment.get(logs.FORMAT)
        with self._open_log() as log:
            log.write(logs.line("perseid.supervisor", self.spec.name, text, chosen).encode())


def _how(code: int | None) -> str:
    if code is None:
        return "unknown"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def main(arguments: list[str]) -> int:
    home, name = Home(Path(arguments[0])), arguments[1]
    logs.set_up(name)
    spec = next((s for s in read_specs(home) if s.name == name), None)
    if spec is None:
        sys.stderr.write(f"perseid: {name} is not in {home.run / 'cluster.json'}\n")
        return 2
    return Supervisor(home, spec).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
