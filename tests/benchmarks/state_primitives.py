"""What rollback, divergence and the primitives other than `Table` cost.

Run with `python tests/benchmarks/state_primitives.py`; prints the median and the best of the runs
in milliseconds. `state_table.py` has the rest of `Table`, and describes how keys are chosen.
"""

from __future__ import annotations

import gc
import statistics
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from perseid.state import Matrix, Pool, Set, Table, Vector
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

RUNS = 15
KEYS, CHANGED = 250_000, 25_000
POOL_ROWS, POOL_USERS = 1_000_000, 100_000


def measure(name: str, work: Callable[[], Any], prepare: Callable[[], Any] = lambda: None) -> None:
    times = [t * 1000 for t in timeit.repeat(work, prepare, number=1, repeat=RUNS)]
    print(f"  {name:50s} {statistics.median(times):9.3f} ms   best {min(times):9.3f} ms")


def words(numbers: Any) -> pa.Array:
    return pa.array([f"user-{n:06d}" for n in np.asarray(numbers).tolist()])


def bench_table(chance: np.random.Generator) -> None:
    print(f"Table of {KEYS:,} string keys, {CHANGED:,} changed an epoch")
    keys, table = words(range(KEYS)), Table(key=pa.string(), n=pa.int64())
    table.add(keys, n=1)
    table.commit()
    chosen = [keys.take(pa.array(chance.permutation(KEYS)[:CHANGED])) for _ in range(RUNS + 1)]

    def add() -> None:
        table.add(chosen[0], n=1)
        chosen.append(chosen.pop(0))

    measure("add", add)
    measure("commit", table.commit, add)
    measure("rollback", table.rollback, add)
    table.mark_backup()
    measure("add, divergence kept", add)
    table.commit()
    measure("commit, divergence kept", table.commit, add)
    print(f"    keys since the mark: {table.divergence('keys'):,.0f}")
    measure("divergence, of a maximum", lambda: table.divergence("maximum"))
    members = Set(pa.string())
    members.add(keys)
    measure(f"Set of as many: contains {CHANGED:,}", lambda: members.contains(chosen[0]))
    measure(f"Set of as many: add {CHANGED:,}", lambda: members.add(chosen[0]))


def bench_dense(chance: np.random.Generator) -> None:
    print("Matrix of 4 x 8000 int64 (Count-Min), 50,000 items")
    sketch, lines = Matrix(pa.int64(), rows=4, columns=8000), np.arange(4)[:, None]
    hashes, counts = chance.integers(0, 8000, (4, 50_000)), chance.integers(1, 1500, 50_000)
    flat, whole = (lines * 8000 + hashes).reshape(-1), np.tile(counts, 4)

    def add() -> None:
        sketch.add_at(lines, hashes, counts)

    def add_and_commit() -> None:
        add()
        sketch.commit()

    measure("np.add.at, to compare with", lambda: np.add.at(np.zeros(32_000, int), flat, whole))
    measure("add_at", add)
    measure("take", lambda: sketch.take(lines, hashes).min(axis=0))
    measure("delta", sketch.delta, add)
    measure("commit", sketch.commit, add)
    sketch.mark_backup()
    measure("commit, divergence kept", sketch.commit, add)
    measure("divergence", lambda: sketch.divergence("maximum"), add_and_commit)
    print("Vector of 2^20 float64, 100,000 cells changed an epoch")
    weights, index = Vector(pa.float64(), 1 << 20), chance.integers(0, 1 << 20, 100_000)
    measure("add_at", lambda: weights.add_at(index, 0.5), weights.commit)
    measure("delta", weights.delta)
    measure("rollback", weights.rollback, lambda: weights.add_at(index, 0.5))


def bench_pool(chance: np.random.Generator) -> None:
    print(f"Pool of {POOL_ROWS:,} rows of {POOL_USERS:,} users, {CHANGED:,} appended an epoch")
    types = {"at": pa.timestamp("ms"), "user": pa.string(), "n": pa.int64()}
    pool = Pool(types, time="at", key=["user"])

    def rows(epoch: int) -> pa.Table:
        at = np.sort(chance.integers(0, 1000, CHANGED)) + epoch * 1000
        user = words(chance.integers(0, POOL_USERS, CHANGED))
        return pa.table({"at": pa.array(at, pa.timestamp("ms")), "user": user, "n": range(CHANGED)})

    for epoch in range(POOL_ROWS // CHANGED):
        pool.append(rows(epoch))
        pool.commit()
    new, end = rows(epoch + 1), POOL_ROWS // CHANGED * 1000
    measure("append", lambda: pool.append(new), pool.rollback)
    measure("delta", pool.delta)
    pool.rollback()
    measure("expire as many", lambda: pool.expire(1000), pool.rollback)
    pool.rollback()
    measure(f"match {CHANGED:,} keys", lambda: pool.match(new["user"]))
    print(f"    pairs: {len(pool.match(new['user'])[0]):,}")
    measure("between, one epoch", lambda: pool.between(end // 2 + 300, end // 2 + 1300))
    snapshot = ipc_table(ipc_bytes(pool.snapshot()))
    measure("restore", lambda: pool.fresh().restore(snapshot))


def bench_memory(keys: int) -> None:
    def used() -> int:
        gc.collect()
        pa.default_memory_pool().release_unused()
        return int(psutil.Process().memory_full_info().uss)

    def filled(count: int) -> Table:
        table = Table(key=pa.string(), n=pa.int64())
        for start in range(0, count, CHANGED):
            table.add(words(range(start, min(start + CHANGED, count))), n=1)  # 11 characters
            table.commit()
        return table

    filled(1000)
    before = used()
    table = filled(keys)
    print(f"  {len(table):,} keys: {(used() - before) / keys:.0f} bytes a key")


def main() -> None:
    print("Memory of one copy, a string of 11 characters and an int64 a key")
    for keys in (1_000_000, 1_100_000):  # just before and just after the index grows
        bench_memory(keys)
    chance = np.random.default_rng(7)
    bench_table(chance)
    bench_dense(chance)
    bench_pool(chance)


if __name__ == "__main__":
    main()
