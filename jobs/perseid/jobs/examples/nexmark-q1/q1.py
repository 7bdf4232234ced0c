"""Nexmark q1: prices in euro cents."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, pa

RATE = 908  # euros for 1,000 dollars; prices are whole cents, so what is below a cent is cut off


class Convert(Operator):
    """Every bid with its price converted."""

    output = pa.schema([(n, pa.int64()) for n in ("auction", "bidder", "price", "time")])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        euros = pc.divide(pc.multiply(batch["price"], RATE), 1000)
        out.emit(batch.set_column(batch.column_names.index("price"), "price", euros))
