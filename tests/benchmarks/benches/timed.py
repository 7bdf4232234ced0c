"""The second part of `bench checkpoint`: sizes of checkpoints at chosen moments and at fixed ones.

The shipped TMI job (k-means over windows), with windows of 15 s and a checkpoint each 10 s, once
with `sizeTimed: true` and once with false, under the same steady input. What it puts out of every
window that has ended is compared with what was sent.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer

from benches.bench_cluster import PARTITIONS, Place
from benches.host_stall import steady
from benches.keyed import engines
from benches.reading import read_topic
from benches.results import median_row, ratios
from benches.timeline import Timeline, progress_of
from perseid.cli import output
from perseid.cli.scenario.bed import Names, ScenarioBed, edited
from perseid.errors import PermanentError
from perseid.jobs.repository.job_folders import example

_CELLS = 100
_SETTLE_S = 10.0  # after the last record, for the watermark to pass its window
_STEP_S = 0.1

Windows = Counter[tuple[str, int]]  # points by cell and begin of the window in ms


@dataclass(frozen=True, slots=True)
class Settings:
    """`warm_up_s`: until there is a profile; its checkpoints are left out on both sides.

    `window_s`: three times what windows and periods have in common, or the ratio would depend on
    where in a window it begins.
    """

    window_of_points_s: int = 15
    period_s: int = 10
    rate: int = 5_000
    warm_up_s: float = 60.0
    window_s: float = 90.0
    runs: int = 5


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Two rows: timed by size, and at fixed moments."""
    runs: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    with engines(place) as bed:
        for number in range(settings.runs):
            for timed in (True, False) if number % 2 else (False, True):
                row = {"system": "perseid", "setting": "TMI", "checkpoints": _named(timed)}
                side = partial(_side, place, bed, timed, settings)
                row |= steady(f"TMI {_named(timed)}", side, output.note)
                output.note(f"run {number + 1} of {settings.runs}: {row}")
                runs[timed].append(row)
    return [compared(rows, runs[False]) for rows in runs.values()]


def compared(rows: list[dict[str, Any]], fixed: list[dict[str, Any]]) -> dict[str, Any]:
    """The median row with its bytes and seconds over those at fixed times. Pure."""
    found = median_row(rows)
    for column, name in (("checkpoint_bytes", "ratio"), ("checkpoint_s", "time_ratio")):
        found[name] = ratios([row[column] for row in rows], [row[column] for row in fixed])
    return found


def _named(timed: bool) -> str:
    return "at small state" if timed else "at fixed times"


def _side(place: Place, bed: ScenarioBed, timed: bool, settings: Settings) -> dict[str, Any]:
    names = Names.fresh("bench")
    place.make_topics(names.source, names.sink)
    with tempfile.TemporaryDirectory(prefix="perseid-tmi-") as scratch:
        folder = edited(example("tmi"), Path(scratch) / names.job, (
            ("name: tmi\n", f"name: {names.job}\n"),
            ("topic: phones\n", f"topic: {names.source}\n"),
            ("topic: phones-modes,", f"topic: {names.sink},"),
            ('watermark: "5s"', 'watermark: "2s"'),
            ('window: "10m"', f'window: "{settings.window_of_points_s}s"'),
            ('period: "1m", sizeTimed: true',
             f'period: "{settings.period_s}s", sizeTimed: {str(timed).lower()}'),
        ))  # fmt: skip
        bed.apply(names, folder)
        start_ms = time.time_ns() // 1_000_000 + round(settings.warm_up_s * 1000)
        sent = _fed(place, names.source, settings)
        end_ms = time.time_ns() // 1_000_000
        time.sleep(_SETTLE_S)
        bed.stop(names)
    timeline = progress_of(place, names.job, PARTITIONS).within(start_ms, end_ms)
    judge(sent, _clustered(place, names.sink))
    bed.end(names)
    place.topics.delete([names.source, names.sink])
    return sizes(timeline)


def sizes(timeline: Timeline) -> dict[str, Any]:
    """Columns of the checkpoints that were made. Pure."""
    if not timeline.checkpoints:
        raise PermanentError("no checkpoint in the window; a longer one (--seconds)?")
    return {
        "checkpoints_taken": len(timeline.checkpoints),
        "checkpoint_bytes": round(statistics.fmean(c.bytes for c in timeline.checkpoints)),
        "checkpoint_s": round(statistics.fmean(c.seconds for c in timeline.checkpoints), 4),
        "state_bytes": max(e.state_bytes for e in timeline.epochs),
    }


def judge(sent: Windows, clustered: Windows) -> None:
    """PermanentError unless every window that was sent has the points that were sent to it.

    The last windows may not have ended, in any cell; what lies before the newest sent one has.
    """
    if not clustered:
        raise PermanentError("no window was clustered")
    newest = max(begin for _, begin in clustered)
    due = {key: points for key, points in sent.items() if key[1] <= newest}
    wrong = [key for key in due.keys() | clustered.keys() if due.get(key) != clustered.get(key)]
    if wrong:
        key = wrong[0]
        raise PermanentError(
            f"{len(wrong)} of {len(due)} windows have another number of points than were sent, "
            f"such as {key}: {clustered.get(key)} instead of {due.get(key)}"
        )


def _fed(place: Place, topic: str, settings: Settings) -> Windows:
    """Sends at a steady rate through warm-up and window; what was sent."""
    producer = Producer({
        "bootstrap.servers": place.kafka, "enable.idempotence": True, "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000, "partitioner": "murmur2_random",
    })  # fmt: skip
    sent: Windows = Counter()
    begin_s, number = time.monotonic(), 0
    while (passed_s := time.monotonic() - begin_s) < settings.warm_up_s + settings.window_s:
        now_ms = time.time_ns() // 1_000_000
        start_ms = now_ms - now_ms % (settings.window_of_points_s * 1000)
        for at in range(number, int(passed_s * settings.rate)):
            cell = f"cell{at % _CELLS:03d}"
            sent[cell, start_ms] += 1
            producer.produce(topic, orjson.dumps({
                "cell": cell, "speed": at % 131 * 1.0, "turn": at % 37 * 1.0, "ms": now_ms,
            }), cell)  # fmt: skip
        number = max(number, int(passed_s * settings.rate))
        producer.poll(0)
        time.sleep(_STEP_S)
    if producer.flush(60):
        raise PermanentError("the points were not written in 60 s")
    return sent


def _clustered(place: Place, topic: str) -> Windows:
    found: Windows = Counter()
    for record in read_topic(place, topic):
        row = orjson.loads(record.value)
        found[row["cell"], row["start"]] += row["points"]
    return found


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "cells": _CELLS}
