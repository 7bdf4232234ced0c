"""One small operator for each primitive of `perseid.state`, with the plain model of what it emits.

A model knows the input's rows in order and nothing of partitions, state or failures: its `epoch`
gives the rows that the whole operator emits, those of a key in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from perseid.jobs.operator import Emitter, Operator
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector
from perseid.worker.dataflow.partition import partitions

WORDS = tuple("abcdefghij")
KEYS = pa.array(WORDS, pa.string())
FULL = 5  # of a key in a `Table`: then it is deleted
POOL_MS = 3000
TIMER_MS = 1500
COUNTED = pa.schema([("key", pa.string()), ("n", pa.int64())])
Rows = Sequence[Mapping[str, Any]]


class Model:
    """Of an operator with one input."""

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        """The rows that the operator emits in an epoch with these rows."""
        raise NotImplementedError


class Counts(Model):
    """Rows by key, from 1 again after `full`."""

    def __init__(self, full: int | None = None) -> None:
        self._counts: Counter[str] = Counter()
        self._full = full

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        self._counts.update(row["key"] for row in rows)
        for key in dict.fromkeys(row["key"] for row in rows):
            yield {"key": key, "n": self._counts[key]}
            if self._full is not None and self._counts[key] >= self._full:
                del self._counts[key]


class Members(Model):
    """New pairs of key and amount; after a row, its key's next smaller amount is new again."""

    def __init__(self) -> None:
        self._members: set[tuple[str, int]] = set()

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        for row in rows:
            member = row["key"], row["amount"]
            if member not in self._members:
                self._members.add(member)
                yield {"key": row["key"], "n": row["amount"]}
        self._members -= {(row["key"], row["amount"] - 1) for row in rows}


class Pooled(Model):
    """Rows by key, of the last seconds."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int]] = []

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        self._rows += [(row["key"], row["ms"]) for row in rows]
        self._rows = [(key, ms) for key, ms in self._rows if ms >= now_ms - POOL_MS]
        counts = Counter(key for key, _ in self._rows)
        for key in dict.fromkeys(row["key"] for row in rows):
            yield {"key": key, "n": counts[key]}


class Fired(Model):
    """Each key some time after its last row, by event time."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        reached = -1 if watermark_ms is None else watermark_ms
        for key, at in list(self._at.items()):
            if at <= reached:
                del self._at[key]
                yield {"key": key, "n": at}
        self._at.update((row["key"], row["ms"] + TIMER_MS) for row in rows)


def places(rows: pa.Table) -> npt.NDArray[np.int64]:
    """The number of each row's word."""
    return np.array([WORDS.index(key) for key in rows["key"].to_pylist()], np.int64)


def emit_counts(out: Emitter, found: npt.NDArray[np.int64], counts: Any) -> None:
    """Emits the counts of the words with the numbers `found`, one row each, in that order."""
    words = list(dict.fromkeys(found.tolist()))
    out.emit(pa.table([[WORDS[w] for w in words], [int(counts[w]) for w in words]], schema=COUNTED))


def of_mine(operator: Operator, counts: Any) -> Any:
    """`counts` by word, 0 for the words of other partitions."""
    owners = partitions(pa.table({"key": KEYS}), ("key",), operator.parallelism)
    return np.where(owners == operator.partition, counts, 0)


class OfValue(Operator):
    """Counts in a `Value` as JSON."""

    output = COUNTED
    counts = Value(pa.string(), default="{}")

    def process(self, batch: pa.Table, out: Emitter) -> None:
        counts = Counter(orjson.loads(self.counts.get()))
        counts.update(batch["key"].to_pylist())
        self.counts.set(orjson.dumps(counts).decode())
        emit_counts(out, places(batch), [counts[word] for word in WORDS])

    def rescale(self, old: Sequence[Any]) -> None:
        every: Counter[str] = Counter()
        for one in old:
            every.update(orjson.loads(one.counts.get()))
        mine = of_mine(self, [every[word] for word in WORDS]).tolist()
        kept = {word: n for word, n in zip(WORDS, mine, strict=True) if n}
        self.counts.set(orjson.dumps(kept).decode())


class OfVector(Operator):
    """Counts in a `Vector` with a cell for each word."""

    output = COUNTED
    counts = Vector(pa.int64(), len(WORDS))

    def process(self, batch: pa.Table, out: Emitter) -> None:
        found = places(batch)
        self.counts.add_at(found, 1)
        emit_counts(out, found, self.counts.values)

    def rescale(self, old: Sequence[Any]) -> None:
        self.counts.set(of_mine(self, sum(one.counts.values for one in old)))


class OfMatrix(Operator):
    """Two rows: of odd and of even amounts."""

    output = COUNTED
    counts = Matrix(pa.int64(), rows=2, columns=len(WORDS))

    def process(self, batch: pa.Table, out: Emitter) -> None:
        found = places(batch)
        self.counts.add_at(batch["amount"].to_numpy() % 2, found, 1)
        emit_counts(out, found, self.counts.values.sum(axis=0))

    def rescale(self, old: Sequence[Any]) -> None:
        self.counts.set(of_mine(self, sum(one.counts.values for one in old)))


class OfTable(Operator):
    """Counts in a `Table`, from which full ones are deleted."""

    output = COUNTED
    counts = Table(key=pa.string(), n=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        changed = self.counts.add(batch["key"], n=1)
        out.emit(changed)
        self.counts.delete(changed.filter(pa.array(changed["n"].to_numpy() >= FULL))["key"])


class OfSet(Operator):
    """Emits what is new in a `Set`, and discards the next smaller amounts."""

    output = COUNTED
    members = Set({"key": pa.string(), "n": pa.int64()})

    def process(self, batch: pa.Table, out: Emitter) -> None:
        given = batch.select(["key", "amount"]).rename_columns(["key", "n"])
        out.emit(given.filter(self.members.add(given)))
        self.members.discard({"key": given["key"], "n": pa.array(given["n"].to_numpy() - 1)})


class OfPool(Operator):
    """Counts the rows of the last seconds, which a `Pool` has."""

    output = COUNTED
    rows = Pool({"ms": pa.int64(), "key": pa.string()}, time="ms", key=["key"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.rows.append(batch)
        self.rows.expire(self.now - POOL_MS)
        keys = list(dict.fromkeys(batch["key"].to_pylist()))
        _, found = self.rows.match(pa.array(keys, pa.string()))
        counts = Counter(found["key"].to_pylist())
        out.emit(pa.table([keys, [counts[key] for key in keys]], schema=COUNTED))


class OfTimers(Operator):
    """Emits the key of a timer that is due."""

    output = COUNTED
    needs_watermark = True
    timers = Timers(key=pa.string())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.timers.set(batch["key"], pa.array(batch["ms"].to_numpy() + TIMER_MS))

    def on_timer(self, due: pa.Table, out: Emitter) -> None:
        at = due["at"].cast(pa.int64())
        out.emit(pa.table([due["key"], at], schema=COUNTED))
