"""Running counts of words: one record per changed word per epoch."""

from perseid.jobs import Emitter, Operator, Table, pa


class Counts(Operator):
    """`n` is how often the word was seen since the job began."""

    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def combine(self, batch: pa.Table) -> pa.Table:
        counted = batch.group_by("word").aggregate([([], "count_all")])
        return counted.rename_columns(["word", "n"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        out.emit(self.total.add(batch["word"], n=batch["n"]).rename_columns(["word", "n"]))
