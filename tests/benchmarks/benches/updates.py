"""`bench running-sum` and `bench map`: records a second where every input record is answered.

1. Once for each side: a small topic is answered to its end, and the answers must be exactly those
of a dictionary that is fed the topic. 2. Per run, for each side: a topic is waiting that none can
use up; the rate is taken from committed answers, and those of one account in ten must begin as they
should.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benches.bench_cluster import Place
from benches.measuring import (
    DRAIN_S,
    IDLE_S,
    STALLED_S,
    Runs,
    in_turn,
    refuse_faults,
    rows,
    run_window,
    steadily,
)
from benches.memory import PeakMemory, trees
from benches.sides import Side, running
from perseid.cli import output
from perseid.cli.scenario.bed import Names
from perseid.cli.scenario.load_generator import measure

_CHECK_RECORDS = 20_000
_JUDGED = "4"  # of the accounts those that end so: of 15 million answers all would take minutes


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. The window begins `warm_up_s` after the first output.

    `records` last to its end for a system that answers 1,000,000 a second.
    """

    records: int = 48_000_000
    warm_up_s: float = 10.0
    window_s: float = 30.0
    runs: int = 5


def run(place: Place, sides: Sequence[Side], job: str, settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a side, ours first."""
    small = filled(place, min(_CHECK_RECORDS, settings.records), seed=2)
    for side in sides:
        check = partial(_answers, place, side, job, small, settings, complete=True)
        found = steadily(side, "check", check)
        output.note(f"{side.system}: {found['messages_out']:,} answers to {small}, all right")
    shared = filled(place, settings.records, seed=1)
    runs: Runs = {side.system: [] for side in sides}
    for number in range(settings.runs):
        for side, row in in_turn(sides, number):
            measured = partial(_answers, place, side, job, shared, settings, complete=False)
            row.update(steadily(side, "speed", measured))
            output.note(f"run {number + 1} of {settings.runs}: {row}")
            runs[side.system].append(row)
    return rows(runs)


def filled(place: Place, records: int, seed: int) -> str:
    topic = f"bench-payments-{time.time_ns() // 1_000_000:x}"
    place.make_topics(topic)
    output.note(f"filling {topic} with {records:,} payments")
    place.fill(topic, records, "--payments", f"--seed={seed}")
    return topic


def _answers(
    place: Place, side: Side, job: str, source: str, settings: Settings, *, complete: bool
) -> dict[str, Any]:
    """The row of one run; PermanentError when an answer is wrong.

    Also when answers are missing, `complete` or because the system fell silent before the end.
    """
    names = Names.fresh("bench", source)
    place.make_topics(names.sink)
    with PeakMemory(trees(side.roots)) as peak:
        with running(side, names):
            whole_s = settings.warm_up_s + settings.window_s + DRAIN_S
            cut = run_window(place, names.sink, whole_s, IDLE_S if complete else STALLED_S)
    found = measure(
        "answers", place.kafka, names.sink, source=source, job=job,
        warm_up=settings.warm_up_s, seconds=settings.window_s, complete=complete or not cut,
        judged="" if complete else _JUDGED,
    )  # fmt: skip
    place.topics.delete([names.sink])
    return row(side.system, found, peak.mb)


def row(system: str, found: dict[str, Any], rss_mb: float) -> dict[str, Any]:
    """The columns of a run; no rate when the topic was used up within the warm-up. Pure."""
    refuse_faults(system, found, "answers")
    made: dict[str, Any] = {"messages_out": found["output_records"], "rss_mb": rss_mb}
    if found["seconds"]:
        made |= {"rows_per_s": round(found["answers_per_s"], 1), "window_s": found["seconds"]}
    return made


def described(job: str, settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "job": job, "accounts": 100_000, "partitions": 4}
