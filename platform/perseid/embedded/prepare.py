"""Everything `up` does before it starts a process: folders, ports, configuration, specs."""

from __future__ import annotations

import base64
import json
import subprocess
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.version import Version

from perseid import logs
from perseid.embedded import parts
from perseid.embedded.cache import short_digest
from perseid.embedded.class_archive import class_archive, java_options
from perseid.embedded.jars import KAFKA, kafka_jars
from perseid.embedded.java import java_home
from perseid.embedded.paths import Home, state_root
from perseid.embedded.ports import ports
from perseid.embedded.spark_home import lean_home
from perseid.embedded.table import ProcessSpec
from perseid.errors import PermanentError, RefusedError
from perseid.records import Deployment, spark_settings
from perseid.records.deployment import RETIRED, parse_registries

Note = Callable[[str], None]
FORMAT_TIMEOUT_S = 60
MADE_BY = "version"  # in the broker's folder: the Kafka version that formatted its data


EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Outside:
    """A user's own parts; what is None is started here. `master`: "standalone" is ours too.

    Kept in <data>/outside.json, because a cluster that starts with another store would not find its
    checkpoints.
    """

    kafka: str | None = None
    zookeeper: str | None = None
    redis: str | None = None
    master: str | None = None
    store: str | None = None
    schema_registries: str | None = None  # as main=http://registry:8081,other=https://two
    read_ahead_s: str | None = None
    spark: str | None = None  # as spark.ui.enabled=true spark.executor.memory=4g

    @classmethod
    def kept(cls, path: Path) -> Outside:
        written = json.loads(path.read_text()) if path.is_file() else {}
        return cls(**{name: value for name, value in written.items() if name not in RETIRED})

    def changed_by(self, asked: Outside) -> Outside:
        """Given values win; "embedded" returns to our own part."""
        wanted = {name: value or getattr(self, name) for name, value in asdict(asked).items()}
        return Outside(**{n: None if value == EMBEDDED else value for n, value in wanted.items()})


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings, the parts that everything needs, and the processes that run jobs."""

    deployment: Deployment
    base: list[ProcessSpec]
    engines: list[ProcessSpec]


def prepare(home: Home, outside: Outside, workers: int, coordinators: int, note: Note) -> Plan:
    """Makes the files; returns what to start. Harmless when repeated."""
    numbers = ports(home.ports)
    java = java_home()
    spark = lean_home()
    environment = parts.spark_environment(java, spark) | {logs.FORMAT: logs.chosen_format()}
    # Concurrently with Kafka's jars, which take as long on first use.
    with ThreadPoolExecutor(1, "perseid-classes") as pool:
        recorded = pool.submit(class_archive, java, spark, environment, note)
        base = _base(home, outside, workers, numbers, java, note)
    archive = recorded.result()
    deployment = _deployment(home, outside, numbers)
    # Other settings make other specs, and the keeper restarts processes whose spec has changed.
    environment["PERSEID_SETTINGS"] = short_digest(deployment.model_dump_json())
    environment |= java_options(archive)
    engines = [
        parts.engine(kind, number, home.deployment, environment)
        for kind, count in (("coordinator", coordinators), ("worker", workers))
        for number in range(1, count + 1)
    ]
    return Plan(deployment, base, engines)


def _base(
    home: Home, outside: Outside, workers: int, numbers: dict[str, int], java: Path, note: Note
) -> list[ProcessSpec]:
    """The parts that are not the user's own."""
    base: list[ProcessSpec] = []
    if outside.zookeeper is None:
        base.append(_zookeeper(home, java, numbers["zookeeper"]))
    if outside.kafka is None:
        base.append(_broker(home, java, numbers, note))
    if outside.redis is None:
        folder = _folder(home, "redis")
        base.append(parts.redis(folder, numbers["redis"]))
    if outside.master == "standalone":
        folder = _folder(home, "spark")
        (folder / "recovery").mkdir(exist_ok=True)
        base += parts.spark(java, folder, numbers, workers)
    return base


def _deployment(home: Home, outside: Outside, numbers: dict[str, int]) -> Deployment:
    state = state_root(home.data)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Deployment(
        kafka=outside.kafka or f"127.0.0.1:{numbers['kafka']}",
        zookeeper=outside.zookeeper or f"127.0.0.1:{numbers['zookeeper']}",
        redis=outside.redis or f"redis://127.0.0.1:{numbers['redis']}/0",
        store=outside.store or str(home.data / "store"),
        state=str(state),
        logs=str(home.logs),
        schema_registries=parse_registries(outside.schema_registries or ""),
        spark=spark_settings.parse(outside.spark or ""),
    )
    kept = Deployment.load(home.deployment) if home.deployment.is_file() else made
    own = {part for part in ("kafka", "zookeeper", "redis") if getattr(outside, part) is not None}
    accesses = {n: a for n, a in kept.accesses().items() if n.partition("_")[0] in own}
    masters = {"standalone": f"spark://127.0.0.1:{numbers['spark-master']}"}
    chosen = {
        "master": masters.get(outside.master or "", outside.master),
        "read_ahead_s": outside.read_ahead_s,
    }
    settings = {
        **made.model_dump(),
        **{name: value for name, value in chosen.items() if value},  # else the default
        "jobs_allow_code": kept.jobs_allow_code,
    }
    return Deployment.model_validate({**settings, **accesses})


def _folder(home: Home, name: str) -> Path:
    folder = home.data / name
    folder.mkdir(exist_ok=True)
    return folder


def _zookeeper(home: Home, java: Path, port: int) -> ProcessSpec:
    folder = _folder(home, "zookeeper")
    (folder / "zoo.cfg").write_text(parts.zookeeper_config(folder, port))
    (folder / "log4j2.properties").write_text(parts.LOG4J)
    return parts.zookeeper(java, folder)


def _broker(home: Home, java: Path, numbers: dict[str, int], note: Note) -> ProcessSpec:
    folder = _folder(home, "kafka")
    formatted = (folder / "data" / "meta.properties").is_file()
    if formatted:
        check_readable(folder)
    jars = kafka_jars(java, note)
    properties = parts.broker_properties(folder, numbers["kafka"], numbers["controller"])
    (folder / "server.properties").write_text(properties)
    (folder / "log4j2.properties").write_text(parts.LOG4J)
    if not formatted:
        (folder / MADE_BY).write_text(KAFKA[2] + "\n")
        _format(parts.format_command(java, folder, jars, _new_cluster_id()))
    return parts.broker(java, folder, jars)


def check_readable(folder: Path) -> None:
    """RefusedError for data of a newer Kafka: the broker would end at every start."""
    made_by = (folder / MADE_BY).read_text().strip()
    if Version(made_by) > Version(KAFKA[2]):
        raise RefusedError(
            f"{folder / 'data'} is of Kafka {made_by}, and this perseid brings {KAFKA[2]}, which "
            "does not read it; nothing was changed. Begin with another folder (--data), or delete "
            "what is in this one: `perseid down --purge`. Why an older Kafka: "
            "platform/perseid/embedded/decisions/0001-kafka-4.2.2.md"
        )


def _format(command: list[str]) -> None:
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S
    )
    if ran.returncode != 0:
        raise PermanentError(f"Kafka's log directory cannot be prepared: {ran.stdout}{ran.stderr}")


def _new_cluster_id() -> str:
    """A UUID as Kafka writes it; never with a leading "-", which its tool takes for an option."""
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found
