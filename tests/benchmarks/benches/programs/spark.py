"""Word counts and balances in plain PySpark Structured Streaming.

Kafka through Spark's JVM connector, update mode: one JSON record per changed key per trigger, at
least once. Settings are the lean ones that perseid itself uses. Spark refuses asynchronous progress
tracking for queries with state.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}  # fmt: skip

STATES = {
    "hdfs": {},
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass":
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument("--ivy", required=True, help="folder that spark_jars.py filled")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--max-offsets", type=int, required=True, help="lines a trigger at most")
    parser.add_argument("--state", choices=[*STATES], default="hdfs")
    parser.add_argument("--job", choices=["wordcount", "balances"], default="wordcount")
    return parser.parse_args()


def _session(options: argparse.Namespace) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(options.master).appName("peer")
    for key, value in {**SETTINGS, **STATES[options.state]}.items():
        builder = builder.config(key, value)
    # By their names: resolving them again would only lengthen a restart.
    jars = sorted(Path(options.ivy, "jars").glob("*.jar"))
    return (
        builder.config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.memory", options.memory)
        .config("spark.sql.shuffle.partitions", str(options.partitions))
        .getOrCreate()
    )


def _query(spark: Any, options: argparse.Namespace) -> Any:
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.kafka)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets)
        .load()
    )
    changed = _counts(lines) if options.job == "wordcount" else _balances(lines)
    return (
        changed.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options.kafka)
        .option("topic", options.sink)
        .option("checkpointLocation", options.checkpoint)
        .outputMode("update")
        .start()
    )


def _counts(lines: Any) -> Any:
    return (
        lines.selectExpr("explode(split(cast(value AS string), ' ')) AS word")
        .groupBy("word")
        .count()
        .selectExpr("word AS key", "to_json(struct(word, count AS n)) AS value")
    )


def _balances(payments: Any) -> Any:
    """With the newest send time of the account's payments of the trigger."""
    from pyspark.sql import functions

    schema = "'account string, amount bigint, sent bigint'"
    return (
        payments.selectExpr(f"from_json(cast(value AS string), {schema}) AS payment")
        .groupBy("payment.account")
        .agg(
            functions.sum("payment.amount").alias("sum"),
            functions.max("payment.sent").alias("sent"),
        )
        .selectExpr("account AS key", "to_json(struct(account, sent, sum)) AS value")
    )


def main() -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = _options()
    spark = _session(options)
    spark.sparkContext.setLogLevel("ERROR")
    _query(spark, options).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
