"""Admits processes to a deployment: a process with another protocol than its data is refused.

`/protocol` holds the protocol of the deployment's data. The first process writes it, once.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.errors import RefusedError
from perseid.records.version import Build
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import ConflictError, Create


@dataclass(frozen=True, slots=True)
class Written:
    """Content of `/protocol`: of what lies in this deployment. `version`: who wrote it first."""

    protocol: int
    version: str


def admit(registry: Registry, name: str, mine: Build) -> None:
    """Returns when process `name` may take part; RefusedError, with advice, when it must not.

    Raises RetryableError while ZooKeeper is unavailable.
    """
    found = registry.read(paths.PROTOCOL, Written)
    if found is None:
        try:
            data = codec.encode(Written(mine.protocol, mine.version))
            registry.coordination.write(Create(paths.PROTOCOL, data))
            return
        except ConflictError:  # another process was faster
            found = registry.read(paths.PROTOCOL, Written)
    if found is not None and found.value.protocol != mine.protocol:
        raise RefusedError(
            f"{name} is perseid {mine.version}, which speaks protocol {mine.protocol}; this "
            f"deployment was written with protocol {found.value.protocol} by perseid "
            f"{found.value.version}: install that version, or begin with a new deployment"
        )
