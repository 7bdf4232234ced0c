"""The column types of job files and what they are in Arrow: the one place that says so."""

from __future__ import annotations

import pyarrow as pa

ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(),
    "binary": pa.binary(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
