"""The Structured Streaming query of a fragment: micro-batches that count and carry no data.

Spark's source `rate-micro-batch` has a next batch at any time; the batch itself then waits, in the
driver, for records of the token log. A source for the topic written in Python needs processes of
its own, which every takeover would wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

# Spark writes its progress to files, two a batch, with a forked `chmod` for each. Nobody needs
# them after the query, so they are written once, with the first batch, and then after this long.
PROGRESS_MS = 7 * 24 * 3_600_000
OPTIONS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(PROGRESS_MS),
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",  # Spark allows it for its own sinks
}
INTERRUPT_PROPERTY = "spark.job.interruptOnCancel"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(
    spark: SparkSession, name: str, folder: Path, on_batch: Callable[[], None]
) -> StreamingQuery:
    """Calls `on_batch` again and again, until it raises or the query is stopped.

    `folder`, a new one, gets Spark's offset log, which nobody needs after the query.
    """
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def call(_frame: DataFrame, _number: int) -> None:
        # The query's own setting interrupts the tasks of a job that is given up. A thread that
        # waits for its Python process then asks without pause instead, for up to 4 s, a core each.
        spark.sparkContext.setLocalProperty(INTERRUPT_PROPERTY, "false")
        on_batch()

    writer = frame.writeStream.queryName(name).options(**OPTIONS).foreachBatch(call)
    return writer.option("checkpointLocation", str(folder)).start()
