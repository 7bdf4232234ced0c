"""Memory that is left on the machine or in the container: stops a job before an OOM kill.

`memory:` bounds an operator's state as a snapshot; processes need more than that, and operators
without the key have no bound. A kernel without memory kills some process, and the job's next owner
has the same state. So each job is checked after every epoch, as with `memory:`. While memory stays
short, the job of this worker whose state grows fastest is stopped if its growth would use up the
rest within HORIZON_S; its state is kept. All other jobs warn. The next job is stopped GIVEN_BACK_S
later at the earliest, since a stopped job's memory is freed within a minute. Not covered: executors
of a Spark cluster on other hosts, and other workers on this machine.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from perseid.clocks import Clock, SystemClock
from perseid.errors import PermanentError
from perseid.records import WHOLE
from perseid.worker.epoch.memory import MIB

RESERVE_SHARE = 0.05  # of the total memory: what an epoch and the page cache need
RESERVE_MIN_BYTES, RESERVE_MAX_BYTES = 128 * MIB, 1024 * MIB
SHORT_S = 2.0  # how long memory has to be short: brief shortages are normal
PACE_S = 10.0  # interval over which the growth rate is measured
HORIZON_S = 600.0  # a job is stopped if its growth would use up the memory within this time
RESIDENT = 5  # resident bytes per byte of a snapshot, at most (tests/benchmarks/FIGURES_STATE.md)
GIVEN_BACK_S = 90.0  # processes keep a job's memory for 60 s
CGROUPS = "PERSEID_CGROUPS"  # where control groups are mounted, if not at the default place
# Limit, usage, and the reclaimable part of the usage: cgroup v2 and v1.
V2 = ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
V1 = (
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"),
)  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """In bytes: what can still be taken without swapping, and the total."""

    left: int
    total: int

    @property
    def spare(self) -> float:
        """What is left above the reserve; below 0 memory is short.

        >>> Memory(left=900 << 20, total=16 << 30).spare < 0 < Memory(900 << 20, 8 << 30).spare
        True
        """
        reserve = min(max(RESERVE_MIN_BYTES, RESERVE_SHARE * self.total), RESERVE_MAX_BYTES)
        return self.left - reserve


def look() -> Memory:
    """The memory of the machine, or of this process's control group with the least to spare.

    In Docker with its own cgroup namespace the container's group is the root of the mount.
    """
    machine = psutil.virtual_memory()
    found = [Memory(machine.available, machine.total)]
    for group, (limit, used, spare) in groups(Path(os.environ.get(CGROUPS, "/sys/fs/cgroup"))):
        if (group / limit).is_file() and (group / used).is_file():
            value = (group / limit).read_text().strip()
            if value != "max" and int(value) < machine.total:
                lines = (group / "memory.stat").read_text().splitlines()
                counted = dict(line.split() for line in lines)
                free = sum(int(counted.get(name, 0)) for name in spare)
                found.append(
                    Memory(int(value) - int((group / used).read_text()) + free, int(value))
                )
    return min(found, key=lambda memory: memory.spare)


def groups(
    mount: Path, own: Path = Path("/proc/self/cgroup")
) -> Iterator[tuple[Path, tuple[str, str, tuple[str, ...]]]]:
    """The groups that may limit this process, each with its parents, up to the mount."""
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (mount / "memory", V1) if controllers else (mount, V2)
        group = root / path.lstrip("/")
        yield group, files
        while group != root:
            group = group.parent
            yield group, files


@dataclass
class _Growth:
    """Sizes of one fragment's state at the ends of its last epochs: (seconds, bytes)."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, now_s: float, size: int) -> None:
        self.seen.append((now_s, size))
        while len(self.seen) > 2 and self.seen[1][0] <= now_s - PACE_S:
            self.seen.popleft()

    @property
    def size(self) -> int:
        """The last one."""
        return self.seen[-1][1]

    def pace(self, now_s: float) -> float:
        """Bytes per second. Falls while the job has no epochs; 0 in the first epoch of a life."""
        (began_s, before), (_, size) = self.seen[0], self.seen[-1]
        return max(0, size - before) / max(now_s - began_s, 1.0)


class MachineWatch:
    """The state sizes of all fragments of one worker; thread safe, each asks for its job.

    What a job has here, and how fast that grows, is the sum over its fragments.
    """

    def __init__(self, memory: Callable[[], Memory] = look, clock: Clock | None = None) -> None:
        self._memory = memory
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._held: dict[str, dict[str, _Growth]] = {}  # by job and fragment
        self._warned: set[tuple[str, str]] = set()
        self._short_s: float | None = None  # since when memory is short
        self._next_s = 0.0  # when the next job may be stopped

    def judge(self, job: str, epoch: int, size: int, fragment: str = WHOLE) -> tuple[str, ...]:
        """The warnings to report after `epoch`; PermanentError when `job` has to stop.

        `size`: bytes of the state of all partitions of the fragment.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            held = self._held.setdefault(job, {})
            held.setdefault(fragment, _Growth()).take(now_s, size)
            size = sum(growth.size for growth in held.values())
            try:
                memory = self._memory()
            except (OSError, ValueError) as error:
                return self._once(job, "unread", f"what memory is left cannot be read: {error}")
            if memory.spare >= 0:
                self._short_s = None
                self._warned.discard((job, "short"))
                return ()
            self._short_s = self._short_s if self._short_s is not None else now_s
            text = (
                f"the machine (or container) has {memory.left // MIB} MiB of its "
                f"{memory.total // MIB} MiB left, after epoch {epoch} of job {job}, whose state "
                f"has {size / MIB:.1f} MiB as a snapshot and up to {RESIDENT} times that in use"
            )
            if self._has_to_stop(job, memory, now_s):
                self._next_s = now_s + GIVEN_BACK_S
                pace = _pace(self._held.pop(job), now_s)
                raise PermanentError(_stop(text, epoch, pace))
            return self._once(job, "short", text)

    def forget(self, job: str, fragment: str = WHOLE) -> None:
        """Drops a fragment that no longer runs here, and the job with its last one."""
        with self._lock:
            held = self._held.get(job, {})
            held.pop(fragment, None)
            if held:
                return
            self._held.pop(job, None)
            self._warned -= {(job, "short"), (job, "unread")}

    def _has_to_stop(self, job: str, memory: Memory, now_s: float) -> bool:
        if self._short_s is None or now_s - self._short_s < SHORT_S or now_s < self._next_s:
            return False
        paces = {name: _pace(held, now_s) for name, held in self._held.items()}
        fastest = max(paces, key=lambda name: paces[name])
        return fastest == job and paces[job] * RESIDENT * HORIZON_S > memory.left

    def _once(self, job: str, what: str, text: str) -> tuple[str, ...]:
        if (job, what) in self._warned:
            return ()
        self._warned.add((job, what))
        return (f"warning: {text}",)


def _pace(held: Mapping[str, _Growth], now_s: float) -> float:
    return sum(growth.pace(now_s) for growth in held.values())


def _stop(text: str, epoch: int, pace: float) -> str:
    return (
        f"{text}: it grows by {pace / 1024:.1f} KiB/s, the fastest here, and soon the kernel would "
        f"kill a process. The job is stopped after epoch {epoch}, its state is kept. Give the "
        "worker more memory or fewer jobs, let the operators keep less, or bound them with "
        "`memory:` in job.yaml; then `perseid jobs start` it"
    )
