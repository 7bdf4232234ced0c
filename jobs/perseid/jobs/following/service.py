"""The process that follows a repository: its schedule, and the child process that applies a job."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from perseid.clocks import Clock, SystemClock
from perseid.errors import PerseidError, RetryableError
from perseid.jobs.following import deciding
from perseid.jobs.following.follower import Follower
from perseid.jobs.following.one_job import APPLY_S, Order, Outcome
from perseid.jobs.following.remote import Remote
from perseid.jobs.following.settings import LOGIN, Settings
from perseid.records import Deployment
from perseid.records.repository import RepoRecord
from perseid.registry.facade import Registry
from perseid.registry.repository import RepoNodes

_log = logging.getLogger("perseid.follow")

STANDBY_LOOK_S = 2.0  # unless a watch reports the follower's end earlier


def follow(deployment: Deployment, settings: Settings, *, once: bool = False) -> RepoRecord:
    """Follows until the process is ended; with `once` looks once and returns the result.

    Raises RetryableError when ZooKeeper cannot be reached at the start, or with `once` when another
    process follows.
    """
    with closing(Registry.connect(deployment, timeout_s=30.0)) as registry:
        with TemporaryDirectory(prefix="perseid-follow-") as work:
            clock = SystemClock()
            follower = Follower(
                settings, registry, Remote(settings, Path(work) / "copy.git"),
                lambda order: in_child(deployment, order), clock,
            )  # fmt: skip
            loop = Loop(RepoNodes(registry), follower, settings, clock)
            if once:
                return loop.once()
            loop.run()


class Loop:
    """One look after the other, while this process is the follower."""

    def __init__(
        self, nodes: RepoNodes, follower: Follower, settings: Settings, clock: Clock
    ) -> None:
        self._nodes, self._follower, self._clock = nodes, follower, clock
        self._interval_s = settings.interval_s
        self._changed = threading.Event()
        self._stands_by = False
        self._looked_s, self._answered = float("-inf"), 0
        self._tries = 0  # consecutive looks with transient failures
        self._who = f"pid {os.getpid()} on {os.uname().nodename}"

    def once(self) -> RepoRecord:
        if not self._nodes.hold(self._who):
            raise RetryableError(
                f"{self._nodes.follower() or 'another process'} follows the repository; "
                "`perseid jobs look` asks it for a look"
            )
        return self._follower.look()

    def run(self) -> NoReturn:
        self._nodes.watch(self._changed.set)
        while True:
            self._wait(self.step())

    def step(self) -> float:
        """Looks when it is time; returns the seconds until the next step without an event."""
        try:
            if not self._nodes.hold(self._who):
                if not self._stands_by:
                    _log.info("stands by: %s follows", self._nodes.follower())
                self._stands_by = True
                return STANDBY_LOOK_S
            self._stands_by = False
            number, _ = self._nodes.asked()
            now_s = self._clock.monotonic_s()
            pause = deciding.pause_s(
                self._interval_s, now_s - self._looked_s, asked=number != self._answered,
                tries=self._tries,
            )  # fmt: skip
            if pause > 0:
                return pause
            self._looked_s, self._answered = now_s, number
            self._tries += 1  # one that raises is among them
            if not deciding.may_pass(self._follower.look()):
                self._tries = 0
            return 0.0
        except PerseidError as error:
            _log.warning("%s: %s", type(error).__name__, error)
            return STANDBY_LOOK_S

    def _wait(self, seconds: float) -> None:
        self._changed.wait(seconds)
        self._changed.clear()


def in_child(deployment: Deployment, order: Order, timeout_s: float = APPLY_S) -> Outcome:
    """Applies one job in a process of its own, which ends with this one."""
    with TemporaryDirectory(prefix="perseid-apply-one-") as work:
        answer = Path(work) / "outcome.json"
        asked = {
            "order": asdict(order), "deployment": deployment.model_dump(), "answer": str(answer),
        }  # fmt: skip
        child = subprocess.Popen(
            [sys.executable, "-m", "perseid.jobs.following.one_job"], stdin=subprocess.PIPE,
            stdout=2, start_new_session=True, text=True,
            env=_environment(work),
        )  # fmt: skip
        try:
            child.communicate(json.dumps(asked), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Outcome(
                kind="TookTooLong", broken=True,
                text=f"its check did not end within {timeout_s:g} s: does a module of the job do "
                "work when it is imported? Change it and push again",
            )  # fmt: skip
        finally:
            if child.poll() is None:  # its group too, whose id is reserved until the wait
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if answer.is_file():
            return Outcome(**json.loads(answer.read_text()))
        return _died(child.returncode)


def _environment(work: str) -> dict[str, str]:
    """Of a child: its files are deleted with `work`, and the job does not get the login."""
    return {k: v for k, v in os.environ.items() if k != LOGIN} | {"TMPDIR": work}


def _died(code: int) -> Outcome:
    """A signal came from outside, so another try may succeed; an exit code came from the job."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Outcome(
        kind="Died", broken=code >= 0,
        text=f"the process that checks it ended with {how} before it was done; the follower's log "
        "has its output",
    )  # fmt: skip
