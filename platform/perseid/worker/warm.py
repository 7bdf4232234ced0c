"""Warming a worker up, so that the first epoch of a fragment it takes over is not its slowest.

The first job of a Spark session compiles, starts Python daemons and loads classes: seconds. A
worker does that before it says that it is there; a takeover then finds it warm. The same holds for
the first streaming query, whose Python source has daemons of its own.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from perseid.worker.frames import STATE_POOL, WIDE, use_pool
from perseid.worker.session import local_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 3
QUERY_S = 60.0  # longer than the slowest first batch seen; a worker goes on without it


class WarmSource(DataSource):
    """A stream of one batch."""

    @classmethod
    def name(cls) -> str:
        return "perseid-warm"

    def schema(self) -> str:
        return "n int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _WarmReader()


class _WarmReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"n": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (0,)


def warm_up(spark: SparkSession) -> None:
    """Runs the shape of an epoch (two stages, the pools of Python workers) in a short query."""
    ran = threading.Event()

    def batch(_frame: DataFrame, _number: int) -> None:
        for _ in range(ROUNDS):
            _epoch(spark)
        ran.set()

    spark.dataSource.register(WarmSource)
    frame = spark.readStream.format("perseid-warm").load()
    with tempfile.TemporaryDirectory(prefix="perseid-warm-") as folder:
        query = frame.writeStream.foreachBatch(batch).option("checkpointLocation", folder).start()
        ran.wait(QUERY_S)
        query.stop()


def _epoch(spark: SparkSession) -> None:
    """The shape of a wide epoch, then on a local master that of a narrow one."""
    cores = spark.sparkContext.defaultParallelism
    local = local_cores(spark.sparkContext.master or "") > 0
    for prefix, width in ((WIDE, cores), ("", 1)) if local else (("", cores),):
        use_pool(spark, prefix + "source")
        frame = spark.range(0, width, 1, width).mapInArrow(_echo, "slot int")
        frame.createOrReplaceTempView("perseid_warm")
        frame = spark.sql("SELECT explode(array(slot)) AS slot FROM perseid_warm")
        use_pool(spark, prefix + "encode")
        frame = frame.mapInArrow(_echo, "slot int")
        frame = frame.repartitionById(width, "slot") if width > 1 else frame.coalesce(1)
        use_pool(spark, prefix + STATE_POOL)
        plan = frame.mapInArrow(_echo, "slot int")._jdf.queryExecution().executedPlan()
        plan.clone().executeCollectPublic()


def _echo(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        slots = pa.array(batch.column(0).to_pylist(), pa.int32())
        yield pa.RecordBatch.from_arrays([slots], names=["slot"])
