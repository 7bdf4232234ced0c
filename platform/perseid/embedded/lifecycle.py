"""`up` and `down`: bring a data folder's cluster from any state to the wanted one.

Up: 1. prepare folders, ports, configuration files and the broker's log directory; 2. write the
settings and the wanted processes that everything needs (Kafka, ZooKeeper, Redis, Spark), ensure
that a keeper runs, wait until they answer; 3. add coordinators and workers, wait until a leader
leads and all workers are registered. Each step is idempotent, so a second `up` does nothing, and an
`up` after `kill -9` of all processes resumes from the data.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from perseid.embedded import health, keeper_lock, table
from perseid.embedded.identity import send, sweep, tagged, wait_gone
from perseid.embedded.paths import Home, state_root
from perseid.embedded.prepare import Outside, prepare
from perseid.embedded.table import ProcessInfo, ProcessSpec
from perseid.embedded.waiting import WaitedInVain, until
from perseid.errors import RefusedError, RetryableError
from perseid.records import Deployment
from perseid.records.marks import Mark

Note = Callable[[str], None]
# Two cold JVMs and a log recovery on a loaded two-core machine; normally three to five seconds.
HEALTHY_TIMEOUT_S = 180.0
# Spark drivers import pyspark and start a JVM each: ten seconds, and 118 on a slow, busy machine.
ENGINES_TIMEOUT_S = 300.0
RESTARTS_MAX = 5  # of an awaited process: a further restart will not make it healthy either
DOWN_TIMEOUT_S = 60.0
CONTENTS = ("kafka", "zookeeper", "redis", "spark", "store", "state", "logs", "run", "cache")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `up`. None: what is running, else the default."""

    workers: int | None = None
    coordinators: int | None = None
    outside: Outside = field(default_factory=Outside)

    def completed(self, running: list[ProcessSpec]) -> tuple[int, int]:
        """(workers, coordinators); defaults are 2 workers, a leader and a standby."""
        found = {kind: sum(s.kind == kind for s in running) for kind in ("worker", "coordinator")}
        workers = found["worker"] if running and self.workers is None else self.workers
        leaders = found["coordinator"] if running and self.coordinators is None else None
        return (
            2 if workers is None else workers,
            next(n for n in (self.coordinators, leaders, 2) if n is not None),
        )


def up(
    data: Path, wanted: Wanted, note: Note = lambda _: None, owner: Mark | None = None
) -> Deployment:
    """Starts what is missing and waits until all is healthy; it ends with `owner`, if given."""
    home = Home(data)
    home.make()
    with exclusive(home):
        table.write_owner(home, owner)
        workers, coordinators = wanted.completed(table.read_specs(home))
        if not home.deployment.is_file():
            _forget_state(home)  # of a cluster whose folder was deleted
        outside = Outside.kept(home.outside).changed_by(wanted.outside)
        plan = prepare(home, outside, workers, coordinators, note)
        home.outside.write_text(json.dumps(asdict(outside)) + "\n")
        home.deployment.write_text(plan.deployment.model_dump_json(indent=2) + "\n")
        deployment = Deployment.load(home.deployment)
        kept = {spec.name for spec in table.read_specs(home)}
        engines = [spec for spec in plan.engines if spec.name in kept]
        apply(home, [*plan.base, *engines])
        _wait_for_base(home, deployment, note)
        apply(home, [*plan.base, *plan.engines])
        _wait_for_engines(home, deployment, plan.engines, note)
    return deployment


def _forget_state(home: Home) -> None:
    """Removes the state logs, which may be outside the data folder, in gigabytes of memory."""
    shutil.rmtree(state_root(home.data), ignore_errors=True)


def down(data: Path, *, purge: bool = False, note: Note = lambda _: None) -> list[str]:
    """Stops all that `up` started here and nothing else; returns the names of what was running."""
    home = Home(data)
    if not home.run.is_dir():
        return []
    with exclusive(home):
        stopped = [info.name for info in table.processes(data) if info.alive]
        _stop(home, note)
        if purge:
            _purge(home)
    return stopped


def apply(home: Home, specs: list[ProcessSpec]) -> None:
    """Makes the keeper start and stop what has changed; returns at once."""
    if specs != table.read_specs(home):
        table.write_specs(home, specs)
    keeper_lock.revive(home)
    send(table.keeper(home), signal.SIGHUP)


