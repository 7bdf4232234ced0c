"""Nexmark q2: bids for certain auctions."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, pa

EVERY = 123  # auctions


class Select(Operator):
    """Auction and price of the bids for auctions whose number is a multiple of EVERY."""

    output = pa.schema([("auction", pa.int64()), ("price", pa.int64())])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        auction = batch["auction"]
        rest = pc.subtract(auction, pc.multiply(pc.divide(auction, EVERY), EVERY))
        out.emit(batch.filter(pc.equal(rest, 0)).select(["auction", "price"]))
