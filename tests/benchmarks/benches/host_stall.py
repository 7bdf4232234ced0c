"""Detects host stalls: on each core a process sleeps and reads the clock.

A Kafka client that polls without pause can keep all others from the cores for seconds
(tests/benchmarks/README.md). Measurements of such a run are invalid: they are discarded, and the
run is repeated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from benches import environment
from perseid.errors import PermanentError

TRIES_MAX = 3  # a machine with more stalls is unsuitable for benchmarks
GAP_MAX_S = 2.0  # a pause of a garbage collector, or a scheduler's slice on a busy core, is shorter
_LOOK_S = 0.05
_REPORTED_S = 0.5  # shorter gaps are not reported
_PRIORITY = -15


class HostStalled(PermanentError):
    """The host stalled in the part of a run that counts."""


class HostStallDetector:
    """`with HostStallDetector() as detector: ...`, then read `detector.stalled`."""

    def __init__(self) -> None:
        self.gaps_s: list[float] = []
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> HostStallDetector:
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-m", __name__, str(core)]
            self._processes.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
            )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            printed = process.communicate(timeout=30)[0]
            if process.returncode != -signal.SIGTERM:
                raise PermanentError(
                    f"a process that detects host stalls ended by itself, with exit code "
                    f"{process.returncode} (see above): the run is not valid"
                )
            self.gaps_s += [float(json.loads(line)["gap_s"]) for line in printed.splitlines()]

    @property
    def longest_s(self) -> float:
        return max(self.gaps_s, default=0.0)

    @property
    def stalled(self) -> bool:
        """Whether the host has stalled since the start."""
        return self.longest_s >= GAP_MAX_S

    def check(self) -> None:
        """Raises HostStalled if it has."""
        if self.stalled:
            raise HostStalled(
                f"the host stalled for {self.longest_s:.1f} s (a process that only sleeps "
                f"{_LOOK_S} s was not given its core)"
            )


Found = TypeVar("Found")


def steady(
    what: str, run: Callable[[], Found], note: Callable[[str], None],
    *, exact: bool = True, watched: bool = False,
) -> Found:  # fmt: skip
    """Returns the result of `run` if the host did not stall; else reports the stall and retries.

    PermanentError after TRIES_MAX stalls. Errors of `run` are raised, except in a stalled run of a
    system that is not `exact`: it may repeat or lose output when its sessions expire, and that run
    does not count. `watched`: `run` checks itself, only while it measures, and raises HostStalled:
    the first use of gigabytes of memory can stall a virtual machine.
    """
    for number in range(1, TRIES_MAX + 1):
        detector = HostStallDetector()
        try:
            with nullcontext() if watched else detector:
                found = run()
            detector.check()
        except HostStalled as error:
            note(f"{what}: {error}; try {number} of {TRIES_MAX} is void")
        except PermanentError as error:
            if exact or not detector.stalled:
                raise
            note(f"{what}: {error}, in a try that is void: the host stalled")
        else:
            return found
    raise PermanentError(
        f"{what}: the host stalled in all of {TRIES_MAX} tries, so there is no figure; run "
        "it again when nothing else runs here"
    )


def watch(core: int) -> None:
    """Prints every gap, without limit."""
    os.sched_setaffinity(0, {core})
    try:
        os.nice(_PRIORITY)
    except PermissionError:
        pass  # then a busy core shows gaps too, of fractions of a second
    before_s = time.monotonic()
    while True:
        time.sleep(_LOOK_S)
        now_s = time.monotonic()
        if now_s - before_s - _LOOK_S > _REPORTED_S:
            print(json.dumps({"gap_s": round(now_s - before_s - _LOOK_S, 2)}), flush=True)
        before_s = now_s


if __name__ == "__main__":
    watch(int(sys.argv[1]))
