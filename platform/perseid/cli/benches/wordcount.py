"""`bench wordcount`: lines a second at saturation, latency at 500 lines a second, peak memory.

Per run, for each side: 1. the whole pre-filled topic is waiting when it starts; after its first
output it runs for the window, and the speed is taken from what its sink shows; 2. on a fresh topic,
500 stamped lines a second; the age of the stamps is taken at the sink, read_committed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from perseid.cli import output
from perseid.cli.benches.bench_cluster import Place
from perseid.cli.benches.measuring import DRAIN_S, Runs, in_turn, latency, rows, run_window
from perseid.cli.benches.memory import PeakMemory
from perseid.cli.benches.sides import Side, running
from perseid.cli.trials.feed import measure
from perseid.cli.trials.stage import Names
from perseid.errors import PermanentError


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. The speed window begins `warm_up_s` after the first output."""

    lines: int = 12_000_000
    warm_up_s: float = 10.0
    window_s: float = 50.0
    latency_rate: float = 500.0
    runs: int = 3


@dataclass(frozen=True, slots=True)
class LatencyWindow:
    """See `measuring.Window`."""

    warm_up_s: float = 15.0
    window_s: float = 20.0


def run(place: Place, sides: Sequence[Side], settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a side, ours first."""
    shared = f"bench-lines-{time.time_ns() // 1_000_000:x}"
    place.make_topics(shared)
    output.note(f"filling {shared} with {settings.lines:,} lines")
    place.fill(shared, settings.lines, "--seed=1")
    runs: Runs = {side.system: [] for side in sides}
    for number in range(settings.runs):
        for side, row in in_turn(sides, number):
            row.update(_saturated(place, side, Names.fresh("bench", shared), settings))
            fresh = Names.fresh("bench")
            row.update(latency(place, side, fresh, LatencyWindow(), settings.latency_rate))
            output.note(f"run {number + 1} of {settings.runs}: {row}")
            runs[side.system].append(row)
    return rows(runs)


def _saturated(place: Place, side: Side, names: Names, settings: Settings) -> dict[str, Any]:
    place.make_topics(names.sink)
    with PeakMemory(side.roots) as peak:
        with running(side, names):
            run_window(place, names.sink, settings.warm_up_s + settings.window_s + DRAIN_S)
    found = measure(
        "speed", place.kafka, names.sink, warm_up=settings.warm_up_s, seconds=settings.window_s
    )
    place.topics.delete([names.sink])
    if found["repeated"]:
        raise PermanentError(f"{side.system} repeated {found['repeated']} counts without a crash")
    return {
        "rows_per_s": round(found["lines_per_s"], 1),
        "window_s": found["seconds"],
        "messages_out": found["messages_out"],
        "rss_mb": peak.mb,
    }


def described(settings: Settings) -> dict[str, Any]:
    window = {f"latency_{name}": value for name, value in asdict(LatencyWindow()).items()}
    words = {"words_per_line": 10, "vocabulary": 100_000, "partitions": 4}
    return {**asdict(settings), **window, **words}
