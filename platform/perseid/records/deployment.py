"""The settings of one deployment: where its parts are. Written by `up`, read by every process."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator

from perseid.errors import UsageError

REGISTRIES = "PERSEID_SCHEMA_REGISTRIES"
_NAME = re.compile(r"^[a-z][a-z0-9-]{0,62}\Z")


def parse_registries(text: str) -> dict[str, str]:
    """The schema registries of "main=http://one:8081,other=https://two"; UsageError else."""
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    if any(not url for _, _, url in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise UsageError(
            f"{REGISTRIES}: expected different names with URLs, as "
            "main=http://registry:8081,other=https://other"
        )
    return {name: url for name, _, url in pairs}


class Deployment(BaseModel):
    """One cluster. A user's own Kafka, ZooKeeper, Redis or Spark master is one setting each.

    The environment wins over the file: PERSEID_KAFKA, PERSEID_ZOOKEEPER, PERSEID_REDIS,
    PERSEID_MASTER, PERSEID_STORE, PERSEID_STATE, PERSEID_SCHEMA_REGISTRIES.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "local"
    kafka: str                                  # bootstrap servers
    zookeeper: str                              # hosts, without chroot
    redis: str                                  # URL
    master: str = "local[2,4]"                  # local[k] without retries is made local[k,4]
    cores: int = 2                              # of a Spark cluster, that one worker takes
    store: str                                  # checkpoint store: directory or pyarrow.fs URI
    state: str                                  # root of the state logs, on tmpfs if there is one
    logs: str                                   # folder of the processes' logs
    zookeeper_session_s: float = 2.0
    jobs_allow_code: bool = True
    schema_registries: dict[str, str] = {}      # by the name in job files: no job names a URL

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

    @classmethod
    def load(cls, path: Path) -> Deployment:
        """The deployment in `path` with the environment's settings over it."""
        found = cls.model_validate_json(path.read_text())
        over = {
            key: os.environ[f"PERSEID_{key.upper()}"]
            for key in ("kafka", "zookeeper", "redis", "master", "store", "state")
            if os.environ.get(f"PERSEID_{key.upper()}")
        }
        listed = os.environ.get(REGISTRIES)
        registries = {"schema_registries": parse_registries(listed)} if listed else {}
        return cls.model_validate({**found.model_dump(), **over, **registries})

    @property
    def chroot(self) -> str:
        """The ZooKeeper path under which everything of this deployment lies."""
        return f"/perseid/{self.name}"
