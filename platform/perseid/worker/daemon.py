"""Spark's Python daemon with the heavy imports done before it forks.

A fresh Python worker then starts in milliseconds instead of about a second, which is what a killed
worker, a takeover and every idle minute (Spark ends idle workers) would cost otherwise.
"""

import confluent_kafka  # noqa: F401
import numpy  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.json
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import perseid.topics.ranges
import perseid.worker.sink
import perseid.worker.stages  # noqa: F401

pyarrow.set_cpu_count(1)  # one task, one core: Arrow's own threads would only fight for it
pyarrow.set_io_thread_count(1)

if __name__ == "__main__":
    manager()
