"""Tables as Arrow IPC streams: what is kept of a table that has no rows."""

import numpy as np
import pyarrow as pa
import pytest

from perseid.state import arrow
from perseid.state.arrow import ipc_bytes, ipc_chunks, ipc_table

COLUMNS = pa.schema([("key", pa.string()), ("count", pa.int64())])


def read_back(table: pa.Table) -> pa.Table:
    with pa.ipc.open_stream(ipc_bytes(table)) as stream:
        return stream.read_all()


@pytest.mark.parametrize("rows", [[], [{"key": "a", "count": 1}]], ids=["no rows", "a row"])
def test_tables_of_one_schema_keep_their_own_metadata(rows: list[dict[str, object]]) -> None:
    for bound in (b"10", b"20", None):
        schema = COLUMNS.with_metadata({b"bound": bound}) if bound else COLUMNS
        again = read_back(pa.Table.from_pylist(rows, schema=schema))
        assert (again.schema.metadata or {}).get(b"bound") == bound
        assert again.to_pylist() == rows


def test_a_large_table_is_the_same_stream_in_a_buffer_of_its_size() -> None:
    rows = pa.table({"key": [f"{n:0100d}" for n in range(20_000)], "n": range(20_000)})
    chunked = pa.concat_tables([rows, rows.slice(5, 7)])
    for table in (rows, chunked):
        assert table.nbytes > arrow._LARGE_BYTES
        sink = pa.BufferOutputStream()
        arrow._write(table, sink)
        assert ipc_bytes(table) == sink.getvalue()
        assert ipc_table(ipc_bytes(table)).equals(table)


def test_chunks_are_the_same_bytes_and_of_a_large_table_its_own_memory() -> None:
    small, half = pa.table({"n": [1, 2]}), pa.table({"n": np.arange(200_000), "k": ["x"] * 200_000})
    large = pa.concat_tables([half, half])  # as two chunks, so two batches
    for table in (small, half, large):
        assert b"".join(ipc_chunks(table)) == ipc_bytes(table)
    memory = half["n"].chunk(0).buffers()[1].address
    found = [pa.py_buffer(chunk) for chunk in ipc_chunks(large)]
    assert [buffer.address for buffer in found].count(memory) == 2
