"""Running sums, every one of them: `RunningSum`.

    balances: {input: payments, key: account, use: "library:RunningSum", with: {column: amount}}

Emits each input row, in the order of the input, with `sum`: what its key has added up to with it.
`Sum` emits one row per changed key per epoch and is the cheaper one. Integers only: a running sum
of floats would round otherwise with every other cut into epochs; use the smallest unit, as cents.
`with: {types: {account: int64}}` names the types of key columns that are no strings.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.totals import column_of, key_types
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.jobs.spec import OperatorSpec
from perseid.state import Table
from perseid.state.columns import conform, numbers
from perseid.state.folds import plus
from perseid.state.keys import KeyFields
from perseid.state.undo import Slots, Values

_FEW = 2**16  # NumPy sorts 16-bit numbers by radix, wider ones ten times more slowly


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
            out.emit(batch.append_column("sum", pa.array(sums)))

    return RunningSum


def running_sums(rows: Slots, amounts: Values, after: Values) -> Values:
    """For each row the sum of its key up to it, when `after[k]` is the sum of key k behind them.

    `rows` are the keys' numbers. All sums within are exact modulo 2^64, so only the result has to
    be looked at: BadInputError when a running sum does not fit into 64 bits.
    """
    order = np.argsort(rows.astype(np.uint16) if len(after) <= _FEW else rows, kind="stable")
    sorted_amounts = amounts[order]
    running = np.cumsum(sorted_amounts)
    ends = np.cumsum(np.bincount(rows, minlength=len(after))) - 1
    shift = after - running[ends]
    found = np.empty_like(running)
    found[order] = running + shift[rows[order]]
    return plus(found - amounts, amounts, pa.int64())
