"""Whether the machine stood still: on each core a process that sleeps and looks at the clock.

Now and then all that waits for a core is given none for seconds, on machines that do nothing else
(tests/benchmarks/README.md). A figure of such a run says nothing of any system: there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from perseid.errors import PermanentError

GAP_MAX_S = 2.0  # a stop of a garbage collector, or a scheduler's slice on a busy core, is shorter
_LOOK_S = 0.05
_TOLD_S = 0.5  # shorter ones are not told
_PRIORITY = -15


class Standstill:
    """`with Standstill() as still: ...; still.check("what ran")` afterwards."""

    def __init__(self) -> None:
        self.gaps_s: list[float] = []
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Standstill:
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

    def check(self, what: str) -> None:
        """PermanentError when the machine stood still meanwhile."""
        if self.longest_s > GAP_MAX_S:
            raise PermanentError(
                f"{what}: the machine stood still for {self.longest_s:.1f} s (a process that only "
                f"sleeps {_LOOK_S} s was not given its core), so there is no figure; run it again "
                "when nothing else runs here"
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
