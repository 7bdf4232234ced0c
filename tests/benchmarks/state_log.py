"""What it costs an epoch to have its outputs in a file of their own: microseconds of a partition.

One epoch's entry of a state log: a delta of `--delta` bytes, outputs of several sizes, on each of
the given folders. Both forms are written in turns; medians, and the 90th percentile.

    python tests/benchmarks/state_log.py /dev/shm /var/tmp
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

from perseid.state.durability.blob import Identity
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog

IDENTITY = Identity("uuid", 1, "counts", 0)
SIZES = (2_000, 20_000, 1_000_000)  # bytes of outputs
COLLECTED = 100  # epochs between two collections, which are not measured


def main(folders: list[str], delta: int, epochs: int) -> None:
    print(f"{'folder':12} {'outputs':>9} {'in the delta':>16} {'in a file':>16} {'more':>7}  us")
    for folder in folders:
        for size in SIZES:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                inside, apart = measured(place, bytes(delta), bytes(size), epochs)
            more = statistics.median(apart) - statistics.median(inside)
            print(f"{folder:12} {size:>9} {shown(inside):>16} {shown(apart):>16} {more:>7.1f}")


def measured(
    place: str, delta: bytes, outputs: bytes, epochs: int
) -> tuple[list[float], list[float]]:
    logs = [begun(f"{place}/{name}", retains=name == "apart") for name in ("inside", "apart")]
    took: tuple[list[float], list[float]] = ([], [])
    for epoch in range(1, epochs + 1):
        for log, times in zip(logs, took, strict=True):
            started = time.perf_counter()
            log.append(epoch, 1, epoch, {"state.total": delta}, {"out": outputs})
            times.append((time.perf_counter() - started) * 1e6)
        if epoch % COLLECTED == 0:
            for log in logs:
                log.write_snapshot(epoch, 1, epoch, {})
                log.collect(epoch)
                log.release(epoch)
    return took


def begun(directory: str, *, retains: bool) -> StateLog:
    log = StateLog(LocalFiles(), directory, IDENTITY, retains=retains)
    log.create()
    log.write_snapshot(0, 1, 0, {})
    return log


def shown(times: list[float]) -> str:
    ninth = statistics.quantiles(times, n=10)[-1]
    return f"{statistics.median(times):.0f} ({ninth:.0f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--delta", type=int, default=4_000, help="bytes of the state's delta")
    parser.add_argument("--epochs", type=int, default=2_000)
    options = parser.parse_args()
    main(options.folders, options.delta, options.epochs)
