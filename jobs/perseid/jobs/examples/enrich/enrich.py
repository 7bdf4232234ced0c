"""Payments that are worth a look, with what a reader of them wants to know."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, pa

SMALL = 100  # payments below are left out
LARGE = 500


class Enrich(Operator):
    """Adds the amount in cents and whether it is large."""

    output = pa.schema(
        [
            ("account", pa.string()), ("amount", pa.int64()), ("sent", pa.int64()),
            ("cents", pa.int64()), ("large", pa.bool_()),
        ]
    )  # fmt: skip
    metadata = ()  # the records' own keys, times and offsets are not read

    def process(self, batch: pa.Table, out: Emitter) -> None:
        kept = batch.filter(pc.greater_equal(batch["amount"], SMALL))
        cents = pc.multiply(kept["amount"], 100)
        large = pc.greater_equal(kept["amount"], LARGE)
        out.emit(kept.append_column("cents", cents).append_column("large", large))
