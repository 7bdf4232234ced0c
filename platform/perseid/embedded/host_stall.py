"""Whether the machine stood still: on each core a process that sleeps and looks at the clock.

A Kafka client that polls without pause can keep all others from the cores for seconds
(tests/benchmarks/README.md). A figure of such a run says nothing of any system: it is not counted,
and the run is made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from perseid.errors import PermanentError

TRIES_MAX = 3  # a machine that stands still more often is no place for a benchmark
GAP_MAX_S = 2.0  # a stop of a garbage collector, or a scheduler's slice on a busy core, is shorter
_LOOK_S = 0.05
_TOLD_S = 0.5  # shorter ones are not told
_PRIORITY = -15


class HostStalled(PermanentError):
    """The machine stood still in the part of a run that counts."""


class HostStallDetector:
    """`with HostStallDetector() as still: ...; still.stood` afterwards."""

    def __init__(self) -> None:
        self.gaps_s: list[float] = []
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> HostStallDetector:
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-m", __name__, str(core)]
            self._processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            told = process.communicate(timeout=30)[0]
            self.gaps_s += [float(json.loads(line)["gap_s"]) for line in told.splitlines()]

    @property
    def longest_s(self) -> float:
        return max(self.gaps_s, default=0.0)

    @property
    def stalled(self) -> bool:
        """Whether the machine stood still meanwhile."""
        return self.longest_s >= GAP_MAX_S

    def check(self) -> None:
        """HostStalled when it did."""
        if self.stalled:
            raise HostStalled(
                f"the machine stood still for {self.longest_s:.1f} s (a process that only sleeps "
                f"{_LOOK_S} s was not given its core)"
            )


Found = TypeVar("Found")


def steady(
    what: str, run: Callable[[], Found], say: Callable[[str], None],
    *, exact: bool = True, watched: bool = False,
) -> Found:  # fmt: skip
    """What `run` gives when the machine did not stand still; else that is said and it runs again.

    PermanentError when the machine stood still TRIES_MAX times. What `run` raises is raised, with
    one exception: a system that is not `exact` may repeat or lose something when it is torn out of
    its sessions, so that is no fault of a run that does not count anyway. `watched`: it watches
    itself, only while it measures, and raises HostStalled: to take gigabytes of memory for the
    first time can hold a virtual machine up.
    """
    for number in range(1, TRIES_MAX + 1):
        detector = HostStallDetector()
        try:
            with nullcontext() if watched else detector:
                found = run()
            detector.check()
        except HostStalled as error:
            say(f"{what}: {error}; try {number} of {TRIES_MAX} is void")
        except PermanentError as error:
            if exact or not detector.stalled:
                raise
            say(f"{what}: {error}, in a try that is void: the machine stood still")
        else:
            return found
    raise PermanentError(
        f"{what}: the machine stood still in all of {TRIES_MAX} tries, so there is no figure; run "
        "it again when nothing else runs here"
    )


def watch(core: int) -> None:
    """Prints every gap, for ever."""
    os.sched_setaffinity(0, {core})
    try:
        os.nice(_PRIORITY)
    except PermissionError:
        pass  # then a busy core shows gaps too, of fractions of a second
    before_s = time.monotonic()
    while True:
        time.sleep(_LOOK_S)
        now_s = time.monotonic()
        if now_s - before_s - _LOOK_S > _TOLD_S:
            print(json.dumps({"gap_s": round(now_s - before_s - _LOOK_S, 2)}), flush=True)
        before_s = now_s


if __name__ == "__main__":
    watch(int(sys.argv[1]))
