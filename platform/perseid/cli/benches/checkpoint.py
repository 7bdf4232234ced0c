"""`bench checkpoint`: what checkpoints cost a job at full speed.

Per size of state and run, in turn: the keyed job with a checkpoint every 10 s and without. Then
the one with checkpoints loses its worker and its state logs; a fresh worker restores the newest
checkpoint, and every key is compared with a count of the input. `timed.py` is the second part.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from perseid.cli import output
from perseid.cli.benches.bench_cluster import Place
from perseid.cli.benches.keyed import (
    NEVER,
    ROW_OVERHEAD,
    KeyedJob,
    Shape,
    Window,
    engines,
    filled,
    measured,
)
from perseid.cli.benches.keys import Keys
from perseid.cli.benches.results import median_row, ratios
from perseid.cli.benches.standstill import Standstill
from perseid.cli.benches.timeline import Timeline
from perseid.errors import PermanentError

CHECKPOINTS_MIN = 6
SNAPSHOTS_MIN = 2
_KEY_BYTES = 88
_FRESH_S = 120.0


@dataclass(frozen=True, slots=True)
class Settings:
    """`sizes` in bytes of a snapshot; `period_s` of the checkpoints."""

    sizes: tuple[int, ...] = (10_000_000, 100_000_000, 1_000_000_000)
    period_s: int = 10
    records: int | None = None
    warm_up_s: float = 15.0
    window_s: float = 75.0
    runs: int = 5

    @property
    def window(self) -> Window:
        return Window.of(self.warm_up_s, self.window_s, self.records)


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Rows, two a size: with and without."""
    return [row for size in settings.sizes for row in _size(place, size, settings)]


def _size(place: Place, size: int, settings: Settings) -> list[dict[str, Any]]:
    keys = Keys(max(size // (_KEY_BYTES + ROW_OVERHEAD), 1), _KEY_BYTES)
    source = filled(place, keys, settings.window.records)
    shapes = {"with": Shape(keys, period=f"{settings.period_s}s"), "without": Shape(keys)}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in shapes}
    for number in range(settings.runs):
        for name in list(shapes)[:: 1 if number % 2 else -1]:
            row = {"system": "perseid", "setting": f"{size / 1e6:g} MB", "checkpoints": name}
            row |= _side(place, shapes[name], source, settings)
            output.note(f"run {number + 1} of {settings.runs}: {row}")
            runs[name].append(row)
    place.topics.delete([source])
    without = [row["rows_per_s"] for row in runs["without"]]
    return [
        {**median_row(rows), "ratio": ratios([row["rows_per_s"] for row in rows], without)}
        for rows in runs.values()
    ]


def _side(place: Place, shape: Shape, source: str, settings: Settings) -> dict[str, Any]:
    with engines(place) as stage:
        with Standstill() as still:
            job = KeyedJob(place, stage, shape, source)
            row, (timeline,) = measured([job], settings.window)
        still.check(f"checkpoint at {shape.state_bytes / 1e6:g} MB")
        del row["memory_bytes"]
        if shape.period == NEVER:
            job.remove()
            return row
        row |= told(timeline, job.changed_shares(timeline), settings)
        job.forget_log()
        place.cluster.up(workers=0, coordinators=None)
        place.cluster.up(workers=1, coordinators=None)
        row["restored_epoch"] = restored(job)
        job.remove()
    return row


def told(timeline: Timeline, changed: list[float], settings: Settings) -> dict[str, Any]:
    """The columns of the checkpoints in the window; PermanentError when there are too few. Pure."""
    taken, full = len(timeline.checkpoints), timeline.full_snapshots
    long_enough = settings.window_s >= CHECKPOINTS_MIN * settings.period_s
    if not taken or (long_enough and (taken < CHECKPOINTS_MIN or full < SNAPSHOTS_MIN)):
        raise PermanentError(
            f"{taken} checkpoints in {settings.window_s:g} s, {full} of them full snapshots: "
            f"expected {CHECKPOINTS_MIN} and {SNAPSHOTS_MIN}; a longer window (--seconds)?"
        )
    longest = timeline.longest_during_checkpoints()
    return {
        "checkpoints_taken": taken,
        "full_snapshots": full,
        "changed_share": statistics.median(changed) if changed else None,
        "checkpoint_bytes": statistics.median(c.bytes for c in timeline.checkpoints),
        "longest_epoch": round(longest, 3) if longest is not None else None,
    }


def restored(job: KeyedJob) -> int:
    """A fresh worker takes the job up from the store and stops; the epoch whose state was right."""
    before = len(job.progress().fragments)
    job.stage.go_on(job.names)
    origins = job.await_running(before, _FRESH_S).restored_from
    job.stage.stop(job.names)
    if "checkpoint:" not in origins:
        raise PermanentError(f"{job.names.job} was restored from {origins!r}, not a checkpoint")
    return job.check_state()


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "key_bytes": _KEY_BYTES, "partitions": 4, "workers": 1}
