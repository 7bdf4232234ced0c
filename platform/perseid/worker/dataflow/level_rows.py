"""The rows of a level on their way from the driver to its tasks: a file for each task.

Driver and tasks are on one host, so nothing is sent: a task maps its file, and the blobs of its
rows lie in the mapping, which outlives the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from perseid.worker.dataflow.edges import SCHEMA, Row, from_batches, to_batches


def write(folder: Path, rows: Iterable[Row], slots: Mapping[int, int], width: int) -> None:
    """Writes the rows of each of `width` tasks. `slots`: the task by the gid of the target."""
    mine: list[list[Row]] = [[] for _ in range(width)]
    for row in rows:
        mine[slots[row.target]].append(row)
    for slot, found in enumerate(mine):
        path = str(_path(folder, slot))
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, SCHEMA) as out:
            for batch in to_batches(found, dict(slots), width):
                out.write_batch(batch)


def read(folder: Path, slot: int) -> list[Row]:
    with pa.memory_map(str(_path(folder, slot))) as file, pa.ipc.open_file(file) as found:
        return from_batches([found.get_batch(n) for n in range(found.num_record_batches)])


def delete(folder: Path, width: int) -> None:
    """Also files that `write` did not get to."""
    for slot in range(width):
        _path(folder, slot).unlink(missing_ok=True)


def _path(folder: Path, slot: int) -> Path:
    return folder / f"{slot}.arrow"
