"""`bench scale`: cost per record and memory as keys, operator partitions and jobs grow.

Along each axis the others stay: 100,000 keys, 4 operator partitions, one job, one worker, with a
checkpoint each 10 s. Every state is compared with a count of the input. `--minutes`: one job at a
steady rate, and how its memory grows.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from benches.bench_cluster import PARTITIONS, Place
from benches.host_stall import steady
from benches.keyed import (
    FASTEST_SHORT,
    MASTER,
    KeyedJob,
    Shape,
    Window,
    engines,
    filled,
    measured,
)
from benches.keys import Keys, ends_of, write
from benches.memory import PeakMemory
from benches.results import median_row
from perseid.cli import output
from perseid.errors import PermanentError
from perseid.worker.process.spare_memory import ANYWAY_S

_KEYS = 100_000
_JOB_PARALLELISM = 2  # of each of several jobs: as many as cores
_EARLY_SHARES = 3  # of a job's share of the records: the first has more until the last has begun
_LOOK_S = 10.0
_PEAK_LOOK_S = 5.0  # a look at gigabytes costs a tenth of a second of a core
_SETTLED_SHARE = 0.25  # of a long run, which is left out of the slope
_TURN_S = ANYWAY_S
_CATCH_UP_S = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What is tried on each axis; an empty one is left out. `master` of the worker.

    `period_s` of checkpoints: some fall into each window.
    """

    keys: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    partitions: tuple[int, ...] = (1, 4, 16, 64)
    jobs: tuple[int, ...] = (1, 5, 20)
    minutes: float = 0.0
    rate: int = 20_000
    records: int | None = None
    warm_up_s: float = 15.0
    window_s: float = 30.0
    period_s: int = 10
    runs: int = 5
    master: str = MASTER

    @property
    def window(self) -> Window:
        return Window.of(self.warm_up_s, self.window_s, self.records, FASTEST_SHORT)

    def shape(self, keys: int, parallelism: int = PARTITIONS) -> Shape:
        """A job of so many keys and operator partitions."""
        return Shape(Keys(keys), parallelism, f"{self.period_s}s")


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a point of an axis."""
    found = [*_keys(place, settings), *_partitions(place, settings), *_jobs(place, settings)]
    return [*found, _long(place, settings)] if settings.minutes else found


def _keys(place: Place, settings: Settings) -> Iterator[dict[str, Any]]:
    least: dict[str, Any] | None = None
    for count in settings.keys:
        row = _point(place, "keys", count, [settings.shape(count)], settings)
        least = least or row
        yield {**row, **per_key(row, least)}


def per_key(row: dict[str, Any], least: dict[str, Any]) -> dict[str, float]:
    """Memory of a key, settled and at its peak: more than with the fewest keys, a key. Pure."""
    more = row["x"] - least["x"]
    columns = {"memory_bytes": "bytes_per_key", "memory_peak_bytes": "peak_bytes_per_key"}
    return {n: round((row[c] - least[c]) / more, 1) for c, n in columns.items()} if more else {}


def _partitions(place: Place, settings: Settings) -> Iterator[dict[str, Any]]:
    for count in settings.partitions:
        yield _point(place, "partitions", count, [settings.shape(_KEYS, count)], settings)


def _jobs(place: Place, settings: Settings) -> Iterator[dict[str, Any]]:
    for count in settings.jobs:
        shapes = [settings.shape(_KEYS, _JOB_PARALLELISM)] * count
        yield _point(place, "jobs", count, shapes, settings)


def _point(
    place: Place, figure: str, x: int, shapes: list[Shape], settings: Settings
) -> dict[str, Any]:
    shares = _EARLY_SHARES if len(shapes) > 1 else 1
    source = filled(place, shapes[0].keys, settings.window.records * shares // len(shapes))
    rows = []
    for number in range(settings.runs):
        once = partial(_once, place, shapes, source, settings)
        rows.append(steady(f"{figure} {x:,}", once, output.note, watched=True))
        output.note(f"{figure} {x:,}, run {number + 1} of {settings.runs}: {rows[-1]}")
    place.topics.delete([source])
    return {"system": "perseid", "figure": figure, "x": x, **median_row(rows)}


def _once(place: Place, shapes: list[Shape], source: str, settings: Settings) -> dict[str, Any]:
    """All jobs of a point at the same time; their records a second together."""
    with engines(place, workers=0, master=settings.master) as bed, ExitStack() as removed:
        jobs = [KeyedJob(place, bed, shape, source) for shape in shapes]
        for job in jobs:
            removed.callback(job.remove)
        # All begin with the worker: one that began alone would use its topic up.
        place.cluster.up(workers=1, coordinators=1, master=settings.master)
        memory = PeakMemory(jobs[0].memory_bytes, _PEAK_LOOK_S)
        row, timelines = measured(jobs, settings.window, memory)
        for job in jobs:
            job.check_state()
    taken = sum(len(timeline.checkpoints) for timeline in timelines)
    if not taken and settings.window_s >= 2 * settings.period_s:
        raise PermanentError(
            f"no checkpoint in {settings.window_s:g} s, with a period of {settings.period_s} s: "
            "memory and speed are to be measured with some; a longer window (--seconds)?"
        )
    return {
        **row, "checkpoints_taken": taken, "memory_bytes": memory.settled_bytes,
        "memory_peak_bytes": memory.peak_bytes,
    }  # fmt: skip


def _long(place: Place, settings: Settings) -> dict[str, Any]:
    keys = Keys(_KEYS)
    source = filled(place, keys, 0)
    seconds = settings.minutes * 60
    with engines(place, master=settings.master) as bed:
        job = KeyedJob(place, bed, Shape(keys, period="30s"), source)
        job.await_counted(keys.keys)
        sent, samples = _fed(place, job, source, settings.rate, seconds)
        job.await_counted(keys.keys + sent, _CATCH_UP_S)
        bed.stop(job.names)
        job.check_state()
        job.remove()
    place.topics.delete([source])
    sums = [(at_s, sum(held.values())) for at_s, held in samples]
    kinds = sorted({kind for _, held in samples for kind in held})
    return {
        "system": "perseid", "figure": "minutes", "x": settings.minutes, "records": sent,
        "rss_mb": round(sums[-1][1] / 1e6, 1), "mb_per_minute": growth(sums),
        "mb_by_minute": by_minute(sums),
        "mb_by_minute_of": {k: by_minute([(s, held[k]) for s, held in samples]) for k in kinds},
    }  # fmt: skip


def _fed(
    place: Place, job: KeyedJob, source: str, rate: int, seconds: float
) -> tuple[int, list[tuple[float, Counter[str]]]]:
    """Records sent at a steady rate, and (seconds, bytes of memory by kind) meanwhile."""
    stop, sent = threading.Event(), 0

    def feed() -> None:
        nonlocal sent
        begin_s = time.monotonic()
        while not stop.wait(1.0):
            due = int((time.monotonic() - begin_s) * rate) // PARTITIONS * PARTITIONS
            keys = job.shape.keys
            write(place.kafka, source, keys, ends_of(keys, sent), ends_of(keys, due))
            sent = due

    feeding = threading.Thread(target=feed)
    feeding.start()
    samples: list[tuple[float, Counter[str]]] = []
    begin_s = time.monotonic()
    try:
        while (passed_s := time.monotonic() - begin_s) < seconds:
            samples.append((passed_s, job.memory()))
            time.sleep(min(_LOOK_S, seconds / 10))
    finally:
        stop.set()
        feeding.join()
    return sent, samples


def growth(samples: list[tuple[float, int]]) -> float:
    """MB a minute after the first quarter. Pure.

    A Python worker's memory comes in turns, at whose end it gives back what is free. A line through
    some of them shows where they begin. So it is what the mean of the last turn has more than that
    of the turn before, or that line where there is no room for two.
    """
    end_s = samples[-1][0]
    settled = [s for s in samples if s[0] >= _SETTLED_SHARE * end_s]
    if end_s - settled[0][0] >= 2 * _TURN_S:
        before, last = (
            statistics.mean(held for s, held in settled if 0 <= end_s - s - ago_s < _TURN_S)
            for ago_s in (_TURN_S, 0.0)
        )
        return round((last - before) / 1e6 / (_TURN_S / 60), 3)
    times, held = np.array(settled).T
    return round(float(np.polyfit(times / 60, held / 1e6, 1)[0]), 3)


def by_minute(samples: list[tuple[float, int]]) -> list[float]:
    """The median MB of each minute, from the first on: where a slope comes from. Pure."""
    minutes: dict[int, list[int]] = {}
    for at_s, held in samples:
        minutes.setdefault(int(at_s // 60), []).append(held)
    return [round(statistics.median(held) / 1e6, 1) for _, held in sorted(minutes.items())]


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "key_bytes": Keys(1).key_bytes, "source_partitions": PARTITIONS}
