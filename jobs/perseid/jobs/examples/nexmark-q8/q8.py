"""Nexmark q8: persons who opened an auction in the tumbling window in which they came."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, Set, Table, pa

SIZE_MS = 10_000


def with_end(rows: pa.Table) -> pa.Table:
    """`rows` with the end of the window of their time."""
    end = pc.multiply(pc.add(pc.divide(rows["time"], SIZE_MS), 1), SIZE_MS)
    return rows.append_column("end", end)


class Came(Operator):
    """Persons, as possible sellers."""

    output = pa.schema([("seller", pa.int64()), ("end", pa.int64()), ("name", pa.string())])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        rows = with_end(batch).select(["id", "end", "name"])
        out.emit(rows.rename_columns(["seller", "end", "name"]))


class Opened(Operator):
    """Who opened an auction, and in which window."""

    output = pa.schema([("seller", pa.int64()), ("end", pa.int64())])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        out.emit(with_end(batch).select(["seller", "end"]))


class New(Operator):
    """Sends who came and opened an auction in a window, when the watermark has passed its end."""

    output = Came.output
    people = Table(key={"seller": pa.int64(), "end": pa.int64()}, name=pa.string())
    sellers = Set({"seller": pa.int64(), "end": pa.int64()})

    def process(self, inputs: dict[str, pa.Table], out: Emitter) -> None:
        came, opened = inputs["came"], inputs["opened"]
        if came.num_rows:
            self.people.upsert(came.select(["seller", "end"]), name=came["name"])
        if opened.num_rows:
            self.sellers.add(opened.select(["seller", "end"]))

    def on_epoch_end(self, out: Emitter) -> None:
        if self.watermark is None:
            return
        opened = self.sellers.scan()
        over = opened.filter(pc.less_equal(opened["end"], self.watermark))
        if over.num_rows:
            found = self.people.lookup(over)
            out.emit(found.filter(found["found"]).select(["seller", "end", "name"]))
            self.sellers.discard(over)
        people = self.people.scan()
        gone = people.filter(pc.less_equal(people["end"], self.watermark))
        self.people.delete(gone.select(["seller", "end"]))
