"""Arrow tables to IPC bytes and back; reading does not copy the data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import DamagedFile
from perseid.kernels.library import text_ends

# Made once: otherwise pyarrow reads the environment for them at every call.
_OPTIONS = pa.ipc.IpcWriteOptions()
_READ = pa.ipc.IpcReadOptions()
_SMALL_BYTES = 256  # of a table with few columns and no rows
_LARGE_BYTES = 1 << 20  # worth writing twice, first only to count its bytes
BATCH_ROWS = 1 << 16  # rows per record batch of large tables in chunks


def ipc_bytes(table: pa.Table) -> pa.Buffer:
    """`table` in Arrow's IPC stream format."""
    if table.num_rows or table.schema.metadata:  # schemas are equal whatever their metadata
        return _written(table)
    return _without_rows(table.schema)


@lru_cache(maxsize=64)
def _without_rows(schema: pa.Schema) -> pa.Buffer:
    """Cached: in a small epoch only the consumers of its few keys get rows."""
    return _written(schema.empty_table())


def _written(table: pa.Table) -> pa.Buffer:
    if table.nbytes > _LARGE_BYTES:
        return _written_large(table)
    sink = pa.BufferOutputStream()
    _write(table, sink)
    return sink.getvalue()


def _written_large(table: pa.Table) -> pa.Buffer:
    """Writes into a buffer of the right size: a growing one copies its contents."""
    counting = pa.MockOutputStream()
    _write(table, counting)
    made = pa.allocate_buffer(counting.size())
    _write(table, pa.FixedSizeBufferWriter(made))
    return made


def ipc_chunks(table: pa.Table) -> list[memoryview]:
    """IPC bytes in chunks, which share the table's memory where possible.

    Record batches have BATCH_ROWS, whatever the table's chunks: equal tables have equal bytes. Only
    a batch across two chunks is copied.
    """
    batches = []
    for start in range(0, len(table), BATCH_ROWS):
        rows = table.slice(start, BATCH_ROWS).combine_chunks()
        columns = [_exact(column.chunk(0)) for column in rows.columns]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=table.schema))
    sink = _Chunks()
    _write(pa.Table.from_batches(batches, table.schema), pa.PythonFile(sink, mode="w"))
    return sink.found


def _exact(array: pa.Array) -> pa.Array:
    """The same array without unused memory around it, which Arrow would partly write, too."""
    kind = array.type
    if array.null_count == 0 and pa.types.is_primitive(kind) and kind.bit_width >= 8:
        return array
    if array.null_count == 0 and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        places, data = text_ends(array), array.buffers()[2]
        first, end = int(places[0]), int(places[-1])
        rebased = pa.py_buffer(places - np.int32(first) if first else places)
        text = data.slice(first, end - first)
        return pa.Array.from_buffers(kind, len(array), [None, rebased, text])
    return pa.concat_arrays([array, array.slice(0, 0)])


class _Chunks:
    """A file for `pa.PythonFile`, to which Arrow passes columns without a copy."""

    closed = False

    def __init__(self) -> None:
        self.found: list[memoryview] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        self.found.append(memoryview(data).cast("B"))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)


def ipc_table(data: Any) -> pa.Table:
    """The table inside `data` (bytes-like), whose columns point into `data`."""
    return _read(data) if len(data) > _SMALL_BYTES else _known(bytes(data))


@lru_cache(maxsize=64)
def _known(data: bytes) -> pa.Table:
    """Cached like `_without_rows`: most small blobs are the same few bytes."""
    return _read(data)


def _read(data: Any) -> pa.Table:
    try:
        with pa.ipc.open_stream(pa.py_buffer(data), options=_READ) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedFile(f"an Arrow section cannot be read: {error}") from error
