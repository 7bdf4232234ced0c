"""Poison taken back in place: what stays is what the rows without it make, of every primitive."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from perseid.jobs.operator import Emitter, Operator
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector
from perseid.state.durability.merging import STATE
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.testing.files import MemoryFiles
from perseid.worker.dead_letters.poison import Sieve

EPOCHS = 8
POISON = 13


class Everything(Operator):
    """Writes to each kind of primitive, and raises after all writes."""

    sums = Table(key=pa.string(), n=pa.int64(), low=pa.float64())
    young = Table(key=pa.string(), ttl=timedelta(milliseconds=2), n=pa.int64())
    seen = Set(pa.int64())
    bag = Pool({"key": pa.string(), "n": pa.int64(), "at": pa.int64()}, time="at")
    last = Value(pa.int64(), default=0)
    cells = Vector(pa.int64(), 8)
    grid = Matrix(pa.float64(), 2, 8)
    ends = Timers(key=pa.string(), time="token")

    def on_timer(self, due: pa.Table, out: Emitter) -> None:
        self.sums.delete(due["key"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        key, n = batch["key"], batch["n"]
        eighths = n.to_numpy() % 8
        self.sums.fold(key, add={"n": n}, min={"low": n.cast(pa.float64())})
        self.young.advance(self.now)
        self.young.upsert(key, n=n)
        self.seen.add(n)
        self.seen.discard(n.slice(0, 1))
        self.bag.append(batch.append_column("at", pa.array([self.now] * len(n), pa.int64())))
        self.bag.expire(self.now - 2)
        self.last.set(self.last.get() + len(n))
        self.cells.add_at(eighths, n)
        self.grid.max_at(eighths % 2, eighths, n.cast(pa.float64()))
        self.ends.set(key, [self.now + 2] * len(n))
        if POISON in n.to_pylist():
            raise ValueError("poison")
        out.emit(self.sums.scan())


def rows_of(seed: int) -> list[list[tuple[str, int]]]:
    chance = random.Random(seed)
    return [
        [(f"k{chance.randrange(6)}", chance.randrange(30)) for _ in range(chance.randint(1, 25))]
        for _ in range(EPOCHS)
    ]


def table(rows: list[tuple[str, int]]) -> pa.Table:
    keys, numbers = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"key": pa.array(keys, pa.string()), "n": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("seed", range(12))
def test_what_stays_is_what_the_other_rows_make(partition: Any, seed: int) -> None:
    partition.operator = Everything
    state = partition.begun()
    clean = replace(partition, files=MemoryFiles())
    wanted = clean.begun()
    state.sieve = Sieve("totals", 0, ("key",))
    for epoch, rows in enumerate(rows_of(seed), 1):
        made = partition.feed(state, epoch, table(rows))
        kept = clean.feed(wanted, epoch, table([row for row in rows if row[1] != POISON]))
        letters = made.letters.num_rows if made.letters is not None else 0
        assert letters == len([row for row in rows if row[1] == POISON])
        assert made.output == kept.output
        found = partition.log().entry(epoch).sections
        deltas = clean.log().entry(epoch).sections
        assert {n for n in deltas if n.startswith(STATE)} == {
            n for n in found if n.startswith(STATE)
        }
        for name in deltas:
            assert ipc_table(found[name]) == ipc_table(deltas[name]), name
        for name, primitive in state.live.items():
            assert primitive.snapshot() == wanted.live[name].snapshot(), name
            assert primitive.size_bytes == wanted.live[name].size_bytes, name
            assert primitive.fits(ipc_table(ipc_bytes(primitive.snapshot()))), name


def test_no_try_reads_the_log(partition: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    partition.operator = Everything
    state = partition.begun()
    state.sieve = Sieve("totals", 0, ("key",))
    partition.feed(state, 1, table([("a", 1)]))
    monkeypatch.delattr("perseid.state.durability.log.StateLog.load")
    made = partition.feed(state, 2, table([("a", POISON), ("b", 2), ("c", POISON)]))
    assert made.letters.num_rows == 2
