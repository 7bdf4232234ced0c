"""`bench wordcount`: lines a second at saturation, latency at 500 lines a second, peak memory.

Once for each side: a topic of some of the largest epochs is counted to its end, and the verifier
must find every count right. Then per run, for each side: 1. the whole pre-filled topic is waiting
when it starts; after its first output it runs for the window, and the speed is taken from what its
sink shows, whose counts must fit the source; 2. on a fresh topic, 500 stamped lines a second; the
age of the stamps is taken at the sink, read_committed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benches.bench_cluster import Place
from benches.measuring import (
    DRAIN_S,
    STALLED_S,
    Runs,
    in_turn,
    latency,
    refuse_faults,
    rows,
    run_window,
    steadily,
)
from benches.memory import PeakMemory, trees
from benches.sides import Side, running
from perseid.cli import output
from perseid.cli.scenario.bed import Names
from perseid.cli.scenario.load_generator import judge, measure

_CHECK_LINES = 1_000_000  # some of the largest epochs or triggers
_CHECK_S = 900.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. The speed window begins `warm_up_s` after the first output.

    `lines` last to its end for a system that counts 1,600,000 a second.
    """

    lines: int = 64_000_000
    warm_up_s: float = 10.0
    window_s: float = 30.0
    latency_rate: float = 500.0
    runs: int = 5


@dataclass(frozen=True, slots=True)
class LatencyWindow:
    """See `measuring.Window`."""

    warm_up_s: float = 15.0
    window_s: float = 20.0


def run(place: Place, sides: Sequence[Side], settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a side, ours first."""
    small = _filled(place, min(_CHECK_LINES, settings.lines), seed=2)
    for side in sides:
        steadily(side, "check", partial(_checked, place, side, small))
    shared = _filled(place, settings.lines, seed=1)
    runs: Runs = {side.system: [] for side in sides}
    with tempfile.TemporaryDirectory(prefix="perseid-words-") as scratch:
        sent = Path(scratch) / "words.json"
        sent.write_text(json.dumps(measure("words", place.kafka, shared)))
        for number in range(settings.runs):
            for side, row in in_turn(sides, number):
                saturated = partial(_saturated, place, side, shared, sent, settings)
                row.update(steadily(side, "speed", saturated))
                row.update(steadily(side, "latency", partial(_latency, place, side, settings)))
                output.note(f"run {number + 1} of {settings.runs}: {row}")
                runs[side.system].append(row)
    return rows(runs)


def _filled(place: Place, lines: int, seed: int) -> str:
    topic = f"bench-lines-{time.time_ns() // 1_000_000:x}"
    place.make_topics(topic)
    output.note(f"filling {topic} with {lines:,} lines")
    place.fill(topic, lines, f"--seed={seed}")
    return topic


def _checked(place: Place, side: Side, source: str) -> None:
    """Counts a topic to its end; PermanentError unless every count is right and comes once."""
    names = Names.fresh("bench", source)
    place.make_topics(names.sink)
    with running(side, names):
        run_window(place, names.sink, _CHECK_S, STALLED_S)
    found = judge(place.kafka, source, names.sink)
    place.topics.delete([names.sink])
    refuse_faults(side.system, found, "counts")
    output.note(
        f"{side.system}: {found['output_records']:,} counts of the words of {found['records']:,} "
        "lines, all right"
    )


def _saturated(
    place: Place, side: Side, source: str, sent: Path, settings: Settings
) -> dict[str, Any]:
    names = Names.fresh("bench", source)
    place.make_topics(names.sink)
    with PeakMemory(trees(side.roots)) as peak:
        with running(side, names):
            whole_s = settings.warm_up_s + settings.window_s + DRAIN_S
            cut = run_window(place, names.sink, whole_s, STALLED_S)
    found = measure(
        "counts", place.kafka, names.sink, sent=sent, complete=not cut,
        warm_up=settings.warm_up_s, seconds=settings.window_s,
    )  # fmt: skip
    place.topics.delete([names.sink])
    return saturated_row(side.system, found, peak.mb)


def _latency(place: Place, side: Side, settings: Settings) -> dict[str, Any]:
    return latency(place, side, Names.fresh("bench"), LatencyWindow(), settings.latency_rate)


def saturated_row(system: str, found: dict[str, Any], rss_mb: float) -> dict[str, Any]:
    """The columns of a run at saturation; no rate when all was counted within the warm-up. Pure."""
    refuse_faults(system, found, "counts")
    made: dict[str, Any] = {"rss_mb": rss_mb, "messages_out": found["messages_out"]}
    if found["seconds"]:
        made |= {
            "rows_per_s": round(found["lines_per_s"], 1), "window_s": found["seconds"],
            "messages_per_line": round(found["messages_out"] / max(found["lines"], 0.1), 3),
        }  # fmt: skip
    return made


def described(settings: Settings) -> dict[str, Any]:
    window = {f"latency_{name}": value for name, value in asdict(LatencyWindow()).items()}
    words = {"words_per_line": 10, "vocabulary": 100_000, "partitions": 4}
    return {**asdict(settings), **window, **words}
