"""Warming a worker up, so that the first epoch of a fragment it takes over is not its slowest.

The first job of a Spark session compiles, starts Python daemons and loads classes: seconds. A
worker does that before it says that it is there; a takeover then finds it warm. The same holds for
the first streaming query.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.worker import query
from perseid.worker.frames import STATE_POOL, WIDE, in_pool
from perseid.worker.session import local_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 3
QUERY_S = 60.0  # longer than the slowest first batch seen; a worker goes on without it


def warm_up(spark: SparkSession, scratch: Path) -> None:
    """Runs the shape of an epoch (two stages, the pools of Python workers) in a short query."""
    ran = threading.Event()

    def batch(_number: int) -> None:
        if not ran.is_set():
            for _ in range(ROUNDS):
                _epoch(spark)
        ran.set()

    warming = query.start(spark, "warm-up", scratch / "warm-up", batch)
    ran.wait(QUERY_S)
    warming.stop()


def _epoch(spark: SparkSession) -> None:
    """The shape of a wide epoch, then on a local master that of a narrow one."""
    cores = spark.sparkContext.defaultParallelism
    local = local_cores(spark.sparkContext.master or "") > 0
    for prefix, width in ((WIDE, cores), ("", 1)) if local else (("", cores),):
        frame = _python(spark, spark.range(0, width, 1, width), prefix + "source")
        frame.createOrReplaceTempView("perseid_warm")
        frame = spark.sql("SELECT explode(array(slot)) AS slot FROM perseid_warm")
        frame = _python(spark, frame, prefix + "encode")
        frame = frame.repartitionById(width, "slot") if width > 1 else frame.coalesce(1)
        plan = _python(spark, frame, prefix + STATE_POOL)._jdf.queryExecution().executedPlan()
        plan.clone().executeCollectPublic()


def _python(spark: SparkSession, frame: DataFrame, pool: str) -> DataFrame:
    with in_pool(spark, pool):
        return frame.mapInArrow(_echo, "slot int")


def _echo(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        slots = pa.array(batch.column(0).to_pylist(), pa.int32())
        yield pa.RecordBatch.from_arrays([slots], names=["slot"])
