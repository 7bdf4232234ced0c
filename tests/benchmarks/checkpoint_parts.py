"""What a checkpoint's part costs, and who pays: CPU of the epoch's task, CPU of the part writer.

One operator partition of a `Table` (string key of `--width` characters, one int64). Between two
checkpoints 20 epochs change a `--share` of its keys, each key several times. State log on
/dev/shm, store on disk. Run it alone; CPU time, so that a busy machine shows less.

    python tests/benchmarks/checkpoint_parts.py 100000 1000000 10000000
    python tests/benchmarks/checkpoint_parts.py 2500000 --width 88 --share 0.5
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.state import Table
from perseid.state.durability import checkpoint
from perseid.state.durability.blob import Identity
from perseid.state.durability.checkpoint import Manifest, Part
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.store import LocalStore
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.worker.checkpoint.parts import PartOrder, make

IDENTITY = Identity("uuid", 1, "counts", 0)
EPOCHS = 20


def main(sizes: list[int], width: int, share: float) -> None:
    pa.set_cpu_count(1)
    print(f"{'keys':>10} {'state MB':>9} {'snapshot':>9} {'order':>9} {'net':>9} {'net MB':>7} "
          f"{'whole':>9} {'restore':>9}  CPU s")  # fmt: skip
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm") as logs,
            tempfile.TemporaryDirectory() as store,
        ):
            measure(size, width, share, f"{logs}/log", LocalStore(store))


def measure(size: int, width: int, share: float, directory: str, store: LocalStore) -> None:
    log = StateLog(LocalFiles(), directory, IDENTITY)
    log.create()
    rng = np.random.default_rng(1)
    table = Table(key=pa.string(), n=pa.int64())
    zeros = pa.array(np.zeros(size, int))
    base = ipc_bytes(pa.table({"key": keys_of(np.arange(size), width), "n": zeros}))
    table.restore(ipc_table(base))
    log.write_snapshot(1, 1, 1, {"state.total": base})
    changing = rng.choice(size, int(size * share), replace=False)
    for epoch in range(2, EPOCHS + 2):
        some = np.unique(rng.choice(changing, len(changing) // 4))
        table.upsert(keys_of(some, width), n=pa.array(some * epoch))
        delta = table.delta()
        assert delta is not None
        table.commit()
        log.append(epoch, 1, epoch, {"state.total": ipc_bytes(delta), "out": b""})
    schemas = {"total": table.schema()}
    first = PartOrder("job", IDENTITY, directory, 1, 1, 1, None, schemas, ())
    manifest = written(store, first, make(first, LocalFiles(), store))
    path, crc = checkpoint.write_manifest(store, manifest)
    second = PartOrder("job", IDENTITY, directory, 1, EPOCHS + 1, EPOCHS + 1, (path, crc),
                       schemas, ())  # fmt: skip
    net_s, done = timed(lambda: make(second, LocalFiles(mapped=True), store))
    restore_s, sections = timed(
        lambda: checkpoint.read_state(store, written(store, second, done), "counts", 0)
    )
    whole_order = PartOrder(*[*fields(second)[:6], None, *fields(second)[7:]])
    whole_s, _ = timed(lambda: make(whole_order, LocalFiles(mapped=True), store))
    table.restore(ipc_table(sections["state.total"]))
    snapshot_s, _ = timed(lambda: log_snapshot(table, directory))
    order_s, _ = timed(lambda: PartOrder(*fields(second)).encode())
    print(f"{size:>10} {len(base) / 1e6:>9.1f} {snapshot_s:>9.4f} {order_s:>9.6f} {net_s:>9.3f} "
          f"{done.bytes / 1e6:>7.1f} {whole_s:>9.3f} {restore_s:>9.3f}", flush=True)  # fmt: skip


def log_snapshot(table: Table, directory: str) -> None:
    """What the epoch's task did before: the whole state into a file of the log."""
    log = StateLog(LocalFiles(), f"{directory}-before", IDENTITY)
    log.create()
    log.write_snapshot(1, 1, 1, {"state.total": ipc_bytes(table.snapshot())})


def written(store: LocalStore, order: PartOrder, done: Any) -> Manifest:
    part = Part(done.operator, done.partition, done.path, done.bytes, done.crc, done.chain)
    return Manifest("job", "uuid", order.epoch, 1, 1, "r", order.token_offset, 0, (part,))


def fields(order: PartOrder) -> list[Any]:
    return [getattr(order, name) for name in PartOrder.__dataclass_fields__]


def keys_of(numbers: Any, width: int) -> pa.Array:
    return pa.array(np.char.zfill(numbers.astype(str), width).tolist(), pa.string())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("sizes", nargs="*", type=int, default=[100_000, 1_000_000])
    options.add_argument("--width", type=int, default=10, help="characters of a key")
    options.add_argument("--share", type=float, default=0.05, help="of the keys that change")
    chosen = options.parse_args()
    main(chosen.sizes, chosen.width, chosen.share)
