"""How the clients of a deployment authenticate to its Kafka, ZooKeeper and Redis.

An `Access` holds our identity and whom we trust. It holds no secret, only the name of a secret's
file: so it may be in the deployment's file, in a log and in a task that Spark pickles. The code
that makes a client reads the secret at that moment, from the file or from its process's
environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from perseid.errors import UsageError
from perseid.records import secret

Part = Literal["KAFKA", "KAFKA_JOB", "ZOOKEEPER", "REDIS"]
SYSTEM = "system"  # as `ca`: the authorities that this machine trusts
CLIENT = "perseid"  # Kafka's client.id, which quotas name
JOB = "{job}"  # in the settings of KAFKA_JOB: the job's name
_SETTINGS = ("ca", "cert", "key", "user", "password_file")


class Access(BaseModel):
    """The access to one part. The environment sets each field: `ca` of Kafka by PERSEID_KAFKA_CA.

    `ca`: PEM file of the signer of the servers' certificates, or "system"; it enables encryption
    and verification of the server's name. `cert`, `key`: PEM files of our own certificate. `user`:
    its password is in `password_file`, else in the environment (PERSEID_KAFKA_PASSWORD).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: Part
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    password_file: str | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        name = self.variable
        if (self.cert is None) != (self.key is None):
            raise UsageError(f"{name('cert')} and {name('key')} belong together: set both or none")
        if self.part == "KAFKA_JOB":  # without a `ca` it uses that of KAFKA
            if self.user is not None and self.password_file is None:
                raise UsageError(f"{name('user')} needs {name('password_file')}: one for each job")
            return self
        if self.cert is not None and self.ca is None:
            raise UsageError(
                f"{name('cert')} is of no use without {name('ca')}: set it to the PEM file of who "
                f"signed the servers' certificates, or to {SYSTEM!r}"
            )
        if self.part == "KAFKA" and self.user is not None and self.ca is None:
            raise UsageError(
                f"{name('user')} without {name('ca')}: passwords go over TLS only; set it to the "
                f"PEM file of who signed the brokers' certificates, or to {SYSTEM!r}"
            )
        return self

    def under(self, environment: Mapping[str, str]) -> Access:
        """This access, with the environment's settings over its own."""
        names = {key: self.variable(key) for key in _SETTINGS}
        over = {k: environment[name] for k, name in names.items() if environment.get(name)}
        return Access.model_validate({**self.model_dump(), **over})

    def variable(self, setting: str) -> str:
        """The environment variable of a setting."""
        return f"PERSEID_{self.part}_{setting.upper()}"

    @property
    def encrypted(self) -> bool:
        return self.ca is not None

    @property
    def known(self) -> bool:
        """Whether we authenticate to the server."""
        return self.user is not None or self.cert is not None

    def of_job(self, job: str) -> Access:
        """The same with the job's name in place of {job}; `job` must be a validated name."""
        filled = {
            key: value.replace(JOB, job)
            for key, value in self.model_dump().items()
            if isinstance(value, str)
        }
        return self.model_copy(update=filled)

    def password(self) -> str:
        """The password of `user`; without one UsageError, which names its place."""
        if self.password_file is not None:
            return secret.of_file(self.password_file, self.variable("password_file"))
        found = os.environ.get(self.variable("password"))
        if not found:
            raise UsageError(
                f"no password for {self.user}: set {self.variable('password_file')} to a file that "
                f"has it, or {self.variable('password')}"
            )
        return found

    def check_files(self) -> None:
        """UsageError for a PEM file that this process cannot read: clients would not name it."""
        for setting in ("ca", "cert", "key"):
            path = getattr(self, setting)
            if path not in {None, SYSTEM} and not os.access(path, os.R_OK):
                raise UsageError(
                    f"{self.variable(setting)}: {path} cannot be read by this process; workers "
                    "need it under the same path on every host"
                )


@dataclass(frozen=True, slots=True)
class Brokers:
    """The address of a Kafka, and the access to it. `client`: by which brokers know us."""

    bootstrap: str
    access: Access
    client: str = CLIENT

    def __str__(self) -> str:
        return self.bootstrap


# a bare address: brokers without authentication, such as the embedded one
Bootstrap = str | Brokers
