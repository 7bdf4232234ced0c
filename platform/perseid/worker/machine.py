"""Memory that the machine, or the container, has left: a clear stop in place of an OOM kill.

`memory:` bounds what an operator's state has in a snapshot; processes take more than that, and
operators without the key have no bound at all. A kernel that runs out of memory kills a process of
its choice, and whoever takes the job over has the same state. So each job is judged behind every
epoch, as with `memory:`: when little is left, the job whose state is the largest of those that
have grown just now is stopped, and its state is kept. Jobs that do not grow only warn.

What a Spark cluster's executors have on other hosts is not seen from here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from perseid.clocks import Clock, SystemClock
from perseid.errors import PermanentError
from perseid.worker.memory import MIB

RESERVE_SHARE = 0.05  # of the memory that there is: what an epoch and the page cache need
RESERVE_MIN_BYTES = 128 * MIB
RECENT_S = 10.0  # a job without input has no epochs, so it takes no more
CGROUPS = "PERSEID_CGROUPS"  # where control groups are mounted, if not at the usual place
# Limit, use, and what of the use the kernel would give up: cgroup v2, then v1.
_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
     "total_inactive_file"),
)  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """In bytes: what can still be taken without swapping, and all that there is."""

    left: int
    total: int

    @property
    def short(self) -> bool:
        """Whether a growing state has to stop.

        >>> Memory(left=900 << 20, total=16 << 30).short, Memory(900 << 20, 24 << 30).short
        (False, True)
        """
        return self.left < max(RESERVE_MIN_BYTES, RESERVE_SHARE * self.total)


def look() -> Memory:
    """Of the machine, or of the container where that has less left.

    A container sees its own control group as the root of the mount (Docker's namespaces).
    """
    cgroups = Path(os.environ.get(CGROUPS, "/sys/fs/cgroup"))
    machine = psutil.virtual_memory()
    found = [Memory(machine.available, machine.total)]
    for limit, used, stat, spare in _FILES:
        if (cgroups / limit).is_file() and (cgroups / used).is_file():
            said = (cgroups / limit).read_text().strip()
            if said != "max" and int(said) < machine.total:
                counted = dict(line.split() for line in (cgroups / stat).read_text().splitlines())
                free = int(said) - int((cgroups / used).read_text()) + int(counted.get(spare, 0))
                found.append(Memory(free, int(said)))
    return min(found, key=lambda memory: memory.left)


@dataclass(frozen=True)
class _Held:
    size: int
    grew: bool
    at_s: float


class MachineWatch:
    """What all jobs of one worker hold; their threads ask it, each for its own job."""

    def __init__(
        self, memory: Callable[[], Memory] = look, clock: Clock | None = None
    ) -> None:
        self._memory = memory
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._warned: set[str] = set()

    def judge(
        self, job: str, epoch: int, reports: Iterable[Mapping[str, Any]]
    ) -> tuple[str, ...]:
        """What people should be told behind `epoch`; PermanentError when `job` has to stop."""
        size = sum(int(report.get("state_bytes", 0)) for report in reports)
        with self._lock:
            before, now_s = self._held.get(job), self._clock.monotonic_s()
            self._held[job] = _Held(size, before is not None and size > before.size, now_s)
            try:
                memory = self._memory()
            except (OSError, ValueError) as error:
                return self._once(job, f"what memory is left cannot be read: {error}")
            if not memory.short:
                self._warned.discard(job)
                return ()
            told = (
                f"the machine (or container) has {memory.left // MIB} MiB of its "
                f"{memory.total // MIB} MiB left, behind epoch {epoch} of job {job}, whose state "
                f"has {size / MIB:.1f} MiB as a snapshot and several times that in use"
            )
            growing = {
                name: held.size
                for name, held in self._held.items()
                if held.grew and now_s - held.at_s < RECENT_S
            }
            if growing and max(growing, key=lambda name: growing[name]) == job:
                del self._held[job]
                raise PermanentError(self._stop(told, epoch))
            return self._once(job, told)

    def _once(self, job: str, told: str) -> tuple[str, ...]:
        if job in self._warned:
            return ()
        self._warned.add(job)
        return (f"warning: {told}",)

    def forget(self, job: str) -> None:
        """A job that no longer runs here holds nothing."""
        with self._lock:
            self._held.pop(job, None)
            self._warned.discard(job)

    @staticmethod
    def _stop(told: str, epoch: int) -> str:
        return (
            f"{told}: it is the largest that still grows, and another epoch might have the kernel "
            f"kill a process. The job is stopped behind epoch {epoch}, its state is kept. Give the "
            "worker more memory or fewer jobs, let the operators keep less, or bound them with "
            "`memory:` in job.yaml; then `perseid jobs start` it"
        )
