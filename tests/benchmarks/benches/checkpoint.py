"""`bench checkpoint`: what checkpoints cost a job at full speed.

Per size of state and run, in turn: the keyed job with a checkpoint every 10 s and without. Then
the one with checkpoints loses its worker and its state logs; a fresh worker restores the newest
checkpoint, and every key is compared with a count of the input. `timed.py` is the second part.
"""

from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benches.bench_cluster import Place
from benches.host_stall import steady
from benches.keyed import (
    FASTEST,
    NEVER,
    ROW_OVERHEAD,
    KeyedJob,
    Shape,
    Window,
    engines,
    filled,
    measured,
)
from benches.keys import Keys
from benches.results import median_row, ratios
from benches.timeline import Timeline
from perseid.cli import output
from perseid.errors import PermanentError

CHECKPOINTS_MIN = 6
SNAPSHOTS_MIN = 2
CHANGED_MIN = 0.05  # of all keys from one checkpoint to the next, of a state of
SMALL_BYTES = 10_000_000  # bytes: more keys than that are not drawn in a period
# Up to so many bytes of state: seconds of the window. A small state is copied for each checkpoint,
# of 100 MB and 1 GB each fifth one is a full snapshot.
_WINDOWS_S = ((SMALL_BYTES, 75.0), (100_000_000, 120.0), (math.inf, 150.0))
_KEY_BYTES = 88
_FRESH_S = 120.0


@dataclass(frozen=True, slots=True)
class Settings:
    """`sizes` in bytes of a snapshot; `period_s` of the checkpoints. `window_s` None: by size."""

    sizes: tuple[int, ...] = (10_000_000, 100_000_000, 1_000_000_000)
    period_s: int = 10
    records: int | None = None
    warm_up_s: float = 15.0
    window_s: float | None = None
    runs: int = 5

    def window(self, size: int) -> Window:
        """Of a state of so many bytes."""
        window_s = next(window_s for most, window_s in _WINDOWS_S if size <= most)
        return Window.of(self.warm_up_s, self.window_s or window_s, self.records, FASTEST)


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Rows, two a size: with and without."""
    return [row for size in settings.sizes for row in _size(place, size, settings)]


def _size(place: Place, size: int, settings: Settings) -> list[dict[str, Any]]:
    keys = Keys(max(size // (_KEY_BYTES + ROW_OVERHEAD), 1), _KEY_BYTES)
    window = settings.window(size)
    source = filled(place, keys, window.records)
    shapes = {"with": Shape(keys, period=f"{settings.period_s}s"), "without": Shape(keys)}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in shapes}
    for number in range(settings.runs):
        for name in list(shapes)[:: 1 if number % 2 else -1]:
            row = {"system": "perseid", "setting": f"{size / 1e6:g} MB", "checkpoints": name}
            side = partial(_side, place, shapes[name], source, window, settings)
            row |= steady(f"{row['setting']}, {name} checkpoints", side, output.note, watched=True)
            output.note(f"run {number + 1} of {settings.runs}: {row}")
            runs[name].append(row)
    place.topics.delete([source])
    without = [row["rows_per_s"] for row in runs["without"]]
    return [
        {**median_row(rows), "ratio": ratios([row["rows_per_s"] for row in rows], without)}
        for rows in runs.values()
    ]


def _side(
    place: Place, shape: Shape, source: str, window: Window, settings: Settings
) -> dict[str, Any]:
    with engines(place) as bed, ExitStack() as removed:
        job = KeyedJob(place, bed, shape, source)
        removed.callback(job.remove)
        if shape.period == NEVER:
            row, (timeline,) = measured([job], window)
            return {**row, "longest_epoch": timeline.longest()}
        wanted = enough if has_room(window.window_s, settings.period_s) else None
        row, (timeline,) = measured([job], window, enough=wanted)
        changed = job.changed_shares(timeline)
        row |= figures(timeline, changed, row["window_s"], settings.period_s, shape.state_bytes)
        output.note(f"to be restored: {row}")
        job.forget_log()
        place.cluster.up(workers=0, coordinators=None)
        place.cluster.up(workers=1, coordinators=None)
        row["restored_epoch"] = restored(job)
    return row


def has_room(window_s: float, period_s: float) -> bool:
    """Whether a window is long enough to ask for more than one checkpoint. Pure."""
    return window_s >= CHECKPOINTS_MIN * period_s


def enough(timeline: Timeline) -> bool:
    """Whether the checkpoints of a window show what one costs. Pure."""
    return len(timeline.checkpoints) >= CHECKPOINTS_MIN and timeline.full_snapshots >= SNAPSHOTS_MIN


def figures(
    timeline: Timeline, changed: list[float], window_s: float, period_s: float, state_bytes: int
) -> dict[str, Any]:
    """The columns of the checkpoints in the window. Pure.

    PermanentError when there are too few, or too few keys changed between them.
    """
    taken, full = len(timeline.checkpoints), timeline.full_snapshots
    if not taken or (has_room(window_s, period_s) and not enough(timeline)):
        raise PermanentError(
            f"{taken} checkpoints in {window_s:g} s, {full} of them full snapshots: "
            f"expected {CHECKPOINTS_MIN} and {SNAPSHOTS_MIN}; a longer window (--seconds)?"
        )
    if state_bytes <= SMALL_BYTES and min(changed, default=1.0) < CHANGED_MIN:
        raise PermanentError(
            f"only {min(changed):.1%} of the keys changed from one checkpoint to the next: "
            f"expected {CHANGED_MIN:.0%}; more records (--records), or is the job this slow?"
        )
    return {
        "checkpoints_taken": taken,
        "full_snapshots": full,
        "chain": max(c.links for c in timeline.checkpoints),
        "changed_share": statistics.median(changed) if changed else None,
        "checkpoint_bytes": statistics.median(c.bytes for c in timeline.checkpoints),
        "longest_epoch": timeline.longest_during_checkpoints(),
    }


def restored(job: KeyedJob) -> int:
    """A fresh worker takes the newest checkpoint up and stops; the epoch whose state was right."""
    job.resume_from_newest(_FRESH_S)
    job.bed.stop(job.names)
    return job.check_state()


def described(settings: Settings) -> dict[str, Any]:
    windows = [settings.window(size).window_s for size in settings.sizes]
    return {
        **asdict(settings), "window_s": windows, "key_bytes": _KEY_BYTES, "partitions": 4,
        "workers": 1,
    }  # fmt: skip
