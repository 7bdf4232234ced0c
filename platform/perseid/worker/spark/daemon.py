"""Spark's Python daemon with the heavy imports done before it forks.

A fresh Python worker then starts in milliseconds instead of about a second, which is what a killed
worker, a takeover and every idle minute (Spark ends idle workers) would cost otherwise.
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

pyarrow.set_cpu_count(1)  # one task, one core: Arrow's own threads would only fight for it
pyarrow.set_io_thread_count(1)

# A batch of 10,000 messages lives until it is decoded; by Python's default (700) it is looked
# through 14 times meanwhile, and every few batches everything is.
YOUNG_OBJECTS_MAX = 100_000
gc.set_threshold(YOUNG_OBJECTS_MAX, 10, 10)

if __name__ == "__main__":
    perseid.logs.set_up_child()
    perseid.worker.spark.sticky_workers.serve()
