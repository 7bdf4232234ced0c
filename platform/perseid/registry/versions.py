"""Admits processes to a deployment: a process with another protocol is refused.

`/protocol` holds the protocol of the deployment's data. The first process of a newer version that
finds no live process of the older one raises it, and it never falls: an older version must not
touch data of a newer one. A process that registers between another's check and registration (such
as an older worker) gets no job: `perseid.coordinator.placement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perseid.errors import RefusedError
from perseid.records.version import Build
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import ConflictError, Create, Set, Write

TRIES_MAX = 5  # of a write with conflicts: each attempt reads again


@dataclass(frozen=True, slots=True)
class Written:
    """Content of `/protocol`: the protocol of the data, and the `version` that first wrote it."""

    protocol: int
    version: str


@dataclass(frozen=True, slots=True)
class Member:
    """A live process."""

    name: str
    version: str
    protocol: int


def admit(registry: Registry, name: str, mine: Build) -> None:
    """Returns when process `name` may take part; RefusedError, with advice, when it must not.

    Raises RetryableError while ZooKeeper is unavailable.
    """
    for _ in range(TRIES_MAX):
        found = registry.read(paths.PROTOCOL, Written)
        written = found.value if found is not None else None
        refuse(name, mine, written, tuple(members(registry)))
        if written is not None and written.protocol == mine.protocol:
            return
        data = codec.encode(Written(mine.protocol, mine.version))
        write: Write = (
            Create(paths.PROTOCOL, data) if found is None
            else Set(paths.PROTOCOL, data, found.version)
        )  # fmt: skip
        try:
            registry.coordination.write(write)
        except ConflictError:
            continue  # another process was faster, possibly a newer one
        return
    raise ConflictError(f"{paths.PROTOCOL} changed {TRIES_MAX} times meanwhile", paths.PROTOCOL)


def members(registry: Registry) -> Iterator[Member]:
    """Coordinators and workers; also a leader whose version registers no coordinator node."""
    coordinators = registry.coordinators()
    leader = registry.leader()
    if leader is not None and leader.id not in {c.id for c in coordinators}:
        yield Member(leader.id, leader.version, leader.protocol)
    yield from (Member(c.id, c.version, c.protocol) for c in coordinators)
    yield from (Member(w.id, w.version, w.protocol) for w in registry.workers())


def refuse(name: str, mine: Build, written: Written | None, others: Sequence[Member]) -> None:
    """RefusedError unless `mine` may take part beside `others` in a deployment with `written`."""
    me = f"{name} is perseid {mine.version}, which speaks protocol {mine.protocol}"
    if written is not None and written.protocol > mine.protocol:
        raise RefusedError(
            f"{me}; this deployment was written with protocol {written.protocol} by perseid "
            f"{written.version}: install that version or a newer one. There is no way back but a "
            "backup of before: `perseid restore`"
        )
    if written is not None and written.protocol < mine.oldest:
        raise RefusedError(
            f"{me} and goes on with data of protocol {mine.oldest} or later; this deployment was "
            f"written with protocol {written.protocol} by perseid {written.version}: upgrade to a "
            "version in between first"
        )
    apart = [other for other in others if other.protocol != mine.protocol]
    if apart:
        listed = ", ".join(f"{o.name} ({o.version}, protocol {o.protocol})" for o in apart)
        raise RefusedError(
            f"{me}, and others run that speak another one: {listed}. They must not share jobs: "
            "stop all coordinators and workers, then start those of one version"
        )
