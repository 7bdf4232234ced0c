"""Running counts of words that go through a second operator with a key.

All counts of a word have the same ending, so they stay in their order: the word counts' judges fit.
"""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, Table, pa


class Words(Operator):
    """The words of each line, as rows of their own."""

    output = pa.schema([("word", pa.string())])
    metadata = ()  # the records' own keys, times and offsets are not read

    def process(self, batch: pa.Table, out: Emitter) -> None:
        words = pc.list_flatten(pc.split_pattern(batch["value"], " "))
        out.emit(pa.table({"word": words}))


class Counts(Operator):
    """`n` is how often the word was seen since the job began."""

    output = pa.schema([("word", pa.string()), ("n", pa.int64()), ("ending", pa.string())])
    total = Table(key=pa.string(), n=pa.int64())

    def combine(self, batch: pa.Table) -> pa.Table:
        counted = batch.group_by("word").aggregate([([], "count_all")])
        return counted.rename_columns(["word", "n"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        found = self.total.add(batch["word"], n=batch["n"]).rename_columns(["word", "n"])
        ending = pc.utf8_slice_codeunits(found["word"], start=-2)
        out.emit(found.append_column("ending", ending))


class Endings(Operator):
    """Passes counts on, and keeps how many there were for each ending."""

    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    passed = Table(key=pa.string(), n=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.passed.add(batch["ending"], n=1)
        out.emit(batch.select(["word", "n"]))
