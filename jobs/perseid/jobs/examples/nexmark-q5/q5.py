"""Nexmark q5: the auctions with the most bids in hopping windows."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, pa


class Hottest(Operator):
    """Of each window the auctions with the most bids. Its counts come together."""

    output = pa.schema([("end", pa.int64()), ("auction", pa.int64()), ("n", pa.int64())])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        most = batch.group_by("end").aggregate([("n", "max")])
        both = batch.join(most, "end")
        hot = both.filter(pc.equal(both["n"], both["n_max"])).select(["end", "auction", "n"])
        out.emit(hot.sort_by([("end", "ascending"), ("auction", "ascending")]))
