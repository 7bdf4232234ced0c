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
from perseid.cli.benches.memory import PeakMemory
from perseid.cli.benches.results import median_row, ratios
from perseid.cli.benches.sides import Side, running
from perseid.cli.trials.feed import Feed, measure
from perseid.cli.trials.stage import Names
from perseid.errors import PermanentError

_FIRST_OUTPUT_S = 120.0
_IDLE_S = 6.0  # no output for so long: the topic is used up
_DRAIN_S = 8.0  # outputs behind the window, so that its end is not cut


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. The speed window begins `warm_up_s` after the first output."""

    lines: int = 12_000_000
    warm_up_s: float = 10.0
    window_s: float = 50.0
    latency_rate: float = 500.0
    latency_warm_up_s: float = 15.0
    latency_window_s: float = 20.0
    runs: int = 3


def run(place: Place, sides: Sequence[Side], settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a side, ours first."""
    shared = f"bench-lines-{time.time_ns() // 1_000_000:x}"
    place.make_topics(shared)
    output.note(f"filling {shared} with {settings.lines:,} lines")
    place.fill(shared, settings.lines, "--seed=1")
    runs: dict[str, list[dict[str, Any]]] = {side.system: [] for side in sides}
    for number in range(settings.runs):
        # The order changes with each run, so that neither side always has the warmer machine.
        for side in sides if number % 2 else sides[::-1]:
            row = {"system": side.system, "version": side.version, "guarantee": side.guarantee}
            row |= _saturated(place, side, Names.fresh("bench", shared), settings)
            row |= _latency(place, side, Names.fresh("bench"), settings)
            output.note(f"run {number + 1} of {settings.runs}: {row}")
            runs[side.system].append(row)
    return rows(runs)


def rows(runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Median rows with ratios: the first system's figure over that system's, within a run. Pure."""
    ours = next(iter(runs.values()))
    found = []
    for theirs in runs.values():
        row = median_row(theirs)
        for column, name in (("rows_per_s", "ratio"), ("p50_ms", "p50_ratio")):
            if all(column in run for run in (*ours, *theirs)):
                row[name] = ratios([r[column] for r in ours], [r[column] for r in theirs])
        found.append(row)
    return found


def _saturated(place: Place, side: Side, names: Names, settings: Settings) -> dict[str, Any]:
    place.make_topics(names.sink)
    with PeakMemory(side.roots) as peak:
        with running(side, names):
            _run_window(place, names.sink, settings.warm_up_s + settings.window_s + _DRAIN_S)
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


def _run_window(place: Place, sink: str, seconds: float) -> None:
    """Returns `seconds` after the first output, or when the output has ended."""
    started_s = changed_s = time.monotonic()
    first_s: float | None = None
    last = 0
    while True:
        time.sleep(0.25)
        now_s = time.monotonic()
        end = place.records(sink)
        if end is None:
            changed_s = now_s  # not known to be idle
        elif end != last:
            last, changed_s = end, now_s
            first_s = now_s if first_s is None else first_s
        if first_s is None and now_s - started_s > _FIRST_OUTPUT_S:
            raise PermanentError(f"no output within {_FIRST_OUTPUT_S:.0f} s; see the logs")
        if first_s is not None and (now_s - first_s > seconds or now_s - changed_s > _IDLE_S):
            return


def _latency(place: Place, side: Side, names: Names, settings: Settings) -> dict[str, Any]:
    place.make_topics(names.source, names.sink)
    with (
        running(side, names),
        Feed(place.kafka, names.source, records=2**31, seed=2, extra=("--stamped",)) as feed,
    ):
        feed.await_seed()
        feed.order(settings.latency_rate, 2**31)
        found = measure(
            "latency",
            place.kafka,
            names.sink,
            warm_up=settings.latency_warm_up_s,
            seconds=settings.latency_window_s,
        )
    place.topics.delete([names.source, names.sink])
    if not found["samples"]:
        raise PermanentError(f"{side.system} put out no stamped word")
    return {key: found[key] for key in ("p50_ms", "p99_ms", "samples")}


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "words_per_line": 10, "vocabulary": 100_000, "partitions": 4}
