"""How fast the simulation is, on one core: `python -m benches.simulation_speed SEEDS`.

Prints rows as JSON; `perseid bench simulation` shows them. A seed that fails ends it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from perseid.testing.simulation.engine import Defect, Simulation
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scenario import run as play

Row = dict[str, Any]

PROCESSES, SLEEPS = 10, 30_000
FIRST_SEED = 1000
NORMAL = Shape()  # 3 workers, 8 operator partitions, 2 sources, 20 virtual seconds
IN_TABLE = Shape(in_table=True)  # the same with the production `Table` for `job.Sums`
LARGE = Shape(workers=20, hosts=10, totals=150, relays=50, input_s=60.0)


def measure(seeds: int) -> list[Row]:
    """Events of an empty protocol, then seeds as drawn, normal ones twice, and a large one."""
    return [
        _empty(),
        _seeds("as drawn", None, seeds),
        _seeds("normal", NORMAL, seeds),
        _seeds("normal, state in a Table", IN_TABLE, seeds),
        _seeds("20 workers, 200 partitions, 60 s", LARGE, 1),
    ]


def _empty() -> Row:
    """Processes that do nothing but sleep: what the heap and the turns cost."""
    with Simulation(1) as simulation:
        group = simulation.group("g")

        def work() -> None:
            for _ in range(SLEEPS):
                simulation.sleep(1.0)

        for number in range(PROCESSES):
            simulation.spawn(group, f"p{number}", work)
        seconds = _timed(lambda: simulation.run(SLEEPS + 1.0))
        return _row("empty protocol", "events/s", simulation.events / seconds, seconds)


def _seeds(setting: str, shape: Shape | None, count: int) -> Row:
    errors: list[str] = []

    def work() -> None:
        errors.extend(play(seed, shape).error for seed in range(FIRST_SEED, FIRST_SEED + count))

    play(FIRST_SEED - 1, shape and NORMAL)  # imports and caches
    seconds = _timed(work)
    if any(errors):
        raise Defect(max(errors))
    return _row(setting, "seeds/s", count / seconds, seconds)


def _row(setting: str, system: str, value: float, seconds: float) -> Row:
    return {"figure": "speed", "setting": setting, "system": system, "value": round(value, 2),
            "seconds": round(seconds, 1)}  # fmt: skip


def _timed(work: Callable[[], object]) -> float:
    """Seconds of this process's own: the core may be shared."""
    started_s = time.process_time()
    work()
    return time.process_time() - started_s


if __name__ == "__main__":
    json.dump(measure(int(sys.argv[1])), sys.stdout)
