"""One operator partition on a host and a store in memory, as the worker keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from perseid.engine.agreement import RestoreOrder
from perseid.engine.resume import Restored
from perseid.jobs.model.layout import Task
from perseid.jobs.operator import Emitter, Identity, Operator, opened
from perseid.records import MAIN, CheckpointPointer
from perseid.state import Table, Value
from perseid.state.durability import blob
from perseid.state.durability.checkpoint import (
    PART,
    Manifest,
    Part,
    checkpoint_folder,
    part_path,
    write_manifest,
    write_part,
)
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import (
    adopt,
    log_directory,
    owner_directory,
    owner_name,
)
from perseid.state.primitives.primitive import bind
from perseid.testing.files import MemoryFiles
from perseid.testing.store import MemoryStore
from perseid.topics.records import Token
from perseid.worker.checkpoint.parts import write_snapshot
from perseid.worker.epoch.partition_state import EpochResult, PartitionState
from perseid.worker.recovery.resplit import Share
from perseid.worker.recovery.restore import PartitionRestore

ROOT = "/state"
TASK = Task(0, "totals", 0, 1, stateful=True, ledger=0)
IDENTITY = blob.Identity("uuid", 1, TASK.operator, TASK.partition)
OWNER = owner_name(1, "w1-a")


class Totals(Operator):
    """Sums per key, and counts the rows of all keys; `process` may be set to fail."""

    total = Table(key=pa.string(), n=pa.int64())
    rows = Value(pa.int64(), default=0)
    calls = 0
    failing = False

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.calls += 1
        self.rows.set(self.rows.get() + batch.num_rows)
        changed = self.total.add(batch["key"], n=batch["n"])
        if self.failing:
            raise ValueError("as the test wants")
        out.emit(changed)


@dataclass
class Partition:
    """Partition 0 of `totals`; epoch e has its token at offset 100 + e by default."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    store: MemoryStore = field(default_factory=MemoryStore)
    task: Task = TASK
    identity: blob.Identity = IDENTITY
    owner: str = OWNER
    operator: type[Operator] = Totals
    parallelism: int = 1
    retains: bool = False
    replica: str = MAIN

    @property
    def directory(self) -> str:
        """Where the present owner has the log."""
        uuid, layout = self.identity.job_uuid, self.identity.layout
        owned = owner_directory(ROOT, uuid, layout, self.owner, self.replica)
        return log_directory(owned, self.task.operator, self.task.partition)

    def log(self) -> StateLog:
        """The log as a process of the owner opens it."""
        return StateLog(self.files, self.directory, self.identity, retains=self.retains)

    def snapshot_files(self) -> list[str]:
        names = self.files.list(self.directory)
        return [f"{self.directory}/{n}" for n in names if n.endswith(".snapshot")]

    def take_over(self, generation: int) -> StateLog:
        self.owner = owner_name(generation, f"w{generation}-a")
        adopt(self.files, ROOT, "uuid", self.identity.layout, self.owner, self.replica)
        log = self.log()
        log.create()
        return log

    def share(self, partition: int) -> Share:
        return Share("totals", ("key",), partition, self.parallelism, self.made)

    def made(self, partition: int, parallelism: int) -> Operator:
        return opened(self.operator, Identity("job", "totals", partition, parallelism), {})

    def state(self, log: StateLog | None = None) -> PartitionState:
        """A process' resident copy."""
        operator = self.made(0, 1)
        return PartitionState(operator, bind(operator), log or self.log())

    def begun(self) -> PartitionState:
        state = self.state(self.take_over(1))
        state.log.write_snapshot(0, 1, 100, {})
        return state

    def run(
        self, state: PartitionState, epoch: int, offset: int | None = None, generation: int = 1
    ) -> EpochResult:
        """Epoch e adds e to "all" and to "k<e>"."""
        rows = pa.table({"key": ["all", f"k{epoch}"], "n": [epoch, epoch]})
        return self.feed(state, epoch, rows, offset, generation=generation)

    def feed(
        self, state: PartitionState, epoch: int, rows: pa.Table, offset: int | None = None,
        watermark: int | None = None, generation: int = 1,
    ) -> EpochResult:  # fmt: skip
        at = 100 + epoch if offset is None else offset
        token = Token(1, "uuid", epoch, at - 1, "r", 1, (), epoch, watermark)
        out = Emitter("totals", None, self.operator.outputs)
        return state.run(token, at, generation, {"input": rows}, out)

    def snapshot(self, state: PartitionState, epoch: int, generation: int = 1) -> None:
        """Has the state of `epoch` written into the log as one file."""
        write_snapshot(state.log, state.part_order("job", generation, epoch, 100 + epoch, None))

    def checkpoint(self, epoch: int, generation: int = 1) -> CheckpointPointer:
        """Puts the log's snapshot of `epoch` into the store."""
        entry = self.log().snapshot(epoch)
        folder = checkpoint_folder("job", "uuid", epoch, generation, 100 + epoch)
        path = part_path(folder, "totals", 0, PART)
        size, crc = write_part(self.store, path, entry.header, entry.sections)
        parts = (Part("totals", 0, path, size, crc),)
        manifest = Manifest("job", "uuid", epoch, generation, 1, "r", 100 + epoch, 0, parts)
        at, manifest_crc = write_manifest(self.store, manifest)
        return CheckpointPointer(epoch, generation, 1, "r", 100 + epoch, at, manifest_crc, size, 0)

    def restore(
        self,
        generation: int,
        tip: int,
        pointers: tuple[CheckpointPointer, ...] = (),
        **changes: Any,
    ) -> tuple[Restored, PartitionState]:
        """A new owner restores; its resident state is brought to what it found."""
        log = self.take_over(generation)
        fields = {
            "tokens": {e: 100 + e for e in range(tip + 1)}, "tip_epoch": tip, "base_epoch": 0,
            "base_offset": 100, "floor": None, "taken_back_below": 1000, **changes,
        }  # fmt: skip
        order = RestoreOrder(pointers=pointers, generation=generation, **fields)
        work = PartitionRestore(
            self.files, self.store, log, self.task, self.identity, self.share(self.task.partition)
        )
        found = work.run(order)
        state = self.state(log)
        state.bring_to(found.epoch)
        return found, state

    def damage_log(self, kind: str, epoch: int) -> None:
        path = self.log()._path(kind, epoch)
        data = self.files.read(path)
        self.files.damage(path, data[:-1] + bytes([data[-1] ^ 1]))

    def damage(self, path: str) -> None:
        data = bytearray(self.store.content[path])
        data[len(data) // 2] ^= 1
        self.store.content[path] = bytes(data)

    def totals(self, state: PartitionState) -> dict[str, int]:
        rows: pa.Table = state.live["total"].snapshot()
        return dict(zip(rows["key"].to_pylist(), rows["n"].to_pylist(), strict=True))


@pytest.fixture
def partition() -> Partition:
    return Partition()


def expected_totals(epoch: int) -> dict[str, int]:
    """The state of `Partition.run` at the end of `epoch`."""
    each = {f"k{e}": e for e in range(1, epoch + 1)}
    return {"all": sum(each.values()), **each} if each else {}


@pytest.fixture
def totals_at() -> Any:
    return expected_totals
