"""Fetches Spark's Kafka connector and what it needs into the Ivy folder that is given."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


def main() -> None:
    (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.jars.ivy", sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
        .stop()
    )


if __name__ == "__main__":
    main()
