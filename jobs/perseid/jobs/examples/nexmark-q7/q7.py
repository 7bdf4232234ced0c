"""Nexmark q7: the highest bids of tumbling windows."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, Pool, Table, pa

SIZE_MS = 10_000
BID = ("auction", "bidder", "price", "time")


def highest(rows: pa.Table, limits: pa.ChunkedArray) -> pa.Table:
    """The rows whose price is not below that of `limits`."""
    return rows.filter(pc.greater_equal(rows["price"], limits))


class Windows(Operator):
    """Bids with the end of their window; of each split only the highest are sent on."""

    output = pa.schema([("end", pa.int64()), *((n, pa.int64()) for n in BID)])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        end = pc.multiply(pc.add(pc.divide(batch["time"], SIZE_MS), 1), SIZE_MS)
        rows = batch.select(list(BID)).add_column(0, "end", end)
        most = rows.group_by("end").aggregate([("price", "max")])
        joined = rows.join(most, "end")
        kept = highest(joined, joined["price_max"]).select(["end", *BID])
        out.emit(kept.sort_by([(n, "ascending") for n in ("end", "time", "auction", "bidder")]))


class Highest(Operator):
    """The highest bids of each window, sent when the watermark has passed its end."""

    output = Windows.output
    most = Table(key={"end": pa.int64()}, price=pa.int64())
    bids = Pool({"end": pa.int64(), **dict.fromkeys(BID, pa.int64())}, time="end")

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.most.max(batch.select(["end"]), price=batch["price"])
        limits = self.most.lookup(batch.select(["end"]))["price"]
        self.bids.append(highest(batch, limits))

    def on_epoch_end(self, out: Emitter) -> None:
        if self.watermark is None:
            return
        over = self.bids.between(0, self.watermark + 1)
        if not over.num_rows:
            return
        won = highest(over, self.most.lookup(over.select(["end"]))["price"])
        out.emit(won.sort_by([(n, "ascending") for n in ("end", "time", "auction", "bidder")]))
        self.most.delete(over.select(["end"]))
        self.bids.expire(self.watermark + 1)
