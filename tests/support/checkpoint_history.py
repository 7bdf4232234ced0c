"""Checkpoints of one partition over epochs and takeovers, with the state that each must give."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from perseid.coordinator import checkpoints
from perseid.engine.checkpoints import base_of, collectable
from perseid.jobs.operator import Emitter, Operator
from perseid.records import CheckpointPointer
from perseid.state import Pool, Table, Value
from perseid.state.durability import checkpoint
from perseid.state.durability.checkpoint import Manifest, Part
from perseid.state.primitives.arrow import ipc_table
from perseid.worker.checkpoint import parts
from perseid.worker.checkpoint.parts import make

Rows = list[tuple[str, int]]


class Churn(Operator):
    """Sums per key, which go when they are even after a negative amount; a window; a counter."""

    total = Table(key=pa.string(), n=pa.int64())
    recent = Pool({"at": pa.int64(), "key": pa.string()}, time="at")
    rows = Value(pa.int64(), default=0)
    epoch = 0

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.epoch = self.now  # the conftest's tokens have the epoch as their time
        self.rows.set(self.rows.get() + batch.num_rows)
        negative = {k for k, n in listed(batch) if n < 0}
        changed = self.total.add(batch["key"], n=batch["n"])
        self.recent.append({"at": [self.epoch] * batch.num_rows, "key": batch["key"]})
        self.recent.expire(self.epoch - 3)
        gone = [k for k, n in listed(changed) if k in negative and n % 2 == 0]
        self.total.delete(pa.array(gone, pa.string()))
        out.emit(changed)


@dataclass
class Model:
    """The same as plain Python."""

    total: dict[str, int] = field(default_factory=dict)
    recent: list[tuple[int, str]] = field(default_factory=list)
    rows: int = 0

    def feed(self, epoch: int, rows: Rows) -> None:
        if not rows:
            return  # the operator is not entered
        self.rows += len(rows)
        for key, n in rows:
            self.total[key] = self.total.get(key, 0) + n
        self.recent = [r for r in self.recent if r[0] >= epoch - 3] + [(epoch, k) for k, _ in rows]
        for key in {k for k, n in rows if n < 0}:
            if self.total[key] % 2 == 0:
                del self.total[key]

    def copy(self) -> Model:
        return Model(dict(self.total), list(self.recent), self.rows)


def listed(rows: pa.Table) -> Rows:
    return list(zip(rows["key"].to_pylist(), rows["n"].to_pylist(), strict=True))


def model_of(sections: Any) -> Model:
    """What the sections of a snapshot contain; a primitive without one is empty."""
    tables = {name: ipc_table(data) for name, data in sections.items()}
    total, recent = tables.get("state.total"), tables.get("state.recent")
    rows = tables.get("state.rows")
    return Model(
        dict(listed(total)) if total is not None else {},
        list(zip(recent["at"].to_pylist(), recent["key"].to_pylist(), strict=True))
        if recent is not None else [],
        rows["value"][0].as_py() if rows is not None else 0,
    )  # fmt: skip


@dataclass
class History:
    """Epochs, checkpoints and takeovers of one partition, with what should be in each epoch."""

    partition: Any
    rng: random.Random
    generation: int = 1
    epoch: int = 0
    model: Model = field(default_factory=Model)
    models: dict[int, Model] = field(default_factory=dict)
    pointers: tuple[CheckpointPointer, ...] = ()
    links: list[int] = field(default_factory=list)
    copy: parts.StateCopy | None = None

    def __post_init__(self) -> None:
        self.partition.operator = Churn
        self.state = self.partition.begun()
        self.models[0] = Model()

    def run(self) -> None:
        self.epoch += 1
        size = self.rng.choice([0, 1, 4])
        rows = [(f"k{self.rng.randrange(6)}", self.rng.randrange(-3, 4)) for _ in range(size)]
        table = pa.table({"key": pa.array([k for k, _ in rows], pa.string()),
                          "n": pa.array([n for _, n in rows], pa.int64())})  # fmt: skip
        self.partition.feed(self.state, self.epoch, table)
        self.model.feed(self.epoch, rows)
        self.models[self.epoch] = self.model.copy()

    def order(self, *, final: bool = False) -> parts.PartOrder:
        base = base_of(self.pointers, self.generation, whole=final)
        order, self.copy = self.state.ordered(
            "job", self.generation, self.epoch, 100 + self.epoch, base
        )
        return parts.PartOrder.decode(order.encode())

    def complete(self, order: parts.PartOrder) -> None:
        """What the process does with its order, and the coordinator with the one part."""
        copy, self.copy = self.copy, None  # a new owner has none
        if copy is not None:
            copy.write(self.partition.files, order)
        done = make(order, self.partition.files, self.partition.store)
        part = Part(done.operator, done.partition, done.path, done.bytes, done.crc, done.chain)
        manifest = Manifest("job", "uuid", order.epoch, order.generation, 1, "r",
                            order.token_offset, 0, (part,))  # fmt: skip
        path, crc = checkpoint.write_manifest(self.partition.store, manifest)
        pointer = CheckpointPointer(
            order.epoch, order.generation, 1, "r", order.token_offset, path, crc, done.bytes, 0,
            manifest.needs[0],
            manifest.needs,
        )  # fmt: skip
        self.pointers = checkpoints._kept(pointer, self.pointers)
        self.links.append(len(done.chain))
        checkpoint.collect(self.partition.store, "job", "uuid", [m for _, m in self.live()])
        self.state.log.collect(collectable(self.pointers))

    def live(self) -> list[tuple[int, Manifest]]:
        store = self.partition.store
        return [(p.epoch, checkpoint.read_manifest(store, p.manifest, p.crc))
                for p in self.pointers]  # fmt: skip

    def take_over(self, *, keep_log: bool) -> None:
        """A new owner resumes after what it finds; what came later is rolled back."""
        if not keep_log:
            self.partition.files.delete("/state")
        self.generation += 1
        pointers = self.pointers or ()
        tokens = {e: 100 + e for e in range(self.epoch + 1)}
        found, self.state = self.partition.restore(
            self.generation, self.epoch, pointers, tokens=tokens
        )
        self.epoch, self.model = found.epoch, self.models[found.epoch].copy()
        live = {n: p.snapshot() for n, p in self.state.live.items()}
        assert Model(dict(listed(live["total"])), [
            (r["at"], r["key"]) for r in live["recent"].to_pylist()
        ], live["rows"]["value"][0].as_py()) == self.model  # fmt: skip

    def check(self) -> None:
        """All checkpoints that are kept give the state of their epochs, order of rows included."""
        for epoch, manifest in self.live():
            sections = checkpoint.read_state(self.partition.store, manifest, "totals", 0)
            found, expected = model_of(sections), self.models[epoch]
            assert found == expected
            assert list(found.total) == list(expected.total)
