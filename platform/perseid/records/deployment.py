"""The settings of one deployment: where its parts are. Written by `up`, read by every process."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Deployment(BaseModel):
    """One cluster. A user's own Kafka, ZooKeeper, Redis or Spark master is one setting each.

    The environment wins over the file: PERSEID_KAFKA, PERSEID_ZOOKEEPER, PERSEID_REDIS,
    PERSEID_MASTER, PERSEID_STORE, PERSEID_STATE.
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

    @classmethod
    def load(cls, path: Path) -> Deployment:
        """The deployment in `path` with the environment's settings over it."""
        found = cls.model_validate_json(path.read_text())
        over = {
            key: os.environ[f"PERSEID_{key.upper()}"]
            for key in ("kafka", "zookeeper", "redis", "master", "store", "state")
            if os.environ.get(f"PERSEID_{key.upper()}")
        }
        return found.model_copy(update=over)

    @property
    def chroot(self) -> str:
        """The ZooKeeper path under which everything of this deployment lies."""
        return f"/perseid/{self.name}"
