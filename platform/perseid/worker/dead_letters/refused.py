"""Records that a source or an operator refused: their errors and their form as dead letters.

The headers are those of Kafka Connect (`__connect.errors.*`), so its tools can read them, plus the
epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from perseid.errors.texts import cut

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("operator", pa.string()),
        ("operator_partition", pa.int32()),
        ("input", pa.string()),
        ("trace", pa.string()),
    ]
)

NONE = pa.table({})  # no dead letters: an epoch's set of them is then only a barrier


@dataclass(frozen=True, slots=True)
class Refused:
    """One refused record, with its original bytes.

    From an `operator`: a row of its `input` as JSON. `topic` is empty if the row is not known to be
    a record of a source; `operator_partition` is the split for an operator without a key.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    kind: str
    reason: str
    operator: str | None = None
    operator_partition: int | None = None
    input: str | None = None
    trace: str | None = None

    @property
    def place(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"

    def explain(self) -> str:
        return (
            f"{self.place}: {self.reason}. "
            "The job stops before this record, its state is kept. Either correct the source's "
            "format in job.yaml, or set `errors: {tolerance: all}` to send such records to the "
            "dead-letter topic; then `perseid jobs apply` the changed job"
        )


def to_table(refused: list[Refused]) -> pa.Table:
    columns = [[_writable(getattr(r, name)) for r in refused] for name in SCHEMA.names]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _writable(value: Any) -> Any:
    """Cuts long text, and text with half a surrogate pair, which has no UTF-8."""
    return cut(value) if isinstance(value, str) else value


def joined(*letters: pa.Table | None) -> pa.Table | None:
    """All dead letters; None if there are none."""
    found = [table for table in letters if table is not None and table.num_rows]
    return pa.concat_tables(found) if found else None


def of_operators(letters: pa.Table) -> int:
    """How many of `letters`, a table of SCHEMA or without columns, operators refused."""
    return letters.num_rows - letters["operator"].null_count if letters.num_rows else 0


def headers(row: dict[str, Any], job: str, epoch: int) -> list[tuple[str, bytes]]:
    """The headers of one dead letter; `row` is a row of SCHEMA."""
    if row["operator"] is not None:
        return _encoded(_of_operator(row, job, epoch))
    return _encoded(_of_source(row, job, epoch))


def _of_source(row: dict[str, Any], job: str, epoch: int) -> dict[str, Any]:
    return {
        **_place(row),
        "__connect.errors.connector.name": job,
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.exception.class.name": row["kind"],
        "__connect.errors.exception.message": row["reason"],
        "perseid.epoch": epoch,
    }


def _of_operator(row: dict[str, Any], job: str, epoch: int) -> dict[str, Any]:
    return {
        **(_place(row) if row["topic"] else {}),
        "__connect.errors.connector.name": job,
        "__connect.errors.stage": "TRANSFORMATION",
        "__connect.errors.exception.class.name": row["kind"],
        "__connect.errors.exception.message": row["reason"],
        "__connect.errors.exception.stacktrace": row["trace"],
        "perseid.operator": row["operator"],
        "perseid.input": row["input"],
        "perseid.partition": row["operator_partition"],
        "perseid.epoch": epoch,
    }


def _place(row: dict[str, Any]) -> dict[str, Any]:
    """Where the record is, so that its original bytes can be read."""
    return {f"__connect.errors.{name}": row[name] for name in ("topic", "partition", "offset")}


def _encoded(found: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(name, str(value).encode()) for name, value in found.items()]
