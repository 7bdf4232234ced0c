"""The Structured Streaming query of a fragment, in one of two ways (PERSEID_QUERY).

    tokens  The source is the token log (`token_source`). Each micro-batch has the records that
            follow the last one, and `foreachBatch` runs their epochs: offsets, rows and durations
            in Spark's progress, its UI and its listeners are those of the job.
    loop    Micro-batches of a few seconds, in which the driver reads the token log itself. Epochs
            are closer together; Spark's progress counts nothing.

What each costs: decisions/0010.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.worker.spark.frames import in_pool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

    from perseid.topics.log import LogReader

POOL = "tokens"  # of the processes of the source
BATCH_S = 5.0  # duration of a micro-batch of `loop`: each further one has a cost
WAIT_S = 0.2  # maximum time that a stop waits for a read of the token log
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

Records = Iterable[tuple[int, bytes]]  # of the token log: offset and value


def start(
    spark: SparkSession,
    name: str,
    folder: Path,
    source: type[DataSource],
    take: Callable[[Records], None],
) -> StreamingQuery:
    """`tokens`: calls `take` with the rows of each micro-batch until it raises or is stopped.

    `folder` must be new; it gets Spark's offset and commit logs, which are useless after the query.
    """
    with in_pool(spark, POOL):  # or the processes of the source differ with who planned last
        spark.dataSource.register(source)
    frame = spark.readStream.format(source.name()).load()

    def call(batch: DataFrame, _number: int) -> None:
        _keep_tasks(spark)
        take((row.offset, bytes(row.value)) for row in batch.collect())

    writer = frame.writeStream.queryName(name).foreachBatch(call)
    return writer.option("checkpointLocation", str(folder)).start()


def start_loop(
    spark: SparkSession, name: str, folder: Path, on_batch: Callable[[], None]
) -> StreamingQuery:
    """`loop`: calls `on_batch` repeatedly until it raises or is stopped; `folder` as above."""
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def call(_frame: DataFrame, _number: int) -> None:
        _keep_tasks(spark)
        on_batch()

    writer = frame.writeStream.queryName(name).options(**LOOP_OPTIONS).foreachBatch(call)
    return writer.option("checkpointLocation", str(folder)).start()


def arriving(
    log: LogReader, topic: str, next_offset: Callable[[], int], wanted: Callable[[], bool]
) -> Iterator[tuple[int, bytes]]:
    """The records of one micro-batch of `loop`, each once the last one is handled.

    `next_offset`: where to read. `wanted`: whether a further record is.
    """
    until_s = time.monotonic() + BATCH_S
    while wanted() and time.monotonic() < until_s:
        found = log.read_from(topic, 0, next_offset(), max_records=1, timeout_s=WAIT_S)
        yield from ((entry.offset, entry.value) for entry in found)


def _keep_tasks(spark: SparkSession) -> None:
    """By default the query interrupts the tasks of an aborted job.

    A thread that waits for its Python process then polls without pause, for up to 4 s and on a core
    each.
    """
    spark.sparkContext.setLocalProperty(INTERRUPT_PROPERTY, "false")
