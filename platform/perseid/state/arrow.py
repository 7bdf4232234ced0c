"""Arrow tables to IPC bytes and back, without copying the data on the way in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from perseid.errors import DamagedFile


def ipc_bytes(table: pa.Table) -> pa.Buffer:
    """`table` in Arrow's IPC stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def ipc_table(data: Any) -> pa.Table:
    """The table inside `data` (bytes-like), whose columns point into `data`."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedFile(f"an Arrow section cannot be read: {error}") from error
