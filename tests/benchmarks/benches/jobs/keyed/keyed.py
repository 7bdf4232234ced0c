"""How often each key came, in one `Table`: a string key and an integer."""

from perseid.jobs import Emitter, Operator, Table, Value, pa


class Counts(Operator):
    """Emits how many records this partition has counted so far."""

    output = pa.schema([("part", pa.string()), ("records", pa.int64())])
    metadata = ()  # the records' own keys, times and offsets are not read
    total = Table(key=pa.string(), n=pa.int64())
    records = Value(pa.int64(), default=0)

    def process(self, batch: pa.Table, out: Emitter) -> None:
        if not batch.num_rows:
            return
        self.total.add(batch["value"], n=1)
        self.records.set(self.records.get() + batch.num_rows)
        out.emit(pa.table({"part": [str(self.partition)], "records": [self.records.get()]}))
