"""Blobs on their way between Python and Spark: small batches, and memory that is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perseid.worker.dataflow.edges import CHUNK_BYTES

# A task sends 59 MB to another one, as stages do, again and again. Printed of each run: the largest
# batch that came, whether all rows did, and the pages that Spark's JVM took from the kernel.
SCRIPT = """
import json
from pathlib import Path
import numpy as np
import psutil
import pyarrow as pa
from perseid.worker.dataflow.edges import (
    DDL,
    Route,
    deal,
    from_batches,
    inputs,
    size_bytes,
    to_batches,
)
from perseid.worker.spark.session import open_session

RUNS, ROWS = 12, 1 << 20
spark = open_session("local[2]", 2, "batches", Path("spark"))
values = np.random.default_rng(1).integers(0, 1 << 40, (7, ROWS))
table = pa.table({f"v{i}": values[i] for i in range(7)})

def send(batches):
    list(batches)
    rows = deal(table, Route((5,), 0, ()), 0, np.zeros(ROWS, np.int64))
    yield from to_batches(rows, {5: 0}, 1)

def take(batches):
    batches = list(batches)
    rows = from_batches(batches)
    same = inputs(rows, ("input",))["input"].equals(table)
    yield pa.RecordBatch.from_pydict({
        "largest": [max(size_bytes(from_batches([b])) for b in batches)],
        "bytes": [size_bytes(rows)], "same": [same],
    })

sent = spark.range(0, 1, 1, 1).mapInArrow(send, DDL).repartition(1, "slot")
taken = sent.mapInArrow(take, "largest long, bytes long, same boolean")
java, = (p for p in psutil.Process().children() if p.name() == "java")

def faults():
    return int(Path(f"/proc/{java.pid}/stat").read_text().rpartition(")")[2].split()[7])

found = {"same": [], "largest": [], "bytes": [], "faults": []}
for _ in range(RUNS):
    before = faults()
    (row,) = taken.collect()
    found["faults"].append(faults() - before)
    for name in ("same", "largest", "bytes"):
        found[name].append(row[name])
print("\\n" + json.dumps(found))
spark.stop()
"""


@pytest.mark.drawn(group="spark")
def test_spark_passes_small_batches_on_in_memory_that_it_has(
    in_spark: Callable[[str, str], Any],
) -> None:
    found = in_spark(SCRIPT, "")
    assert all(found["same"])
    assert max(found["largest"]) < 3 * CHUNK_BYTES
    megabytes = sum(found["bytes"][-4:]) >> 20
    assert sum(found["faults"][-4:]) < 40 * megabytes
