"""Warms a worker up, so that the first epoch of a fragment it takes over is not its slowest.

The first epoch of a Spark session compiles, starts Python daemons and loads classes, which takes
seconds; so a worker runs some before it registers. The first streaming query does so too, but no
epoch waits for it (`running`): a worker that nothing runs on starts one once it has registered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.worker.spark import query, token_source
from perseid.worker.spark.frames import SHUFFLED, STATE_POOL, in_pool
from perseid.worker.spark.session import local_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POOLS = ("source", "encode", STATE_POOL)
ROUNDS = 2
QUERY_S = 60.0  # longer than the slowest first batch measured
_LOOK_S = 0.5

log = logging.getLogger("perseid.worker")


def warm_up(spark: SparkSession) -> None:
    """Runs the shape of an epoch: two stages, and the pools of Python workers."""
    _start_pools(spark)
    for _ in range(ROUNDS):
        _epoch(spark)


def warm_up_queries(spark: SparkSession, folder: Path) -> None:
    """Runs a short query; raises nothing. `folder` must be new."""
    try:
        _run_query(spark, folder)
    except Exception as error:  # such as the end of this worker
        log.warning("the first query will be slow: %s", error)


def _run_query(spark: SparkSession, folder: Path) -> None:
    ran = threading.Event()
    deadline_s = time.monotonic() + QUERY_S
    given = spark, "warm-up", folder, token_source.ticking()
    warming = query.start(*given, lambda _rows: ran.set())
    while not ran.wait(_LOOK_S) and warming.isActive and time.monotonic() < deadline_s:
        pass
    if not ran.is_set():
        why = warming.exception() or f"not done after {QUERY_S} s"
        log.warning("the first query will be slow: its warm-up did not end well: %s", why)
    warming.stop()


def _start_pools(spark: SparkSession) -> None:
    """Starts all pools at once: each starts with a process that imports for 0.5 s on one core."""
    pools = [(prefix + pool, width) for prefix, width in _shapes(spark) for pool in POOLS]

    def start(pool: str, width: int) -> None:
        _python(spark, spark.range(0, width, 1, width), pool).collect()

    with ThreadPoolExecutor(len(pools), "perseid-warm-up") as threads:
        list(threads.map(start, *zip(*pools, strict=True)))


def _shapes(spark: SparkSession) -> list[tuple[str, int]]:
    """Pool prefix and width of a shuffled epoch and, on a local master, of a single-task epoch."""
    cores = spark.sparkContext.defaultParallelism
    if local_cores(spark.sparkContext.master or ""):
        return [(SHUFFLED, cores), ("", 1)]
    return [("", cores)]


def _epoch(spark: SparkSession) -> None:
    for prefix, width in _shapes(spark):
        frame = _python(spark, spark.range(0, width, 1, width), prefix + "source")
        frame.createOrReplaceTempView("perseid_warm")
        frame = spark.sql("SELECT explode(array(slot)) AS slot FROM perseid_warm")
        frame = _python(spark, frame, prefix + "encode")
        frame = frame.repartitionById(width, "slot") if width > 1 else frame.coalesce(1)
        plan = _python(spark, frame, prefix + STATE_POOL)._jdf.queryExecution().executedPlan()
        if width > 1:
            plan.clone().executeCollectPublic()
        else:
            plan.execute().count()


def _python(spark: SparkSession, frame: DataFrame, pool: str) -> DataFrame:
    with in_pool(spark, pool):
        return frame.mapInArrow(_echo, "slot int")


def _echo(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        slots = pa.array(batch.column(0).to_pylist(), pa.int32())
        yield pa.RecordBatch.from_arrays([slots], names=["slot"])
