"""Rows between operators of one epoch: Arrow tables, divided into blobs by consumer.

A shuffle moves few, large rows of the schema below instead of one JVM row per record. Every sender
of an edge sends every target one *set* of chunks in each epoch, an empty one included: it is the
barrier of the epoch, and shows a task which operator partition it is. `barriers` counts the sets. A
consumer sorts its input by (input, origin, chunk), so a re-run sees the same rows in the same
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.errors import PermanentError
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.worker.dataflow.partition import grouped

# Size of a blob, and of a batch of blobs between Python and Spark. malloc and Java reuse memory of
# this size, while larger blocks are allocated each time (decisions/0001).
CHUNK_BYTES = 1 << 20

SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),  # task index in the next stage
        ("target", pa.int32()),  # gid of the consumer, or below 0 of `graph.Graph.sql_targets`
        ("input", pa.int32()),  # index of the consumer's input
        ("origin", pa.int32()),  # of the set: the sender and the index of its task (`graph.Sender`)
        ("chunk", pa.int32()),
        ("chunks", pa.int32()),  # of the set
        ("blob", pa.binary()),  # Arrow IPC stream; empty: neither rows nor schema
    ]
)
DDL = "slot int, target int, input int, origin int, chunk int, chunks int, blob binary"


@dataclass(frozen=True, slots=True)
class Route:
    """One edge: the consumers' gids, the index of their input, and the key of the distribution.

    `key` empty: all rows go to the consumer at `origin % len(targets)` (writers of stateless
    operators, which have no key).
    """

    targets: tuple[int, ...]
    input: int
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of SCHEMA without its slot: a chunk of a set of `chunks`, all of one origin."""

    target: int
    input: int
    origin: int
    chunk: int
    blob: Any
    chunks: int = 1


def deal(
    table: pa.Table,
    route: Route,
    origin: int,
    parts: npt.NDArray[np.int64],
    chunk_bytes: int | None = None,
) -> Iterator[Row]:
    """Divides `table` by `parts` (a consumer index for each row) into one set for each target.

    `chunk_bytes`: of a chunk at most, CHUNK_BYTES by default.
    """
    order, bounds = grouped(parts, len(route.targets))
    dealt = table if _in_order(order) else table.take(pa.array(order))
    # the schema is sent in any case
    empty = ipc_bytes(table.slice(0, 0)) if table.num_columns else b""
    # rows per chunk, by their mean size
    step = max((chunk_bytes or CHUNK_BYTES) * len(dealt) // max(dealt.nbytes, 1), 1)
    for target, (start, end) in zip(route.targets, pairwise(bounds.tolist()), strict=True):
        if start == end:
            yield Row(target, route.input, origin, 0, empty)
        firsts = range(start, end, step)
        for chunk, first in enumerate(firsts):
            blob = ipc_bytes(dealt.slice(first, min(step, end - first)))
            yield Row(target, route.input, origin, chunk, blob, len(firsts))


def _in_order(order: npt.NDArray[np.int64]) -> bool:
    return not np.count_nonzero(order[1:] < order[:-1])


def to_batches(rows: Iterable[Row], slots: dict[int, int], width: int) -> Iterator[pa.RecordBatch]:
    """`rows` as batches for the next stage of `width` tasks; other rows go to any task.

    Yields at least one batch; a batch has at most CHUNK_BYTES, or one row.
    """
    for found in _by_size(rows):
        columns = [
            [slots.get(r.target, max(r.target, r.origin) % max(width, 1)) for r in found],
            [r.target for r in found],
            [r.input for r in found],
            [r.origin for r in found],
            [r.chunk for r in found],
            [r.chunks for r in found],
        ]
        arrays = [pa.array(c, type=pa.int32()) for c in columns]
        yield pa.RecordBatch.from_arrays([*arrays, _blobs(found)], schema=SCHEMA)


def _blobs(rows: list[Row]) -> pa.BinaryArray:
    """The blobs as a column; a large blob, alone in its batch, is not copied."""
    if len(rows) == 1 and isinstance(rows[0].blob, pa.Buffer):
        ends = pa.array([0, len(rows[0].blob)], pa.int32()).buffers()[1]
        return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, rows[0].blob])
    # Not as memoryviews: Arrow takes them too, but never releases their memory.
    blobs = [r.blob.to_pybytes() if isinstance(r.blob, pa.Buffer) else r.blob for r in rows]
    return pa.array(blobs, pa.binary())


def size_bytes(rows: Iterable[Row]) -> int:
    return sum(len(row.blob) for row in rows)


def _by_size(rows: Iterable[Row]) -> Iterator[list[Row]]:
    found: list[Row] = []
    size = 0
    for row in rows:
        if found and size + len(row.blob) > CHUNK_BYTES:
            yield found
            found, size = [], 0
        found.append(row)
        size += len(row.blob)
    yield found


def from_batches(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """The rows of a stage's input, without a copy of the blobs."""
    found: list[Row] = []
    for batch in batches:
        *numbers, chunks = [batch.column(i).to_pylist() for i in range(1, 6)]
        blobs = [value.as_buffer() for value in batch.column(6)]
        found.extend(map(Row, *numbers, blobs, chunks))
    return found


def inputs(rows: Iterable[Row], names: tuple[str, ...]) -> dict[str, pa.Table]:
    """The tables of one operator partition by input name; without columns if no rows came.

    PermanentError when their columns differ: `one_table`.
    """
    ordered = sorted(rows, key=lambda r: (r.input, r.origin, r.chunk))
    tables: dict[str, list[pa.Table]] = {name: [] for name in names}
    for row in ordered:
        if len(row.blob):
            tables[names[row.input]].append(ipc_table(row.blob))
    return {name: one_table(name, found) for name, found in tables.items()}


def one_table(name: str, tables: list[pa.Table]) -> pa.Table:
    """The rows of one input; PermanentError when their columns differ."""
    try:
        return pa.concat_tables(tables) if tables else pa.table({})
    except pa.ArrowInvalid:
        for table in tables:
            check_columns(name, tables[0].schema, table.schema)
        raise


def check_columns(name: str, expected: pa.Schema, found: pa.Schema) -> None:
    """PermanentError when rows of an input have other columns than expected.

    The partitions of an operator emit the same columns except in one epoch: one that a changed
    revision completes after the previous revision has computed a part of it.
    """
    if not found.equals(expected):
        one, other = (", ".join(f"{f.name} {f.type}" for f in s) for s in (expected, found))
        raise PermanentError(
            f"{name}: some rows have the columns ({other}), expected ({one}): its producer "
            "emitted others before it was changed. Apply a revision first whose operators emit the "
            "previous columns, and change them when it runs"
        )
