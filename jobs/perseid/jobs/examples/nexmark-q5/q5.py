"""Nexmark q5: the auctions with the most bids in hopping windows."""

import numpy as np
import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, Table, pa

SIZE_MS, STEP_MS = 10_000, 2_000


class Counts(Operator):
    """Bids per auction and window, sent when the watermark says that the window is over."""

    output = pa.schema([("end", pa.int64()), ("auction", pa.int64()), ("n", pa.int64())])
    counts = Table(key={"end": pa.int64(), "auction": pa.int64()}, n=pa.int64())

    def combine(self, batch: pa.Table) -> pa.Table:
        """Bids per auction and step: windows are made of whole steps."""
        step = pc.multiply(pc.divide(batch["time"], STEP_MS), STEP_MS)
        rows = pa.table({"auction": batch["auction"], "step": step})
        counted = rows.group_by(["auction", "step"]).aggregate([([], "count_all")])
        return counted.rename_columns(["auction", "step", "n"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        later = np.arange(STEP_MS, SIZE_MS + STEP_MS, STEP_MS)  # ends of the windows of a step
        ends = (batch["step"].to_numpy()[:, None] + later).ravel()
        auctions = np.repeat(batch["auction"].to_numpy(), len(later))
        amounts = np.repeat(batch["n"].to_numpy(), len(later))
        self.counts.add({"end": pa.array(ends), "auction": pa.array(auctions)}, n=pa.array(amounts))

    def on_epoch_end(self, out: Emitter) -> None:
        if self.watermark is None:
            return
        rows = self.counts.scan()
        over = rows.filter(pc.less_equal(rows["end"], self.watermark))
        self.counts.delete(over.select(["end", "auction"]))
        out.emit(over)


class Hottest(Operator):
    """Of each window the auctions that nobody has more bids than. Its counts come together."""

    output = Counts.output

    def process(self, batch: pa.Table, out: Emitter) -> None:
        most = batch.group_by("end").aggregate([("n", "max")])
        both = batch.join(most, "end")
        hot = both.filter(pc.equal(both["n"], both["n_max"])).select(["end", "auction", "n"])
        out.emit(hot.sort_by([("end", "ascending"), ("auction", "ascending")]))
