"""The rows of a level come from the driver's files as they were written, by task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from perseid.worker.dataflow import level_rows
from perseid.worker.dataflow.edges import Route, Row, deal

SLOTS = {5: 0, 6: 1, 7: 0}


def rows(count: int, chunk_bytes: int) -> list[Row]:
    table = pa.table({"k": [f"k{n}" for n in range(count)], "n": range(count)})
    parts = np.arange(count) % 3
    return list(deal(table, Route((5, 6, 7), 0, ("k",)), 4, parts, chunk_bytes))


def plain(row: Row) -> tuple[int, int, int, int, int, bytes]:
    return row.target, row.input, row.origin, row.chunk, row.chunks, bytes(row.blob)


@pytest.mark.parametrize(
    ("count", "chunk_bytes"), [(0, 100), (1, 100), (5_000, 500), (90, 1 << 20)]
)
def test_each_task_gets_its_rows(tmp_path: Path, count: int, chunk_bytes: int) -> None:
    sent = rows(count, chunk_bytes)
    level_rows.write(tmp_path, sent, SLOTS, 2)
    found = [level_rows.read(tmp_path, slot) for slot in range(2)]
    level_rows.delete(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []
    for slot, mine in enumerate(found):  # also now: the mapping stays
        assert list(map(plain, mine)) == [plain(r) for r in sent if SLOTS[r.target] == slot]


def test_blobs_of_a_buffer_are_written_too(tmp_path: Path) -> None:
    blobs = [pa.py_buffer(memoryview(b"some rows")[5:]), pa.py_buffer(b""), b"plain"]
    level_rows.write(tmp_path, [Row(5, 0, n, 0, blob) for n, blob in enumerate(blobs)], SLOTS, 1)
    assert [bytes(row.blob) for row in level_rows.read(tmp_path, 0)] == [b"rows", b"", b"plain"]


def test_files_that_are_not_there_are_deleted_in_silence(tmp_path: Path) -> None:
    level_rows.write(tmp_path, [], SLOTS, 1)
    level_rows.delete(tmp_path, 4)
    assert list(tmp_path.iterdir()) == []
