"""Keys with a large part of a stream: `HeavyHitters`, a Count-Min sketch (Cormode 2005).

    heavy: {input: words, key: word, parallelism: 1, use: "library:HeavyHitters",
            with: {share: 0.01}}
    heavy: {input: packets, key: [source, target], use: "library:HeavyHitters",
            with: {threshold: 10000000, sum: bytes, largest: 1500}}

A key is heavy when it has `share` of all rows or, with `threshold`, so many of them; with `sum`
that column is added up instead of rows (int64, not below 0). Keys are distributed over partitions,
and no partition knows the total of all: so `share` needs `parallelism: 1`, `threshold` does not.

Emits one row per epoch for each key that is heavy and whose count changed: the key columns, the
estimate `n`, and `heavy`; false means that a share is no longer reached.

4 x 8000 counters of a partition hold all counts; only the names of heavy keys are kept. So an
estimate is never below the true count, and every heavy key is reported. An estimate exceeds the
true count by more than e / 8000 = 0.034 % of the partition's total with a probability of at most
e^-4 = 1.8 % per key. So a light key may be reported; which ones are depends on where epochs end.
Under another parallelism each counter becomes the maximum over the old partitions: a key was in one
of them, so no estimate is too low. It may then be too high by the others' counts.

Approximate fault tolerance (AF-Stream, experiment 3): `state_divergence` is the largest difference
of a counter, `alpha` the most that a row adds (1, or `largest`), and `compensate(k)` adds what the
k-th failure may have lost. Exact mode, which loses nothing, calls none of them. A heavy key that
lost all its rows since the backup is reported again with its next row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.jobs.library.hashing import hashed
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.rows import added_up, different
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Distance, Matrix, Table, Value
from perseid.state.primitives.columns import conform
from perseid.state.primitives.folds import summed
from perseid.state.primitives.index import hash_numbers
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.undo import Slots, Values

ROWS, COLUMNS = 4, 8000  # the paper's
EXAMPLES = {
    "share": "0.01", "threshold": "1000", "sum": "bytes", "largest": "1500",
    "types": "{user: int64}",
}  # fmt: skip
UNKNOWN_LOSS = (
    "library:HeavyHitters: what a failure may lose is not declared; write `approximate: "
    "{theta: ..., l: ...}` under faultTolerance and, with `sum`, `largest:` under with"
)
INT64_MAX = 2**63 - 1
SALTS = np.array([[0x9E3779B97F4A7C15 * (row + 1) % 2**64] for row in range(ROWS)], np.uint64)


class Sketch(Operator):
    """Counters of all keys, of which an approximate mode may lose some."""

    counters = Matrix(pa.int64(), ROWS, COLUMNS)
    total = Value(pa.int64(), default=0)

    # What job.yaml allows to be lost; set by the caller that runs the approximate mode.
    theta: float | None = None
    l: int | None = None  # noqa: E741 - the paper's and the file's name
    alpha: int | None = 1

    def estimate(self, rows: pa.Table) -> Values:
        """Upper bounds of the counts, or sums, of the keys `rows`."""
        counters = self.counters.take(np.arange(ROWS)[:, None], columns_of(rows))
        smallest: Values = counters.min(axis=0)
        return smallest

    def rescale(self, old: Sequence[Any]) -> None:
        """A key was in one partition. Partition 0 keeps the sum of the totals."""
        self.counters.set(np.maximum.reduce([one.counters.values for one in old]))
        self.total.set(0 if self.partition else sum(one.total.get() for one in old))

    def state_divergence(self) -> float:
        """The largest difference between the counters and their backup."""
        return self.counters.divergence(Distance.MAXIMUM)

    def compensate(self, k: int) -> None:
        """After the k-th failure: no counter is below its value without failures."""
        if self.theta is None or self.l is None or self.alpha is None:
            raise BadInputError(UNKNOWN_LOSS)
        self.counters.add(ceil((self.theta + self.l * self.alpha) / 2**k))


def heavy_hitters(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `share` or `threshold`; `sum` and `largest`; `types`."""
    given = Parameters(spec, "HeavyHitters", EXAMPLES)
    types = given.types("types", dict.fromkeys(spec.key, "string"))
    given.distinct("the key, n and heavy", [*spec.key, "n", "heavy"])
    keys, fields = list(spec.key), KeyFields(types)
    share, threshold = _bound(given, spec.parallelism)
    column = given.column("sum") if "sum" in given else None
    largest = given.whole("largest", None, 1, INT64_MAX) if "largest" in given else None
    given.only_for("largest", column is not None, "sums, with `sum`")

    class HeavyHitters(Sketch):
        """Counters of all keys, and the names of heavy ones."""

        output = pa.schema([*types.items(), ("n", pa.int64()), ("heavy", pa.bool_())])
        metadata = metadata_among([column])
        hitters = Table(key=types, n=pa.int64())
        alpha = 1 if column is None else largest

        def combine(self, batch: pa.Table) -> pa.Table:
            if column is not None:
                _check(batch[column], column, largest)
            return added_up(batch, fields, column)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            rows = batch.select(keys)
            self.counters.add_at(np.arange(ROWS)[:, None], columns_of(rows), batch["n"].to_numpy())
            amounts = batch["n"].combine_chunks()
            self.total.set(self.total.get() + int(summed(amounts, np.zeros(len(rows), int), 1)[0]))
            asked = different(pa.concat_tables([self.hitters.scan().select(keys), rows]))
            before = self.hitters.lookup(asked)
            found = self.estimate(asked)
            bound = threshold if share is None else max(1, ceil(share * self.total.get()))
            heavy = found >= bound
            listed = before["found"].to_numpy()
            moved = found != pc.fill_null(before["n"], -1).to_numpy()
            self.hitters.delete(asked.filter(pa.array(listed & ~heavy)))
            self.hitters.upsert(asked.filter(pa.array(heavy)), n=found[heavy])
            emitted = pa.array((heavy & moved) | (listed & ~heavy))
            asked = asked.append_column("n", pa.array(found))
            out.emit(asked.append_column("heavy", pa.array(heavy)).filter(emitted))

    return HeavyHitters


