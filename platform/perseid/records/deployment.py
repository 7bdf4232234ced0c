"""The settings of one deployment: where its parts are. Written by `up`, read by every process."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from perseid.errors import UsageError
from perseid.records import spark_settings
from perseid.records.access import CLIENT, JOB, Access, Brokers

REGISTRIES = "PERSEID_SCHEMA_REGISTRIES"
READ_AHEAD_MAX_S = 60.0
RETIRED = {"query"}  # settings that files of an earlier version have
_NAME = re.compile(r"^[a-z][a-z0-9-]{0,62}\Z")


def parse_registries(text: str) -> dict[str, str]:
    """Parses schema registries such as "main=http://one:8081,other=https://two"; or UsageError."""
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    if any(not url for _, _, url in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise UsageError(
            f"{REGISTRIES}: expected different names with URLs, as "
            "main=http://registry:8081,other=https://other"
        )
    return {name: url for name, _, url in pairs}


class Deployment(BaseModel):
    """One cluster. A user's own Kafka, ZooKeeper, Redis or Spark master is one setting each.

    The environment overrides the file: PERSEID_KAFKA, PERSEID_ZOOKEEPER, PERSEID_REDIS,
    PERSEID_MASTER, PERSEID_READ_AHEAD_S, PERSEID_SPARK, PERSEID_STORE, PERSEID_STATE,
    PERSEID_SCHEMA_REGISTRIES, and those of `Access`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "local"
    kafka: str  # bootstrap servers
    kafka_client: str = CLIENT
    zookeeper: str  # hosts, without chroot
    redis: str  # URL, without a password
    master: str = "local[2,4]"  # local[k] without retries becomes local[k,4]
    cores: int = 2  # that one worker takes of a Spark cluster
    # for which a micro-batch reads ahead, see perseid.worker.spark.query
    read_ahead_s: float = 5.0
    spark: dict[str, str] = {}  # Spark's own settings, see `spark_settings`
    store: str  # checkpoint store: directory or pyarrow.fs URI
    state: str  # root of the state logs, on tmpfs if there is one
    logs: str  # folder of the processes' logs and the leaders' decisions
    zookeeper_session_s: float = 2.0
    jobs_allow_code: bool = True
    schema_registries: dict[str, str] = {}  # by the name in job files: no job names a URL
    kafka_access: Access = Access(part="KAFKA")
    kafka_job_access: Access = Access(part="KAFKA_JOB")  # of a job's own principal, on workers
    zookeeper_access: Access = Access(part="ZOOKEEPER")
    redis_access: Access = Access(part="REDIS")

    @field_validator("schema_registries")
    @classmethod
    def _urls(cls, found: dict[str, str]) -> dict[str, str]:
        for name, url in found.items():  # not ValueError: pydantic's own would show the URL
            parts = urlsplit(url)
            if not _NAME.match(name) or parts.scheme not in {"http", "https"} or not parts.hostname:
                raise UsageError(f"schema registry {name[:80]!r}: expected NAME=http://HOST:PORT")
            if parts.username or parts.password or parts.query or parts.fragment:
                raise UsageError(
                    f"schema registry {name!r}: its URL has more than host and path; users and "
                    "passwords belong in PERSEID_SCHEMA_REGISTRY_AUTH_NAME"
                )
        return found

    @field_validator("read_ahead_s", mode="before")
    @classmethod
    def _seconds(cls, found: object) -> float:
        try:
            seconds = float(str(found))
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= READ_AHEAD_MAX_S:
            raise UsageError(
                f"PERSEID_READ_AHEAD_S {str(found)[:40]!r}: expected seconds, 0 to "
                f"{READ_AHEAD_MAX_S:.0f}"
            )
        return seconds

    @field_validator("spark")
    @classmethod
    def _passed_on(cls, found: dict[str, str]) -> dict[str, str]:
        return spark_settings.checked(found)

    @field_validator("redis")
    @classmethod
    def _no_password(cls, found: str) -> str:
        parts = urlsplit(found)
        # they would be in files, tasks and the output of `status`
        if parts.password or parts.query:
            raise UsageError(
                "the URL of Redis has a password or settings after a '?': leave them out, and set "
                "PERSEID_REDIS_PASSWORD_FILE or PERSEID_REDIS_PASSWORD, and PERSEID_REDIS_CA"
            )
        return found

    @model_validator(mode="after")
    def _accesses_fit(self) -> Self:
        for access in (self.kafka_access, self.zookeeper_access, self.redis_access):
            if JOB in access.model_dump_json():
                raise UsageError(
                    f"{access.variable('*')}: {JOB} stands for a job in PERSEID_KAFKA_JOB_* only"
                )
        if self.kafka_job_access.known and not self.brokers("any").access.encrypted:
            raise UsageError("PERSEID_KAFKA_JOB_* is set without PERSEID_KAFKA_CA: set it, too")
        if self.redis_access.encrypted and not self.redis.startswith("rediss://"):
            raise UsageError("PERSEID_REDIS_CA is set: the URL of Redis begins with rediss:// then")
        return self

    @classmethod
    def load(cls, path: Path) -> Deployment:
        """The deployment in `path`, overridden by the environment's settings."""
        written = json.loads(path.read_text())
        found = cls.model_validate({k: v for k, v in written.items() if k not in RETIRED})
        over = {
            key: os.environ[f"PERSEID_{key.upper()}"]
            for key in ("kafka", "zookeeper", "redis", "master", "read_ahead_s", "store", "state")
            if os.environ.get(f"PERSEID_{key.upper()}")
        }
        listed = os.environ.get(REGISTRIES)
        registries = {"schema_registries": parse_registries(listed)} if listed else {}
        spark = os.environ.get(spark_settings.VARIABLE)
        own = {"spark": spark_settings.parse(spark)} if spark else {}
        return cls.model_validate(
            {**found.model_dump(), **over, **registries, **own, **found.accesses()}
        )

    def accesses(self) -> dict[str, Access]:
        """The accesses by field: the environment over this deployment's own."""
        kept = (self.kafka_access, self.kafka_job_access, self.zookeeper_access, self.redis_access)
        return {f"{access.part.lower()}_access": access.under(os.environ) for access in kept}

    def brokers(self, job: str | None = None) -> Brokers:
        """Kafka, with the deployment's principal or with that of a job, if jobs have theirs."""
        if job is None or not self.kafka_job_access.known:
            return Brokers(self.kafka, self.kafka_access, self.kafka_client)
        own = self.kafka_job_access.of_job(job)
        trusted = own if own.encrypted else own.model_copy(update={"ca": self.kafka_access.ca})
        return Brokers(self.kafka, trusted, self.kafka_client)

    @property
    def chroot(self) -> str:
        """The ZooKeeper path of all entries of this deployment."""
        return f"/perseid/{self.name}"