def _wait_for_base(home: Home, deployment: Deployment, note: Note) -> None:
    checks = health.probes(deployment)
    if deployment.master.startswith("spark://"):
        checks["spark-master"] = lambda: health.spark_master(deployment.master)
    for name, probe in checks.items():
        note(f"waiting for {name}")
        until_healthy(home, probe, HEALTHY_TIMEOUT_S, name)


def _wait_for_engines(
    home: Home, deployment: Deployment, engines: list[ProcessSpec], note: Note
) -> None:
    coordinators, workers = (
        sorted(spec.name for spec in engines if spec.kind == kind)
        for kind in ("coordinator", "worker")
    )
    if coordinators:
        note("waiting for the coordinator")
        until_healthy(home, lambda: health.leader(deployment), ENGINES_TIMEOUT_S, *coordinators)
    if workers:
        note(f"waiting for {len(workers)} workers")
    for name in workers:
        until_healthy(home, partial(health.worker, deployment, name), ENGINES_TIMEOUT_S, name)


def until_healthy(home: Home, probe: health.Probe, timeout_s: float, *processes: str) -> None:
    """Returns when `probe` finds no fault.

    RetryableError on timeout, or when all of `processes` end repeatedly; the message names the log
    of the first.
    """
    last, before = "never asked", _restarts(home, processes)

    def decided() -> bool:
        nonlocal last
        last = probe() or ""
        now = _restarts(home, processes)
        return not last or all(now[name] - before[name] > RESTARTS_MAX for name in processes)

    name = processes[0]
    try:
        until(decided, timeout_s, name, poll_s=0.1)
    except WaitedInVain:
        raise RetryableError(
            f"not healthy after {timeout_s:g} s: {last}. See {home.log(name)}"
        ) from None
    if last:
        raise RetryableError(
            f"{name} ends again and again, and is restarted: {last}. See {home.log(name)}"
        )


def _restarts(home: Home, processes: Iterable[str]) -> dict[str, int]:
    running = {name: table.read_running(home, name) for name in processes}
    return {name: one.restarts if one is not None else 0 for name, one in running.items()}


def _stop(home: Home, note: Note) -> None:
    """Asks the keeper to stop; kills by tag and mark what it could not stop."""
    keeper = table.keeper(home)
    specs = table.read_specs(home)
    table.write_specs(home, [])  # from here on no supervisor starts a keeper
    if keeper is not None:
        note("stopping")
        # An empty list makes the keeper stop its supervisors in order; then it gets the signal to
        # exit.
        send(keeper, signal.SIGTERM)
        wait_gone(keeper, DOWN_TIMEOUT_S)
    for spec in sorted(specs, key=lambda s: s.stop_order):
        running = table.read_running(home, spec.name)
        if running is not None:
            send(running.supervisor, signal.SIGTERM)
            if not wait_gone(running.supervisor, spec.stop_grace_s + 5):
                send(running.supervisor, signal.SIGKILL)
            table.remove_running(home, spec.name)
    sweep(f"{home.data}#")
    if left := list(tagged(f"{home.data}#")):
        raise RetryableError(f"processes that do not end: {left}")
    for path in home.run.glob("*.json"):
        path.unlink(missing_ok=True)


def _purge(home: Home) -> None:
    """Removes what a cluster wrote; a data folder that holds other files keeps those."""
    _forget_state(home)
    for name in CONTENTS:
        shutil.rmtree(home.data / name, ignore_errors=True)
    for file in (home.deployment, home.ports, home.outside, home.data / "up.lock"):
        file.unlink(missing_ok=True)
    if not any(home.data.iterdir()):
        home.data.rmdir()


@contextmanager
def exclusive(home: Home) -> Iterator[None]:
    """One `up` or `down` at a time."""
    with (home.data / "up.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusedError(
                f"another `perseid up` or `down` works on {home.data}: wait for it and try again"
            ) from None
        os.set_inheritable(file.fileno(), False)
        yield


def processes(data: Path) -> list[ProcessInfo]:
    """All processes of the cluster in `data`; empty when it is down."""
    return table.processes(data)
