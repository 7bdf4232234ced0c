"""Each record with its number among those of its key, out of one `Table` of all keys."""

from collections import Counter

from perseid.jobs import Emitter, Operator, Table, pa


class Numbered(Operator):
    """Emits `i` and `ms` as they came, and `n`: 1 for the first record of a key."""

    output = pa.schema([("i", pa.int64()), ("n", pa.int64()), ("ms", pa.int64())])
    metadata = ()  # the records' own keys, times and offsets are not read
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        if not batch.num_rows:
            return
        after = self.seen.add(batch["k"], n=1)
        total = dict(zip(after["key"].to_pylist(), after["n"].to_pylist(), strict=True))
        names = batch["k"].to_pylist()
        left, numbers = Counter(names), []
        for name in names:
            left[name] -= 1
            numbers.append(total[name] - left[name])
        out.emit(pa.table({"i": batch["i"], "n": pa.array(numbers, pa.int64()), "ms": batch["ms"]}))
