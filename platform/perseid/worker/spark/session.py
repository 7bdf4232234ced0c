"""The Spark session of a worker: all its settings. Their measurements: decisions/0015."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.errors import UsageError
from perseid.worker.dataflow.edges import CHUNK_BYTES
from perseid.worker.process import spare_memory, surroundings
from perseid.worker.spark import sql_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

log = logging.getLogger("perseid.worker")

_LOOPBACK = re.compile(r"spark://(127\.|localhost[:/]|\[::1\])")
# A hundred times Java's thresholds: only code that runs once per row (SQL) is worth the optimising
# compiler. The driver's own code would keep it busy for minutes on a core that the job needs.
COMPILE_LATE = (
    "-XX:Tier4InvocationThreshold=500000 -XX:Tier4MinInvocationThreshold=60000 "
    "-XX:Tier4CompileThreshold=1500000 -XX:Tier4BackEdgeThreshold=4000000"
)
# Few cores: no parallel collector; deep plans and long stack traces need stack. The result of SQL
# must not depend on the host's time zone, language or encoding.
SAME_EVERYWHERE = (
    "-Duser.timezone=UTC -Dfile.encoding=UTF-8 -Duser.language=en -Duser.country=US -Duser.variant="
)
JAVA_OPTIONS = f"-XX:+UseSerialGC -XX:-UsePerfData -Xss4m {COMPILE_LATE} {SAME_EVERYWHERE}"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # otherwise ${env:X} in a query reads the host's environment
    "spark.sql.variable.substitute": "false",
    "spark.sql.ansi.enabled": "true",                   # otherwise $SPARK_ANSI_SQL_MODE decides
    "spark.executor.extraJavaOptions": SAME_EVERYWHERE,
    "spark.sql.adaptive.enabled": "false",              # re-plans each stage: ~50 ms per epoch
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",                      # kept even without a UI; default 1000
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "perseid.worker.spark.daemon", # forks after the imports
    "spark.python.worker.reuse": "false",  # the daemon reuses workers, see sticky_workers.py
    "spark.speculation": "false",  # two concurrent attempts would compete for transactional ids
    "spark.shuffle.compress": "false",                  # few large blobs, mostly read from memory
    "spark.shuffle.checksum.enabled": "false",
    "spark.shuffle.reduceLocality.enabled": "false",    # otherwise tasks follow the largest blob
    "spark.locality.wait": "3s",                        # long enough for the anchor to work
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(CHUNK_BYTES),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # of unread logs
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",  # Spark keeps one less
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.rpc.message.maxSize": "256",
    "spark.executor.logs.rolling.strategy": "size",     # for executors of a standalone cluster
    "spark.executor.logs.rolling.maxSize": str(16 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "3",
    **{
        f"spark.executorEnv.{name}": value
        for name, value in {**spare_memory.WORKERS, **surroundings.VARIABLES}.items()
    },
}  # fmt: skip


def local_cores(master: str) -> int:
    """K of local[k] or local[k,n]; 0 for another kind of master."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if found is None:
        return 0
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1] or 1)


def spark_master(master: str) -> str:
    """`master` with task retries for local ones: local[k] alone fails at the first lost task."""
    cores = local_cores(master)
    if cores:
        return f"local[{cores},4]"
    if not re.match(r"^(spark|k8s)://|^yarn$", master):
        raise UsageError(
            f"Spark master {master!r}: expected local[k], spark://HOST:PORT, yarn or k8s://URL"
        )
    return master


def driver_host(master: str) -> str:
    """The address at which executors reach the driver: loopback if the master is local."""
    return "127.0.0.1" if _is_here(master) else socket.gethostname()


def _is_here(master: str) -> bool:
    """Whether the application stays on this machine."""
    return local_cores(master) > 0 or _LOOPBACK.match(master) is not None


def open_session(
    master: str,
    cores: int,
    name: str,
    folder: Path,
    event_log: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A new Spark application for one worker; `cores` is its share of a cluster master.

    A local master keeps shuffle files and blocks in `folder` ($SPARK_LOCAL_DIRS overrides it): next
    to the state logs, which may be on a tmpfs, so that the worker's next life can delete them.
    $PERSEID_JAVA_OPTIONS is added to the options of the driver's JVM. The environment's own
    variables override `spare_memory.WORKERS` for processes that the driver starts. `settings`: the
    deployment's own, which win over SETTINGS.
    """
    from pyspark.sql import SparkSession

    master = spark_master(master)
    for variable, value in spare_memory.WORKERS.items():
        os.environ.setdefault(variable, value)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    host = driver_host(master)
    os.environ["SPARK_PUBLIC_DNS"] = host
    if host == "127.0.0.1":
        os.environ["SPARK_LOCAL_IP"] = host
    else:
        os.environ.pop("SPARK_LOCAL_IP", None)  # set by `up`; executors have their own
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    java_options = f"{JAVA_OPTIONS} {os.environ.get('PERSEID_JAVA_OPTIONS', '')}".strip()
    builder = builder.config("spark.driver.extraJavaOptions", java_options)
    builder = builder.config("spark.driver.host", host)
    if local_cores(master):
        builder = builder.config("spark.local.dir", str(folder))
    else:
        builder = builder.config("spark.executor.cores", "1")  # one Python process holds the state
        # leaves cores for other applications
        builder = builder.config("spark.cores.max", str(cores))
    if event_log:
        Path(event_log).mkdir(parents=True, exist_ok=True)
        builder = builder.config("spark.eventLog.enabled", "true")
        builder = builder.config("spark.eventLog.dir", event_log)
        builder = builder.config("spark.eventLog.rolling.enabled", "false")
        builder = builder.config("spark.eventLog.compress", "false")
    session = builder.getOrCreate()
    warn_if_open(master, session.conf.get("spark.authenticate", "false"))
    session.sparkContext.setLogLevel(os.environ.get("PERSEID_SPARK_LOG", "WARN"))
    _keep_values_out_of_logs(session)
    return session


def _keep_values_out_of_logs(session: SparkSession) -> None:
    """Keeps Spark from logging the values on which SQL raised.

    Spark logs a failed task three times. The executor's entry is turned off, since the scheduler
    repeats it without data errors; the third entry is PySpark's. Logs of executors on other
    machines follow the settings of that Spark.
    """
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    assert session._jvm is not None, "the session is open"
    log4j = session._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.spark.executor.Executor", log4j.Level.OFF)
    result = getattr(log4j.core, "Filter$Result")
    on_data = log4j.core.filter.RegexFilter.createFilter(
        f"(?s).*{sql_errors.STATES}.*", None, False, result.DENY, result.NEUTRAL
    )
    log4j.LogManager.getContext(False).getConfiguration().getRootLogger().addFilter(on_data)


def warn_if_open(master: str, authenticate: str | None) -> None:
    """Warns when a Spark on other machines runs code from any client that reaches its ports.

    The secret belongs in Spark's own files: set here, it would be visible in a command line.
    """
    if not _is_here(master) and authenticate != "true":
        log.warning(
            "Spark at %s asks for no secret (spark.authenticate), so any host that reaches its "
            "ports can run code there; compose/SECURITY.md lists what to set", master
        )  # fmt: skip
