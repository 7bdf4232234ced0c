"""Who is let into a deployment: a process announces its protocol, another one is refused.

`/protocol` holds the protocol of what is written. It is raised by the first process of a newer
version that finds nobody of the older one alive, and never falls: what a newer version has written
an older one must not touch. Whoever slips in between look and registration (an older worker that
was about to register) gets no job: `perseid.coordinator.placement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perseid.errors import RefusedError
from perseid.records.version import Build
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import ConflictError, Create, Set, Write

TRIES_MAX = 5  # of a write that others are in the way of: each try looks again


@dataclass(frozen=True, slots=True)
class Written:
    """Content of `/protocol`: of what lies in this deployment. `version`: who wrote it first."""

    protocol: int
    version: str


@dataclass(frozen=True, slots=True)
class Member:
    """A live process."""

    name: str
    version: str
    protocol: int


def admit(registry: Registry, name: str, mine: Build) -> None:
    """Returns when process `name` may take part; RefusedError with what to do when it must not.

    Raises RetryableError while ZooKeeper is out of reach.
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
            continue  # another process was faster: it may have been a newer one
        return
    raise ConflictError(f"{paths.PROTOCOL} changed {TRIES_MAX} times meanwhile", paths.PROTOCOL)


def members(registry: Registry) -> Iterator[Member]:
    """Coordinators and workers; also a leader of a version that does not announce itself else."""
    coordinators = registry.coordinators()
    leader = registry.leader()
    if leader is not None and leader.id not in {c.id for c in coordinators}:
        yield Member(leader.id, leader.version, leader.protocol)
    yield from (Member(c.id, c.version, c.protocol) for c in coordinators)
    yield from (Member(w.id, w.version, w.protocol) for w in registry.workers())


def refuse(name: str, mine: Build, written: Written | None, others: Sequence[Member]) -> None:
    """Raises RefusedError unless `mine` may take part beside `others`, in what is `written`."""
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
