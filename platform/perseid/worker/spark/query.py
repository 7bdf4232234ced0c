"""The Structured Streaming query of a fragment: its micro-batches count and carry no data.

Spark's source `rate-micro-batch` always has a next batch; the batch itself then waits, in the
driver, for records of the token log. A source for the topic written in Python would need processes
of its own, and every takeover would wait for their start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

# Spark writes its progress to two files per batch, with a forked `chmod` for each. They are useless
# after the query, so they are written with the first batch and then only after this time.
PROGRESS_MS = 7 * 24 * 3_600_000
OPTIONS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(PROGRESS_MS),
    # Spark allows it for its own sinks only
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
INTERRUPT_PROPERTY = "spark.job.interruptOnCancel"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(
    spark: SparkSession, name: str, folder: Path, on_batch: Callable[[], None]
) -> StreamingQuery:
    """Calls `on_batch` repeatedly until it raises or the query is stopped.

    `folder` must be new; it gets Spark's offset log, which is useless after the query.
    """
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def call(_frame: DataFrame, _number: int) -> None:
        # By default the query interrupts the tasks of an aborted job. A thread that waits for its
        # Python process then polls without pause, for up to 4 s and on a core each.
        spark.sparkContext.setLocalProperty(INTERRUPT_PROPERTY, "false")
        on_batch()

    writer = frame.writeStream.queryName(name).options(**OPTIONS).foreachBatch(call)
    return writer.option("checkpointLocation", str(folder)).start()
