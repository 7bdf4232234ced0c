"""Fetches Spark's Kafka connector and what it needs into the Ivy folder that is given."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def main() -> None:
    # The driver's address, too: the host's own name may lead nowhere.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.jars.ivy", sys.argv[1])
        .getOrCreate()
        .stop()
    )


if __name__ == "__main__":
    main()
