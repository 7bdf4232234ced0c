"""What a `Table` costs: 250,000 keys in one operator partition, 25,000 of them changed an epoch.

Run with `python tests/benchmarks/state_table.py`; prints the median and the best of the runs in
milliseconds. Keys of an epoch are chosen again each time and all over the table, which is the worst
case for the caches of the processor.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.state import Table
from perseid.state.durability.blob import Header, Identity, decode, encode
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

HEADER = Header("snapshot", Identity("uuid", 1, "counts", 0), 1, 1, 1)


class Keys:
    """Keys of one kind: all of them, and random choices."""

    def __init__(self, kind: str, rows: int, seed: int) -> None:
        numbers = pa.array(np.random.default_rng(seed).permutation(rows * 10)[:rows])
        words = pa.array([f"word-{n:07d}" for n in numbers.to_pylist()])
        self.all: Any = {"string": words, "int64": numbers}.get(kind)
        self.type: Any = pa.string() if kind == "string" else pa.int64()
        if kind == "composite":
            self.type = {"word": pa.string(), "day": pa.int64()}
            self.all = pa.table({"word": words, "day": numbers})
        self._chance = np.random.default_rng(seed + 1)

    def some(self, count: int, *, repeated: bool = False) -> Any:
        rows = len(self.all)
        if repeated:
            chosen = self._chance.zipf(1.3, count) % rows
        else:
            chosen = self._chance.permutation(rows)[:count]
        return self.all.take(pa.array(chosen))


def measure(name: str, runs: int, prepare: Callable[[], Any], work: Callable[[Any], Any]) -> None:
    times = []
    for _ in range(runs):
        given = prepare()
        start = time.perf_counter()
        work(given)
        times.append((time.perf_counter() - start) * 1000)
    print(f"  {name:36s} {statistics.median(times):9.2f} ms   best {min(times):9.2f} ms")


def bench(kind: str, rows: int, changed: int, runs: int) -> None:
    keys = Keys(kind, rows, seed=7)
    print(f"{kind} keys: {rows:,} rows, {changed:,} changed")
    table = Table(key=keys.type, n=pa.int64())
    measure(f"add {rows:,} new keys", runs, table.fresh, lambda t: t.add(keys.all, n=1))
    table.add(keys.all, n=1)
    table.commit()

    def choose() -> Any:
        return keys.some(changed)

    def changed_table() -> Table:
        table.add(choose(), n=1)
        return table

    def foreign_delta() -> pa.Table:
        table.add(choose(), n=1)
        delta = table.delta()
        table.commit()
        return delta

    measure(f"add {changed:,} distinct keys", runs, choose, lambda k: table.add(k, n=1))
    measure("upsert as many", runs, choose, lambda k: table.upsert(k, n=1))
    measure("lookup as many", runs, choose, table.lookup)
    measure(
        "add 200,000 rows of repeated keys",
        runs,
        lambda: keys.some(200_000, repeated=True),
        lambda k: table.add(k, n=1),
    )
    table.commit()
    measure("delta", runs, changed_table, lambda t: (t.delta(), t.commit()))
    measure("apply", runs, foreign_delta, table.apply)
    measure("snapshot", runs, lambda: None, lambda _: table.snapshot())
    sections = {"state.total": ipc_bytes(table.snapshot())}
    measure("snapshot to a file's bytes", runs, lambda: sections, lambda s: encode(HEADER, s))
    data = b"".join(encode(HEADER, sections))

    def restore(target: Table) -> None:
        target.restore(ipc_table(decode(data, where="bench")[1]["state.total"]))

    measure("restore from a file's bytes", runs, table.fresh, restore)
    measure(
        f"delete {changed:,}, then add them again",
        runs,
        choose,
        lambda k: (table.delete(k), table.add(k, n=1)),
    )
    print(f"  snapshot {len(data):,} bytes, size_bytes {table.size_bytes:,}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=250_000)
    arguments.add_argument("--changed", type=int, default=25_000)
    arguments.add_argument("--runs", type=int, default=7)
    given = arguments.parse_args()
    for kind in ("string", "int64", "composite"):
        bench(kind, given.rows, given.changed, given.runs)


if __name__ == "__main__":
    main()
