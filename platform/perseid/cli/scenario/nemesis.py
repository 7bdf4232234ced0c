"""Finds the process that a kill targets, at the moment of the kill, and kills it.

ZooKeeper has a job's owner and the leader, the cluster's process table the processes. Every signal
goes to a pid with its start time, never to a pid alone.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.embedded import Cluster
from perseid.embedded.identity import send
from perseid.errors import PerseidError
from perseid.records import WorkerInfo
from perseid.records.marks import Mark, mark

if TYPE_CHECKING:
    import psutil

    from perseid.registry.facade import Registry

_PYTHON_WORKERS = ("perseid.worker.spark.daemon", "pyspark.daemon")
_EXECUTOR = "CoarseGrainedExecutorBackend"
_BY_KIND = {"broker": "kafka", "zookeeper": "zookeeper", "redis": "redis"}


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that runs the job now."""

    incarnation: str
    worker: WorkerInfo


class Nemesis:
    """Knows the processes of one job."""

    def __init__(self, cluster: Cluster, registry: Registry, job: str) -> None:
        self._cluster = cluster
        self._registry = registry
        self._job = job

    def owners(self) -> list[Owner | None]:
        """The live owner of each fragment; None between two owners. Empty without ZooKeeper.

        ZooKeeper shows a dead worker until its session ends, and what it had sent may be committed
        meanwhile.
        """
        try:
            plan = self._registry.plan(self._job)
            workers = {w.incarnation: w for w in self._registry.workers()}
        except PerseidError:
            return []
        named = [own.owner for own in plan.primaries] if plan is not None else []
        found = [workers.get(name) if name is not None else None for name in named]
        return [
            Owner(worker.incarnation, worker)
            if worker is not None and mark(worker.pid) is not None else None
            for worker in found
        ]  # fmt: skip

    def owner(self) -> Owner | None:
        """A live owner: that of the first fragment that has one."""
        return next((owner for owner in self.owners() if owner is not None), None)

    def owner_id(self) -> str | None:
        """The incarnations of the live owners; None while a fragment has none."""
        found = self.owners()
        known = dict.fromkeys(owner.incarnation for owner in found if owner is not None)
        return ", ".join(known) if found and None not in found else None

    def find(self, what: str) -> Mark | None:
        """The current process for `--kill what`; None when there is none at this moment."""
        if what in _BY_KIND:
            return self._row(_BY_KIND[what])
        if what in {"coordinator", "standby"}:
            return self._coordinator(leading=what == "coordinator")
        owner = self.owner()
        if owner is None:
            return None
        if what == "worker":
            return mark(owner.worker.pid)
        if what == "supervisor":
            return mark(owner.worker.supervisor_pid)
        below = [owner.worker.pid, *self._spark_workers()]
        return _executor_of(owner.worker.pid, below) if what == "executor" else _python_of(below)

    def kill(self, target: Mark) -> bool:
        """Sends SIGKILL; returns False when the process was already gone."""
        return send(target, signal.SIGKILL)

    def _row(self, kind: str) -> Mark | None:
        rows = (p for p in self._cluster.processes() if p.kind == kind and p.pid is not None)
        row = next(rows, None)
        return mark(row.pid) if row is not None and row.pid is not None else None

    def _coordinator(self, *, leading: bool) -> Mark | None:
        try:
            leader = self._registry.leader()
        except PerseidError:
            return None
        if leader is None:
            return None
        if leading:
            return mark(leader.pid)
        for row in self._cluster.processes():
            if row.kind == "coordinator" and row.pid not in {None, leader.pid}:
                return mark(row.pid) if row.pid is not None else None
        return None

    def _spark_workers(self) -> list[int]:
        rows = self._cluster.processes()
        return [p.pid for p in rows if p.kind == "spark-worker" and p.pid is not None]


def _python_of(roots: Iterable[int]) -> Mark | None:
    """A Python worker of Spark below `roots`: the busiest fork of the daemon that runs our tasks.

    The daemon itself, which Spark restarts as well, only when it has no forks; Spark's own daemon,
    which plans reads of the token topic, only when ours does not exist.
    """
    below = [(p, _command(p)) for p in _below(roots)]
    for marker in _PYTHON_WORKERS:
        found = [p for p, command in below if marker in command]
        pids = {p.pid for p in found}
        forks = [p for p in found if _parent(p) in pids]
        if found:
            return mark(max(forks or found, key=_cpu_s).pid)
    return None


def _executor_of(driver: int, roots: Iterable[int]) -> Mark | None:
    """An executor below `roots` that serves the driver: its driver URL has a port of the driver."""
    ports = {str(port) for p in _family(driver) for port in _listening(p)}
    for process in _below(roots):
        command = _command(process)
        if _EXECUTOR not in command:
            continue
        url = next((word for word in command.split() if "CoarseGrainedScheduler@" in word), "")
        if url.rpartition(":")[2] in ports:
            return mark(process.pid)
    return None


def _family(pid: int) -> list[psutil.Process]:
    import psutil

    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def _below(roots: Iterable[int]) -> list[psutil.Process]:
    return [p for root in roots for p in _family(root)[1:]]


def _command(process: psutil.Process) -> str:
    import psutil

    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _parent(process: psutil.Process) -> int:
    import psutil

    try:
        return process.ppid()
    except psutil.Error:
        return 0


def _cpu_s(process: psutil.Process) -> float:
    import psutil

    try:
        return process.cpu_times().user
    except psutil.Error:
        return 0.0


def _listening(process: psutil.Process) -> list[int]:
    import psutil

    try:
        return [c.laddr.port for c in process.net_connections("tcp") if c.status == "LISTEN"]
    except psutil.Error:
        return []
