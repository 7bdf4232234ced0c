"""The column types of job files and their Arrow types: the only definition."""

from __future__ import annotations

import pyarrow as pa

ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(),
    "binary": pa.binary(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
