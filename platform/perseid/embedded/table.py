"""The process table: wanted and running processes, as small files below <data>/run.

    run/cluster.json        what should run (written by `up`, read by the keeper)
    run/owner.json          the process whose end ends the cluster (tests), usually none
    run/keeper.json         the keeper's mark
    run/<name>.json         written by the supervisor of <name> at each start of its child

Files are replaced by rename, so readers never see half of one. Every read checks them against the
kernel: a recorded process counts only while its mark is alive.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perseid.embedded.paths import Home
from perseid.records.marks import Mark, alive


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that a supervisor keeps running.

    kind: kafka | zookeeper | redis | coordinator | worker | spark-master | spark-worker.
    `stop_order`: `down` stops the lowest first, so that engines end before the parts they use.
    """

    name: str
    kind: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    stop_order: int = 0
    stop_grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    """What a supervisor wrote about itself and its child."""

    name: str
    kind: str
    child: Mark | None
    supervisor: Mark | None
    restarts: int = 0
    started_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One row of the table for display, chaos and tests. Pids are None for what is not alive."""

    name: str
    kind: str
    pid: int | None
    supervisor_pid: int | None
    alive: bool
    restarts: int = 0
    started_ms: int = 0


def write_specs(home: Home, specs: list[ProcessSpec]) -> None:
    _write(home.run / "cluster.json", {"processes": [asdict(spec) for spec in specs]})


def read_specs(home: Home) -> list[ProcessSpec]:
    """What should run; empty when the cluster is down."""
    found = _read(home.run / "cluster.json")
    return [ProcessSpec(**spec) for spec in found["processes"]] if found else []


def write_running(home: Home, running: Running) -> None:
    _write(home.run / f"{running.name}.json", asdict(running))


def read_running(home: Home, name: str) -> Running | None:
    found = _read(home.run / f"{name}.json")
    if not found:
        return None
    for role in ("child", "supervisor"):
        found[role] = Mark(**found[role]) if found[role] else None
    return Running(**found)


def remove_running(home: Home, name: str) -> None:
    (home.run / f"{name}.json").unlink(missing_ok=True)


def write_owner(home: Home, owner: Mark | None) -> None:
    """The process whose end is the cluster's end; None: it runs until `down`."""
    _write(home.run / "owner.json", {"owner": asdict(owner) if owner is not None else None})


def is_orphan(home: Home) -> bool:
    """Whether the cluster belongs to a process that is gone."""
    found = _read(home.run / "owner.json")
    if not found or not found["owner"]:
        return False
    return not alive(Mark(**found["owner"]))


def keeper(home: Home) -> Mark | None:
    """The keeper, None unless it is alive."""
    running = read_running(home, "keeper")
    return running.child if running is not None and alive(running.child) else None


def processes(data: Path) -> list[ProcessInfo]:
    """All processes that `up` started in `data`, the keeper first."""
    home = Home(data)
    names = [("keeper", "keeper"), *((spec.name, spec.kind) for spec in read_specs(home))]
    recorded = {path.stem for path in home.run.glob("*.json")} - {"cluster", "owner"}
    for name in sorted(recorded - {known for known, _ in names}):
        left = read_running(home, name)  # no longer wanted, perhaps still there
        if left is not None and (alive(left.child) or alive(left.supervisor)):
            names.append((name, left.kind))
    if len(names) == 1 and keeper(home) is None:
        return []
    return [_info(name, kind, read_running(home, name)) for name, kind in names]


def _info(name: str, kind: str, running: Running | None) -> ProcessInfo:
    if running is None:
        return ProcessInfo(name, kind, None, None, alive=False)
    return ProcessInfo(
        name=name,
        kind=kind,
        pid=_pid(running.child),
        supervisor_pid=_pid(running.supervisor),
        alive=alive(running.child),
        restarts=running.restarts,
        started_ms=running.started_ms,
    )


def _pid(who: Mark | None) -> int | None:
    return who.pid if who is not None and alive(who) else None


def _write(path: Path, value: dict[str, Any]) -> None:
    # The pid in the name: two writers (an old and a new supervisor) must not share a draft.
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(value, indent=1))
    fresh.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return found
