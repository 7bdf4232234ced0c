"""Tables as Arrow IPC streams: what is kept of a table that has no rows."""

import pyarrow as pa
import pytest

from perseid.state.arrow import ipc_bytes

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
