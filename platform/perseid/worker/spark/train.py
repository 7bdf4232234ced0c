"""`python -m perseid.worker.spark.train --scratch DIR`: records the classes that the JVM loads.

Run before a worker's first job, with a JVM that records its classes (PERSEID_JAVA_OPTIONS). The JVM
writes them when it exits, so this process waits for its exit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perseid.worker.spark.session import open_session
from perseid.worker.spark.warm import warm_up, warm_up_queries

MASTER = "local[2,4]"
END_TIMEOUT_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(prog="perseid worker training")
    parser.add_argument("--scratch", type=Path, required=True)
    scratch = parser.parse_args().scratch
    spark = open_session(MASTER, 2, "perseid-training", scratch / "spark")
    warm_up(spark)
    warm_up_queries(spark, scratch / "warm-up")
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None, "a session has a gateway"
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits with it
    gateway.proc.wait(END_TIMEOUT_S)


if __name__ == "__main__":
    main()
