"""The Structured Streaming query of a fragment.

Its source is the token log (`token_source`): Spark's offsets are those of the log, and the rows of
a micro-batch are its records, whose epochs `foreachBatch` runs.

A micro-batch costs more than a small epoch. So one that has run its rows reads ahead for a while:
records that arrive are run at once, and are rows of the next micro-batch, which does not run them
again. Spark's offsets and rows then follow the job by at most two such times. What it costs and
why: decisions/0010.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.worker.spark.frames import in_pool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

    from perseid.topics.log import LogReader

POOL = "tokens"  # of the processes of the source
WAIT_S = 0.2  # maximum time that a stop waits for a read of the token log
INTERRUPT_PROPERTY = "spark.job.interruptOnCancel"

Records = Iterable[tuple[int, bytes]]  # of the token log: offset and value


def start(
    spark: SparkSession,
    name: str,
    folder: Path,
    source: type[DataSource],
    take: Callable[[Records], None],
) -> StreamingQuery:
    """Calls `take` with the rows of each micro-batch until it raises or the query is stopped.

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


def awaited(query: StreamingQuery, ended: Callable[[], object]) -> Future[object]:
    """Done, with the query's error if it has one, once the query has ended; then `ended` is called.

    In a thread that does not keep the process alive.
    """
    found: Future[object] = Future()

    def wait() -> None:
        try:
            found.set_result(query.awaitTermination())
        except BaseException as error:
            found.set_exception(error)
        ended()

    threading.Thread(target=wait, name="await-query", daemon=True).start()
    return found


def read_ahead(
    log: LogReader,
    topic: str,
    next_offset: Callable[[], int],
    wanted: Callable[[], bool],
    seconds: float,
) -> Iterator[tuple[int, bytes]]:
    """The records that arrive within `seconds`, each once the last one is handled.

    `next_offset`: where to read. `wanted`: whether a further record is.
    """
    until_s = time.monotonic() + seconds
    while wanted() and time.monotonic() < until_s:
        found = log.read_from(topic, 0, next_offset(), max_records=1, timeout_s=WAIT_S)
        yield from ((entry.offset, entry.value) for entry in found)


@contextmanager
def cancellable(spark: SparkSession, group: str) -> Iterator[None]:
    """For epochs outside the query, whose stop ends its own jobs only: `cancel` aborts them.

    A plan is cloned in the thread's active session, which a thread of the query has.
    """
    java: Any = spark._jvm
    sessions = java.org.apache.spark.sql.classic.SparkSession
    sessions.setActiveSession(spark._jsparkSession)
    spark.sparkContext.setJobGroup(group, group)  # does not interrupt tasks: see `_keep_tasks`
    try:
        yield
    finally:
        spark.sparkContext._jsc.clearJobGroup()
        sessions.clearActiveSession()


def cancel(spark: SparkSession, group: str) -> None:
    """Aborts the group's running job, and every later one."""
    spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)


def _keep_tasks(spark: SparkSession) -> None:
    """By default the query interrupts the tasks of an aborted job.

    A thread that waits for its Python process then polls without pause, for up to 4 s and on a core
    each.
    """
    spark.sparkContext.setLocalProperty(INTERRUPT_PROPERTY, "false")
