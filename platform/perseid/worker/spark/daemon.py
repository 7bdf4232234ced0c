"""Spark's Python daemon, which does the heavy imports before it forks.

A new Python worker then starts in milliseconds instead of about a second. New workers start after a
crash, after a takeover and after an idle minute (Spark ends idle workers).
"""

import gc

import confluent_kafka  # noqa: F401
import numpy  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.json
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401

import perseid.logs
import perseid.topics.ranges
import perseid.worker.sink.transaction
import perseid.worker.spark.stages
import perseid.worker.spark.sticky_workers

pyarrow.set_cpu_count(1)  # one task, one core: Arrow's own threads would compete with it
pyarrow.set_io_thread_count(1)

# The objects of a batch of 10,000 messages live until it is decoded. With Python's default
# threshold (700) the collector scans them 14 times meanwhile, and all objects every few batches.
YOUNG_OBJECTS_MAX = 100_000
gc.set_threshold(YOUNG_OBJECTS_MAX, 10, 10)

if __name__ == "__main__":
    perseid.logs.set_up_child()
    perseid.worker.spark.sticky_workers.serve()
