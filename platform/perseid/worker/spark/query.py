"""The Structured Streaming query of a fragment, in one of two ways (PERSEID_QUERY).

    tokens  The source is the token log (`token_source`). Each micro-batch has the records that
            follow the last one, and `foreachBatch` runs their epochs: offsets, rows and durations
            in Spark's progress, its UI and its listeners are those of the job.
    loop    Micro-batches of a few seconds, in which the driver reads the token log itself. Epochs
            are closer together; Spark's progress counts nothing.

What each costs: decisions/0010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# Of `loop`: Spark writes its progress to two files per batch, with a forked `chmod` for each. They
# are useless after the query, so they are written with the first batch and then after this time.
PROGRESS_MS = 7 * 24 * 3_600_000
LOOP_OPTIONS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(PROGRESS_MS),
    # Spark allows it for its own sinks only
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
INTERRUPT_PROPERTY = "spark.job.interruptOnCancel"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery


def start(
    spark: SparkSession,
    name: str,
    folder: Path,
    source: type[DataSource],
    on_rows: Callable[[Sequence[Row]], None],
) -> StreamingQuery:
    """Calls `on_rows` with the rows of each micro-batch until it raises or the query is stopped.

    `folder` must be new; it gets Spark's offset and commit logs, which are useless after the query.
    """
    spark.dataSource.register(source)
    frame = spark.readStream.format(source.name()).load()

    def call(batch: DataFrame, _number: int) -> None:
        _keep_tasks(spark)
        on_rows(batch.collect())

    writer = frame.writeStream.queryName(name).foreachBatch(call)
    return writer.option("checkpointLocation", str(folder)).start()


def start_loop(
    spark: SparkSession, name: str, folder: Path, on_batch: Callable[[], None]
) -> StreamingQuery:
    """Calls `on_batch` repeatedly until it raises or the query is stopped; `folder` as above."""
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def call(_frame: DataFrame, _number: int) -> None:
        _keep_tasks(spark)
        on_batch()

    writer = frame.writeStream.queryName(name).options(**LOOP_OPTIONS).foreachBatch(call)
    return writer.option("checkpointLocation", str(folder)).start()


def _keep_tasks(spark: SparkSession) -> None:
    """By default the query interrupts the tasks of an aborted job.

    A thread that waits for its Python process then polls without pause, for up to 4 s and on a core
    each.
    """
    spark.sparkContext.setLocalProperty(INTERRUPT_PROPERTY, "false")
