"""A rolling restart: coordinators and workers are restarted one after the other while jobs run.

Each is stopped together with its supervisor, so the new process runs the code that is installed
now. Coordinators come first, the leader as the last of them, so that leadership moves once. The
next one is stopped only when the previous one is registered in ZooKeeper again, so with two of each
one can always take over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from perseid.embedded import table
from perseid.embedded.lifecycle import apply, exclusive
from perseid.embedded.paths import Home
from perseid.embedded.table import ProcessSpec
from perseid.embedded.waiting import until
from perseid.errors import RefusedError, RetryableError
from perseid.records import Deployment
from perseid.registry import Registry

KINDS = ("coordinator", "worker")
LEAVE_S = 60.0  # the keeper kills a process that does not end much sooner
RETURN_S = 300.0  # a Spark driver next to a busy one, on few cores

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Restarted:
    """One process. `left_s`: until it had ended; `away_s`: until its successor was registered."""

    name: str
    kind: str
    left_s: float
    away_s: float
    pid: int | None


def order(specs: Sequence[ProcessSpec], leader: str | None, names: Sequence[str]) -> list[str]:
    """Which processes to restart, in order: all engines, or those of `names`.

    RefusedError for an unknown name.
    """
    engines = [spec for spec in specs if spec.kind in KINDS]
    known = {spec.name for spec in engines}
    if not known:
        raise RefusedError("no coordinator or worker runs here: type `perseid up`")
    for name in names:
        if name not in known:
            raise RefusedError(
                f"{name!r} is no coordinator or worker here; there are: {', '.join(sorted(known))}"
            )
    chosen = [spec for spec in engines if spec.name in (names or known)]
    ranked = sorted(chosen, key=lambda s: (KINDS.index(s.kind), s.name == leader))
    return [spec.name for spec in ranked]


def planned(data: Path, deployment: Deployment, names: Sequence[str]) -> list[str]:
    """The processes that `restart` would restart, in order."""
    with closing(Registry.connect(deployment)) as registry:
        leader = registry.leader()
    return order(table.read_specs(Home(data)), leader.id if leader else None, names)


def restart(
    data: Path, deployment: Deployment, names: Sequence[str], note: Note = lambda _: None
) -> Iterator[Restarted]:
    """Restarts one after the other, each when the caller requests the next.

    Raises RetryableError when one does not return: then the others are not touched.
    """
    home = Home(data)
    with exclusive(home), closing(Registry.connect(deployment)) as registry:
        for name in planned(data, deployment, names):
            note(f"restarting {name}")
            yield _one(home, registry, name)


def _one(home: Home, registry: Registry, name: str) -> Restarted:
    specs = table.read_specs(home)
    spec = next(s for s in specs if s.name == name)
    before = announced(registry, spec)
    began_s = time.monotonic()
    apply(home, [s for s in specs if s.name != name])
    try:
        until(lambda: _is_gone(home, name), LEAVE_S, f"{name} to end")
    finally:
        apply(home, specs)
    left_s = time.monotonic() - began_s
    until(lambda: announced(registry, spec) - before, RETURN_S, f"{name} to come back")
    away_s = time.monotonic() - began_s
    row = next(row for row in table.processes(home.data) if row.name == name)
    return Restarted(name, spec.kind, round(left_s, 2), round(away_s, 2), row.pid)


def announced(registry: Registry, spec: ProcessSpec) -> frozenset[str]:
    """The incarnations of a process in ZooKeeper; none while it does not answer."""
    try:
        if spec.kind == "worker":
            return frozenset(w.incarnation for w in registry.workers() if w.id == spec.name)
        return frozenset(str(c.pid) for c in registry.coordinators() if c.id == spec.name)
    except RetryableError:
        return frozenset()


def _is_gone(home: Home, name: str) -> bool:
    rows = [row for row in table.processes(home.data) if row.name == name]
    return all(row.pid is None and row.supervisor_pid is None for row in rows)
