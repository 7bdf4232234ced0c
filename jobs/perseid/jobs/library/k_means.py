"""Clusters of the points of each window: `KMeans`, the operator of Meteor Shower's TMI.

    sources:
      phones: {topic: phones, format: json,
               columns: {cell: string, speed: float64, turn: float64, ms: int64},
               eventTime: {column: ms, watermark: "5s"}}
    operators:
      modes: {input: phones, key: cell, use: "library:KMeans",
              with: {columns: [speed, turn], k: 4, window: "10m", time: ms}}

The points of each key are kept for a window of `window`; windows begin at its multiples since 1970.
When the watermark has reached a window's end (with `time`, the column of event time) its points are
clustered and removed: the state's size is a saw-tooth. Without `time` a row belongs to the token's
time of its epoch.

Emits a row per cluster: key columns, `start` and `end` (milliseconds since 1970; `start <= time <
end`), `cluster` (0 has most points), the centroid's `columns`, and `points`, their number.
Distances are Euclidean in the given columns: scale them before. At most `rounds` (20) rounds of
Lloyd's algorithm. Seeds come from the epoch's random generator, so replays agree, but other epoch
ends may give other clusters. A row of a window that was already emitted is dropped, with a line in
the log; the job's `late_records` counts it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.jobs.library.clusters import k_means as clustered
from perseid.jobs.library.floats import matrix
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.rows import numbered
from perseid.jobs.library.times import NEVER, milliseconds
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Pool, Value
from perseid.state.primitives.keys import KeyFields, first_rows

NAME = "KMeans"
AT = "at"
EMITTED = ("start", "end", "cluster", "points")
EXAMPLES = {
    "columns": "[x, y]", "k": "4", "window": '"10m"', "time": "ms", "rounds": "20",
    "types": "{user: int64}",
}  # fmt: skip

log = logging.getLogger(__name__)


def k_means(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `columns`, `k` and `window`; `time`, `rounds` and `types`."""
    given = Parameters(spec, NAME, EXAMPLES)
    columns = given.columns("columns")
    types = given.types("types", dict.fromkeys(spec.key, "string"))
    keys, fields = list(types), KeyFields(types)
    given.distinct(
        "the key, the columns, " + ", ".join((*EMITTED, AT)), [*keys, *columns, *EMITTED, AT]
    )
    k = given.whole("k", None, 1, 1000)
    rounds = given.whole("rounds", 20, 1, 1000)
    size_ms = given.milliseconds("window")
    time = given.column("time") if "time" in given else None
    coordinates = dict.fromkeys(columns, pa.float64())
    numbers = [(name, pa.int64()) for name in EMITTED]

    class KMeans(Operator):
        """Points until their window ends, then its clusters."""

        output = pa.schema([*types.items(), *numbers[:3], *coordinates.items(), numbers[3]])
        metadata = metadata_among([time, *columns])
        needs_watermark = time is not None
        history_ms = size_ms
        points = Pool({**types, AT: pa.int64(), **coordinates}, time=AT)
        emitted_to = Value(pa.int64(), default=NEVER)  # windows that end here or before

        def process(self, batch: pa.Table, out: Emitter) -> None:
            times = np.full(batch.num_rows, self.now)
            if time is not None:
                times = milliseconds(batch, time, NAME)
            found = dict(zip(columns, matrix(batch, columns, NAME), strict=True))
            names = dict(zip(keys, fields.arrays(batch), strict=True))
            rows = pa.table({**names, AT: times, **found})
            late = times < self.emitted_to.get()
            if late.any():
                log.warning("%d rows came too late and were left out", late.sum())
                rows = rows.filter(pa.array(~late))
            self.points.append(rows)

        def on_epoch_end(self, out: Emitter) -> None:
            reached = self.now if time is None else self.watermark
            if reached is None or reached - reached % size_ms <= self.emitted_to.get():
                return
            end = reached - reached % size_ms
            rows = self.points.between(NEVER, end)
            self.points.expire(end)
            self.emitted_to.set(end)
            for found in modes(rows, keys, columns, size_ms, k, rounds, self.random):
                out.emit(found)

        def rescale(self, old: Sequence[Any]) -> None:
            """All partitions follow the same time, so they agree."""
            self.emitted_to.set(old[0].emitted_to.get())

    return KMeans


def modes(
    rows: pa.Table, keys: list[str], columns: list[str], size_ms: int, k: int, rounds: int,
    chance: Random,
) -> Iterator[pa.Table]:  # fmt: skip
    """The clusters of each window and key, by the window's start, then by the keys' order."""
    starts = rows[AT].to_numpy() // size_ms * size_ms
    windows = rows.select(keys).append_column("start", pa.array(starts))
    number, count = numbered(windows)
    firsts = windows.take(pa.array(first_rows(number, count)))
    points = matrix(rows, columns, NAME)[:, np.argsort(number, kind="stable")]
    stops = np.cumsum(np.bincount(number, minlength=count))
    for window in np.argsort(firsts["start"].to_numpy(), kind="stable"):
        low = stops[window - 1] if window else 0
        centroids, sizes = clustered(points[:, low : stops[window]], k, rounds, chance)
        found = firsts.take(pa.array(np.full(len(sizes), window)))
        start = found["start"].to_numpy()
        yield pa.table({
            **{name: found[name] for name in keys},
            "start": start, "end": start + size_ms, "cluster": np.arange(len(sizes)),
            **dict(zip(columns, centroids, strict=True)), "points": sizes,
        })  # fmt: skip
