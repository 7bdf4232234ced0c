"""The scale part of `bench planners`: what the largest cases that are asked for take, on one core.

Each case is decided in a fresh process, `python -m benches.planner_scale NAME SEED`,
which keeps to one core and prints what the decision took: its own processor time, and how far
the resident set rose above what it was with the case at hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benches import environment
from perseid.errors import RefusedError

if TYPE_CHECKING:
    from perseid.coordinator.planners.random_topology import Structure

Row = dict[str, Any]
Decision = Callable[[], object]

CASES = 3  # seeds of a row; the worst of them is reported
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Limit:
    """What the row is held to. `memory_mb` None: nothing is asked."""

    system: str
    setting: str
    case: Callable[[int], Decision]
    seconds: float
    memory_mb: float | None = None


def _structure_aware(structure: Structure) -> Callable[[int], Decision]:
    def case(seed: int) -> Decision:
        from perseid.coordinator.planners.random_topology import Drawn, draw
        from perseid.coordinator.planners.structure_aware import structure_aware

        drawn = Drawn((40, 40), (251, 251), structure, skew=0.5)
        topology = draw(Random(seed), drawn)
        return lambda: structure_aware(topology, 1000)

    return case


def _best_density(queries: int, partitions: int) -> Callable[[int], Decision]:
    def case(seed: int) -> Decision:
        from benches.random_queries import DrawnQueries, draw_queries
        from perseid.coordinator.planners.best_density import best_density

        free = (0.3, 0.5, 0.8)[seed % 3]
        drawn = DrawnQueries(queries=queries, partitions=partitions, share_max=6, free=free)
        problem = draw_queries(Random(seed), drawn)
        return lambda: best_density(problem)

    return case


LIMITS = {
    "structured": Limit(
        "structure-aware", "10,040 partitions, structured, budget 1,000",
        _structure_aware("structured"), 10.0,
    ),
    "mixed": Limit(
        "structure-aware", "10,040 partitions, mixed, budget 1,000",
        _structure_aware("mixed"), 10.0,
    ),
    "full": Limit(
        "structure-aware", "10,040 partitions, full, budget 1,000",
        _structure_aware("full"), 10.0,
    ),
    "60-queries": Limit(
        "best-density", "60 queries, 600 partitions, all pairs", _best_density(60, 600), 2.0
    ),
    "60-queries-10000": Limit(
        "best-density", "60 queries, 10,000 partitions, all pairs", _best_density(60, 10_000), 2.0
    ),
    "1000-queries": Limit(
        "best-density", "1,000 queries, 10,000 partitions, bounded seeds",
        _best_density(1000, 10_000), 2.0, 500.0,
    ),
}  # fmt: skip


def rows(seed: int) -> Iterator[Row]:
    """A row a limit: the worst of some seeds."""
    for name, limit in LIMITS.items():
        took = [_in_child(name, seed + number) for number in range(CASES)]
        yield {
            "figure": "scale", "setting": limit.setting, "system": limit.system, "x": 1.0,
            "seconds": max(one["seconds"] for one in took), "limit_s": limit.seconds,
            "memory_mb": max(one["memory_mb"] for one in took), "limit_mb": limit.memory_mb,
            "cases": len(took),
        }  # fmt: skip


def _in_child(name: str, seed: int) -> dict[str, float]:
    command = [sys.executable, "-m", __name__, name, str(seed)]
    ran = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, env=environment() | ONE_THREAD
    )
    if ran.returncode != 0:
        raise RefusedError(f"planners: the scale case {name} of seed {seed} failed, see above")
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def measured(decision: Decision) -> dict[str, float]:
    """Seconds of this process's own, and MB above the resident set at the begin.

    `ru_maxrss` would not do: a child begins with its parent's, and it knows no begin.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before, started_s = _status_kib("VmRSS"), time.process_time()
    decision()
    seconds, peak = time.process_time() - started_s, _status_kib("VmHWM")
    return {
        "seconds": round(seconds, 2),
        "memory_mb": round(max(peak - before, 0) * 1024 / 1e6, 1),
    }


def _status_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise RefusedError(f"/proc/self/status has no {field}: the scale part needs Linux")


def main(name: str, seed: int) -> None:
    """One case, its figures as JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    json.dump(measured(LIMITS[name].case(seed)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
