"""Tables as Arrow IPC streams: what is kept of a table that has no rows."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from perseid.state.primitives import arrow
from perseid.state.primitives.arrow import ipc_bytes, ipc_chunks, ipc_table

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


def test_chunks_of_equal_tables_are_the_same_bytes_and_their_own_memory() -> None:
    rows = 3 * arrow.BATCH_ROWS + 7
    numbers = range(rows)
    whole = pa.table({
        "n": np.arange(rows), "k": [f"k{n}" for n in numbers], "b": [n % 3 == 0 for n in numbers],
        "s": [None if n % 7 else str(n) for n in numbers], "m": [n or None for n in numbers],
        "l": [[n] * (n % 3) for n in numbers], "w": pa.array(map(str, numbers), pa.large_string()),
    })  # fmt: skip
    edges = [0, 1, arrow.BATCH_ROWS, arrow.BATCH_ROWS + 100, rows]
    pieces = [whole.slice(a, b - a).combine_chunks() for a, b in pairwise(edges)]
    written = b"".join(ipc_chunks(whole))
    assert ipc_table(written).equals(whole)
    assert b"".join(ipc_chunks(pa.concat_tables(pieces))) == written
    assert b"".join(ipc_chunks(ipc_table(written))) == written
    again = [pa.py_buffer(chunk).address for chunk in ipc_chunks(whole)]
    memory = whole["n"].chunk(0).buffers()[1].address
    assert memory in again
    assert memory + 8 * arrow.BATCH_ROWS in again


def test_chunks_of_a_table_without_rows_are_a_stream() -> None:
    nothing = COLUMNS.empty_table()
    assert ipc_table(b"".join(ipc_chunks(nothing))).equals(nothing)