def columns_of(rows: pa.Table) -> Slots:
    """For each key the counter of each row of the sketch: shape (4, keys)."""
    mixed = hash_numbers(hashed(rows.columns)[None, :] ^ SALTS)
    places: Slots = (mixed.view(np.uint64) % np.uint64(COLUMNS)).astype(np.int64)
    return places


def _bound(given: Parameters, parallelism: int) -> tuple[float | None, int]:
    """The share, or None and the threshold."""
    if ("share" in given) == ("threshold" in given):
        found = "both" if "share" in given else "neither"
        raise BadInputError(
            f"library:HeavyHitters: found {found} of with.share and with.threshold, expected one "
            "of them; write `share: 0.01` or `threshold: 1000`"
        )
    if "threshold" in given:
        return None, given.whole("threshold", None, 1, INT64_MAX)
    if parallelism > 1:
        raise BadInputError(
            f"library:HeavyHitters: with.share and parallelism {parallelism}, but no "
            "partition knows the total of all; write `parallelism: 1` in this operator, or "
            "`threshold: 1000` instead of share"
        )
    return given.number("share", None, 0, 1), 0


def _check(amounts: pa.ChunkedArray, column: str, largest: int | None) -> None:
    """Refuses amounts for which the sketch, or its compensation, would not be right."""
    most = INT64_MAX if largest is None else largest
    found = pc.min_max(conform(amounts, pa.int64(), f"column {column!r}")).as_py()
    if found["min"] is not None and not 0 <= found["min"] <= found["max"] <= most:
        raise BadInputError(
            f"library:HeavyHitters: column {column!r} has an amount that is not from 0 to {most}; "
            "filter such rows out in the operator before"
        )
