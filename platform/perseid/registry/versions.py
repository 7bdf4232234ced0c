"""Admits processes to a deployment: a process with another protocol than its data is refused.

`/protocol` holds the protocol of the deployment's data. The first process writes it. A version that
takes an older protocol over raises it, once no process of that one lives; from then on it alone is
admitted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from perseid.errors import RefusedError
from perseid.records.version import Build
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import ConflictError, Create, Set

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """Content of `/protocol`: of what lies in this deployment. `version`: who wrote it first."""

    protocol: int
    version: str


def admit(registry: Registry, name: str, mine: Build) -> None:
    """Returns when process `name` may take part; RefusedError, with advice, when it must not.

    Raises RetryableError while ZooKeeper is unavailable.
    """
    data = codec.encode(Written(mine.protocol, mine.version))
    while True:
        found = registry.read(paths.PROTOCOL, Written)
        if found is not None and found.value.protocol == mine.protocol:
            return
        change: Create | Set = Create(paths.PROTOCOL, data)
        if found is not None:
            _refuse(registry, name, mine, found.value)
            change = Set(paths.PROTOCOL, data, found.version)
        try:
            registry.coordination.write(change)
        except ConflictError:  # another process was faster
            continue
        if found is not None:
            log.warning("the data of protocol %d is taken over; from now on perseid %s or a later "
                        "version is needed", found.value.protocol, mine.version)  # fmt: skip


def _refuse(registry: Registry, name: str, mine: Build, there: Written) -> None:
    """RefusedError unless `mine` may take the data that is there over now."""
    who = (
        f"{name} is perseid {mine.version}, which speaks protocol {mine.protocol}; this deployment"
    )
    if not mine.reads(there.protocol):
        raise RefusedError(
            f"{who} was written with protocol {there.protocol} by perseid {there.version}: install "
            "that version, or begin with a new deployment"
        )
    others = [w.id for w in registry.workers() if w.protocol != mine.protocol]
    others += [c.id for c in registry.coordinators() if c.protocol != mine.protocol]
    if others:
        raise RefusedError(
            f"{who} is of protocol {there.protocol}, and processes of that protocol run: "
            f"{', '.join(sorted(others))}. Stop them; then its data is taken over, and its jobs "
            "continue from their newest checkpoints"
        )
