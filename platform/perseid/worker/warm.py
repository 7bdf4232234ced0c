"""Warming a worker up, so that the first epoch of a fragment it takes over is not its slowest.

The first job of a Spark session compiles, starts Python daemons and loads classes: seconds. A
worker does that before it says that it is there; a takeover then finds it warm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 3


def _echo(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        slots = pa.array(batch.column(0).to_pylist(), pa.int32())
        yield pa.RecordBatch.from_arrays([slots], names=["slot"])


def warm_up(spark: SparkSession) -> None:
    """Runs the shape of an epoch (two stages, the pools of Python workers) a few times."""
    environment = spark.sparkContext.environment
    width = spark.sparkContext.defaultParallelism
    for _ in range(ROUNDS):
        environment["PERSEID_POOL"] = "source"
        frame = spark.range(0, width, 1, width).mapInArrow(_echo, "slot int")
        frame.createOrReplaceTempView("perseid_warm")
        frame = spark.sql("SELECT explode(array(slot)) AS slot FROM perseid_warm")
        environment["PERSEID_POOL"] = "encode"
        frame = frame.mapInArrow(_echo, "slot int").repartitionById(width, "slot")
        environment["PERSEID_POOL"] = "state"
        frame.mapInArrow(_echo, "slot int").collect()
