"""Running sums per row: `RunningSum`.

    balances: {input: payments, key: account, use: "library:RunningSum", with: {column: amount}}

Emits each input row, in the order of the input, with `sum`: its key's sum including this row. `Sum`
emits one row per changed key per epoch and is cheaper. Integers only: a running sum of floats would
round differently if epochs end elsewhere; use the smallest unit, such as cents. `with: {types:
{account: int64}}` names the types of key columns that are no strings.
"""

from __future__ import annotations

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.totals import column_of, key_types
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.kernels.folds import running_sums
from perseid.state import Table
from perseid.state.primitives.columns import conform, numbers
from perseid.state.primitives.keys import KeyFields


def running_sum(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `column`."""
    types = key_types(spec, "RunningSum", {"column"})
    column = column_of(spec, "RunningSum")
    fields = KeyFields(types)

    class RunningSum(Operator):
        """Each row with the sum of its key so far."""

        metadata = metadata_among([column])
        total = Table(key=types, sum=pa.int64())

        def process(self, batch: pa.Table, out: Emitter) -> None:
            if "sum" in batch.column_names:
                raise BadInputError(
                    "library:RunningSum: its input has a column 'sum' already; rename it before"
                )
            keys = fields.distinct(batch)
            amounts = numbers(conform(batch[column], pa.int64(), f"column {column!r}"))
            after = self.total.add(keys, sum=pa.array(amounts))
            sums = running_sums(keys.numbers(), amounts, after["sum"].to_numpy())
            if sums is None:
                raise BadInputError(
                    f"library:RunningSum: a running sum of {column!r} does not fit into 64 bits; "
                    "use a larger unit"
                )
            out.emit(batch.append_column("sum", pa.array(sums)))

    return RunningSum
