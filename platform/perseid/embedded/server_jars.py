"""The jars of a broker and of a ZooKeeper for images: `python -m perseid.embedded.server_jars DIR`.

DIR/jars is the class path of the embedded broker, DIR/zookeeper-jars the part of Spark's jars that
ZooKeeper needs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from perseid.embedded.jars import kafka_jars
from perseid.embedded.java import java_home
from perseid.embedded.parts import logging_jars
from perseid.embedded.spark_home import spark_home

ZOOKEEPER = (
    "zookeeper-", "log4j-api-", "log4j-core-", "metrics-core-", "snappy-java-", "commons-io-",
    "netty-buffer-", "netty-codec-", "netty-common-", "netty-handler-", "netty-resolver-",
    "netty-transport-",
)  # fmt: skip


def copy(folder: Path) -> None:
    """Makes both folders, which must not exist; the jars are those of the locks."""
    spark = sorted((spark_home() / "jars").glob("*.jar"))
    zookeeper = [jar for jar in spark if jar.name.startswith(ZOOKEEPER)]
    broker = sorted(kafka_jars(java_home()).glob("*.jar"))
    _copied([*broker, *logging_jars()], folder / "jars")
    _copied([*zookeeper, *logging_jars()], folder / "zookeeper-jars")


def _copied(jars: Iterable[Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for jar in jars:
        shutil.copy(jar, folder)


if __name__ == "__main__":
    copy(Path(sys.argv[1]))
