"""Running counts of words: one record per changed word per epoch."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, Table, pa


class Words(Operator):
    """The words of each line, as rows of their own: what the SQL operator of job.yaml does."""

    output = pa.schema([("word", pa.string())])
    metadata = ()  # the records' own keys, times and offsets are not read

    def process(self, batch: pa.Table, out: Emitter) -> None:
        words = pc.list_flatten(pc.split_pattern(batch["value"], " "))
        out.emit(pa.table({"word": words}))


class Counts(Operator):
    """`n` is how often the word was seen since the job began."""

    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def combine(self, batch: pa.Table) -> pa.Table:
        counted = batch.group_by("word").aggregate([([], "count_all")])
        return counted.rename_columns(["word", "n"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        out.emit(self.total.add(batch["word"], n=batch["n"]).rename_columns(["word", "n"]))
