"""The size of a join, estimated from samples of both sides: `RippleJoin` (Haas, Hellerstein 1999).

    size: {inputs: {left: orders, right: payments}, key: customer, use: "library:RippleJoin",
           with: {sample: 0.1}}
    paid: {inputs: {left: orders, right: payments}, key: customer, use: "library:RippleJoin",
           with: {sample: 0.1, sum: amount, confidence: 0.99}}

Estimates how many pairs of a row of `left` and a row of `right` have the same key or, with `sum`,
the sum of a column of `left` over all pairs. A share `sample` of the rows of each side is read,
chosen by their number, independent of their content (AF-Stream's join has 10 %).

Emits one row per partition and epoch: `partition`, `left` and `right` (rows seen so far),
`estimate`, and `error`: the true size is within `estimate` -/+ `error` with a probability of about
`confidence` (0.95). They are null until there are two sampled rows on each side. Keys are
distributed over partitions: the total is the sum of the estimates, its error the root of the sum of
squares. The error is that of the central limit theorem, so it is too small for few pairs, or a few
keys with most of the pairs. Under another parallelism the numbers of rows are distributed evenly.

State is a row per sampled key. Samples do not depend on where epochs end; the last digits of the
float sums do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.jobs.library.floats import matrix
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.rescaling import evenly
from perseid.jobs.library.rows import different
from perseid.jobs.library.sides import SIDES, check_inputs
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Table, Vector
from perseid.state.primitives.index import hash_numbers
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.undo import Values

NAME = "RippleJoin"
EXAMPLES = {
    "sample": "0.1", "sum": "amount", "confidence": "0.95", "types": "{user: int64}",
}  # fmt: skip
OUTPUT = pa.schema(
    [
        *((name, pa.int64()) for name in ("partition", *SIDES)),
        *((name, pa.float64()) for name in ("estimate", "error")),
    ]
)


def ripple_join(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `sample`; `sum`, `confidence` and `types`."""
    given = Parameters(spec, NAME, EXAMPLES)
    check_inputs(spec, given)
    sample = given.number("sample", None, 0, 1)
    normal = NormalDist().inv_cdf(0.5 + given.number("confidence", 0.95, 0, 0.999999) / 2)
    column = given.column("sum") if "sum" in given else None
    types = given.types("types", dict.fromkeys(spec.key, "string"))
    fields = KeyFields(types)

    class RippleJoin(Operator):
        """Sums over the sampled rows of each key, from which the result is computed."""

        output = OUTPUT
        metadata = metadata_among([column])
        seen = Vector(pa.int64(), 4)  # rows left and right, and those of the samples
        # Of the sampled rows of each key: the weights on the left, their squares, and the number of
        # rows on the right.
        keys = Table(key=types, weight=pa.float64(), squares=pa.float64(), right=pa.float64())
        sums = Vector(pa.float64(), 3)  # `products` of all keys

        def process(self, inputs: dict[str, pa.Table], out: Emitter) -> None:
            left, right = (self._sampled(inputs[name], at) for at, name in enumerate(SIDES))
            weight = np.ones(left.num_rows)
            if column is not None and left.num_rows:
                weight = matrix(left, [column], NAME)[0]
            rows = pa.concat_tables([self._keys(left), self._keys(right)])
            none, ones = np.zeros(right.num_rows), np.ones(right.num_rows)
            before = self.keys.lookup(different(rows))
            after = self.keys.add(
                rows, weight=np.concatenate([weight, none]),
                squares=np.concatenate([np.square(weight), none]),
                right=np.concatenate([np.zeros(left.num_rows), ones]),
            )  # fmt: skip
            self.sums.add(products(after) - products(before))
            estimate, error = estimated(self.seen.values, self.sums.values, normal)
            row = [self.partition, *self.seen.values[:2].tolist(), estimate, error]
            found = zip(self.output, row, strict=True)
            out.emit(pa.table({f.name: pa.array([value], f.type) for f, value in found}))

        def rescale(self, old: Sequence[Any]) -> None:
            """All partitions sample the same share, so estimates stay unbiased."""
            seen = np.sum([one.seen.values for one in old], axis=0)
            self.seen.set(evenly(seen, self.partition, self.parallelism))
            self.sums.set(products(self.keys.scan()))

        def _sampled(self, rows: pa.Table, side: int) -> pa.Table:
            """The rows of a side whose number is sampled; counts all rows."""
            first = int(self.seen.values[side])
            salt = (2 * self.partition + side) << 48
            mixed = hash_numbers(np.arange(first, first + rows.num_rows) + salt)
            drawn = mixed.view(np.uint64) / 2.0**64 < sample
            self.seen.add_at([side, side + 2], [rows.num_rows, int(drawn.sum())])
            return rows.filter(pa.array(drawn)) if rows.num_rows else rows

        def _keys(self, rows: pa.Table) -> pa.Table:
            return pa.table(dict(zip(types, fields.arrays(rows), strict=True)))

    return RippleJoin


def products(keys: pa.Table) -> Values:
    """Sums over keys from which pairs, and the squares of each row's pairs, are computed.

    A row of weight w on the left has `right` partners: w * right. One on the right has `weight`.
    """
    weight, squares, right = (
        np.nan_to_num(keys[name].to_numpy()) for name in ("weight", "squares", "right")
    )
    return np.array(
        [
            (weight * right).sum(),
            (squares * np.square(right)).sum(),
            (right * np.square(weight)).sum(),
        ]
    )


def estimated(seen: Values, sums: Values, normal: float) -> tuple[float | None, float | None]:
    """The sum over all pairs, and its error at `normal` standard deviations.

    Haas and Hellerstein's: the variance of the mean over all pairs is that of the rows' means on
    each side over the sizes of the samples; the part that was sampled adds no uncertainty.
    """
    rows, sampled = (list(map(float, part)) for part in (seen[:2], seen[2:]))
    if min(sampled) < 2:
        return None, None
    pairs, squares = float(sums[0]), (float(sums[1]), float(sums[2]))
    mean = pairs / (sampled[0] * sampled[1])
    variance = 0.0
    for side, (own, other) in enumerate(((0, 1), (1, 0))):
        spread = squares[side] / sampled[other] ** 2 - sampled[own] * mean**2
        unknown = 1 - sampled[own] / rows[own]
        variance += max(0.0, spread) / (sampled[own] - 1) / sampled[own] * unknown
    scale = rows[0] * rows[1]
    return scale * mean, normal * scale * sqrt(variance)
