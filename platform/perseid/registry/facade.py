"""The entries of one deployment, for command line, workers, supervisors and coordinators.

Writes of the leader are in `perseid.registry.fenced`; here are only the writes of others: a user's
job entry (version checked), a worker's own membership and a supervisor's hint.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import uuid4

from perseid.errors import DamagedFile
from perseid.records import (
    BackupMark,
    BackupMarks,
    CheckpointPointers,
    CoordinatorInfo,
    Deployment,
    JobEntry,
    JobFailures,
    JobStatus,
    LeaderInfo,
    Plan,
    WorkerInfo,
)
from perseid.registry import codec, paths
from perseid.registry.port import (
    Check,
    ConflictError,
    Coordination,
    Create,
    Delete,
    SessionState,
    Set,
    Write,
)

_log = logging.getLogger(__name__)
_ID = re.compile(rb"[0-9a-f]{32}")

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Stored(Generic[Entry]):
    """An entry, and the version to pass when it is changed."""

    value: Entry
    version: int


@dataclass(frozen=True, slots=True)
class JobsLook:
    """Entries and plans by job. `damaged`: the jobs with unreadable ones, and why.

    Damaged and removed jobs are in neither `entries` nor `plans`.
    """

    entries: dict[str, JobEntry]
    plans: dict[str, Plan]
    damaged: dict[str, str]


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """Content of the fence: the highest coordinator epoch so far, and its leader."""

    epoch: int
    leader: str


class Registry:
    """All methods raise RetryableError while ZooKeeper is unavailable."""

    def __init__(self, coordination: Coordination) -> None:
        self.coordination = coordination
        self._damaged: set[str] = set()  # paths of entries that were unreadable at the last read
        self._make_skeleton()

    @classmethod
    def connect(cls, deployment: Deployment, timeout_s: float = 10.0) -> Registry:
        """A registry with a session of its own on the deployment's ZooKeeper."""
        from perseid.registry.zookeeper import KazooCoordination

        coordination = KazooCoordination(
            deployment.zookeeper, deployment.chroot, deployment.zookeeper_session_s,
            access=deployment.zookeeper_access,
        )  # fmt: skip
        coordination.start(timeout_s)
        return cls(coordination)

    def close(self) -> None:
        self.coordination.close()

    # -- jobs ------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, JobEntry]:
        """Every applied job by name, without removed ones. DamagedFile when one is damaged."""
        found = {name: self.job_entry(name) for name in self.job_names()}
        return {name: stored.value for name, stored in found.items() if stored is not None}

    def look(self) -> JobsLook:
        """All jobs and plans, and the damaged ones, which must not block the others."""
        entries, plans, damaged = {}, {}, {}
        for name in self.job_names():
            try:
                stored = self.job_entry(name)
                plan = self.plan(name) if stored is not None else None
            except DamagedFile as error:
                damaged[name] = str(error)
                continue
            if stored is not None:
                entries[name] = stored.value
            if plan is not None:
                plans[name] = plan
        return JobsLook(entries, plans, damaged)

    def job_names(self) -> tuple[str, ...]:
        """Every name that ever had an entry; removed jobs keep theirs for their generation."""
        return self.coordination.children(paths.JOBS)

    def job_entry(self, name: str) -> Stored[JobEntry] | None:
        return self.read(paths.spec(name), JobEntry)

    def put_job_entry(
        self, entry: JobEntry, expected_version: int | None, guards: Sequence[Check] = ()
    ) -> None:
        """Writes what the user wants. `expected_version` None: there must be no entry yet.

        Raises ConflictError when the entry, or a node of `guards`, has changed since it was read.
        """
        path = paths.spec(entry.name)
        changed = Set(paths.CHANGED, entry.name.encode())
        if expected_version is not None:
            write = Set(path, codec.encode(entry), expected_version)
            self.coordination.write(*guards, write, changed)
            return
        parent: tuple[Write, ...] = ()
        if self.coordination.get(paths.job(entry.name)) is None:
            parent = (Create(paths.job(entry.name), b""),)
        self.coordination.write(*guards, *parent, Create(path, codec.encode(entry)), changed)

    def plan(self, name: str) -> Plan | None:
        return self._value(paths.plan(name), Plan)

    def pointers(self, name: str) -> CheckpointPointers | None:
        return self._value(paths.checkpoint(name), CheckpointPointers)

    def status(self, name: str) -> JobStatus | None:
        return self._value(paths.status(name), JobStatus)

    def failures(self, name: str) -> JobFailures | None:
        return self._value(paths.failures(name), JobFailures)

    def backups(self, name: str) -> tuple[BackupMark, ...]:
        """The marks of the job's backups, newest first."""
        found = self._value(paths.backups(name), BackupMarks)
        return found.marks if found is not None else ()

    def put_backups(self, name: str, marks: tuple[BackupMark, ...]) -> None:
        """Replaces the marks; ConflictError after a concurrent change."""
        path, data = paths.backups(name), codec.encode(BackupMarks(marks))
        node = self.coordination.get(path)
        write = Set(path, data, node.version) if node is not None else Create(path, data)
        self.coordination.write(write)

    def deployment_id(self) -> str:
        """A random id, made at the first request."""
        node = self.coordination.get(paths.DEPLOYMENT)
        if node is None:
            with suppress(ConflictError):  # another process was faster
                self.coordination.write(Create(paths.DEPLOYMENT, uuid4().hex.encode()))
            node = self.coordination.get(paths.DEPLOYMENT)
        data = node.data if node is not None else b""
        if not _ID.fullmatch(data):
            raise DamagedFile(f"{paths.DEPLOYMENT} is {data[:40]!r}, and no id")
        return data.decode()

    def generation(self, name: str) -> int:
        """The highest generation ever used under this job name; 0 before the first."""
        node = self.coordination.get(paths.generation(name))
        if node is not None and not node.data.isdigit():
            raise DamagedFile(f"{paths.generation(name)} is {node.data[:40]!r}, and no number")
        return int(node.data) if node is not None else 0

    # -- members ---------------------------------------------------------------------------------

    def workers(self) -> tuple[WorkerInfo, ...]:
        """The live workers, in the order of their incarnations.

        One whose entry is unreadable is left out, as if it were gone, and logged.
        """
        names = self.coordination.children(paths.WORKERS)
        found = (self._readable(paths.worker(name), WorkerInfo) for name in names)
        return tuple(worker for worker in found if worker is not None)

    def leader(self) -> LeaderInfo | None:
        return self._value(paths.LEADER, LeaderInfo)

    def coordinators(self) -> tuple[CoordinatorInfo, ...]:
        """The live coordinators, leader and standbys."""
        names = self.coordination.children(paths.COORDINATORS)
        found = (self._value(f"{paths.COORDINATORS}/{n}", CoordinatorInfo) for n in names)
        return tuple(coordinator for coordinator in found if coordinator is not None)

    def register_coordinator(self, info: CoordinatorInfo) -> None:
        """Registers this process for as long as the session lives. Idempotent."""
        if self.coordination.get(paths.COORDINATORS) is None:
            with suppress(ConflictError):  # another process was faster
                self.coordination.write(Create(paths.COORDINATORS, b""))
        self._announce(paths.coordinator(info.id, info.pid), codec.encode(info))

    def register_worker(self, info: WorkerInfo) -> None:
        """Registers this process for as long as the session lives. Idempotent."""
        self._announce(paths.worker(info.incarnation), codec.encode(info))

    def _announce(self, path: str, data: bytes) -> None:
        """Makes an ephemeral node of this session; replaces one of an earlier life."""
        node = self.coordination.get(path)
        if node is not None and node.mine:
            return
        stale: tuple[Write, ...] = (Delete(path, node.version),) if node is not None else ()
        try:
            self.coordination.write(*stale, Create(path, data, ephemeral=True))
        except ConflictError:
            # An earlier attempt with an unknown outcome may have succeeded meanwhile.
            node = self.coordination.get(path)
            if node is None or not node.mine:
                raise

    def change_worker(self, info: WorkerInfo) -> None:
        """Changes a registered worker's entry and notifies watchers.

        ConflictError if it is gone.
        """
        changed = Set(paths.CHANGED, info.incarnation.encode())
        self.coordination.write(Set(paths.worker(info.incarnation), codec.encode(info)), changed)

    def remove_worker(self, worker_id: str, pid: int) -> bool:
        """A supervisor's hint that this process is dead: its session need not expire first."""
        for worker in self.workers():
            if worker.id == worker_id and worker.pid == pid:
                try:
                    self.coordination.write(Delete(paths.worker(worker.incarnation)))
                except ConflictError:
                    return False  # it was removed already
                return True
        return False

    def remove_leader(self, coordinator_id: str, pid: int) -> bool:
        """The same hint for a dead leader: another coordinator can lead at once.

        Harmless when it is wrong: a living leader continues until another one moves the fence.
        """
        node = self.read(paths.LEADER, LeaderInfo)
        if node is None or (node.value.id, node.value.pid) != (coordinator_id, pid):
            return False
        try:
            self.coordination.write(Delete(paths.LEADER, node.version))
        except ConflictError:
            return False
        return True

    # -- changes ---------------------------------------------------------------------------------

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back after any job entry, plan or member changed; calls are merged.

        The callback must not block and must not read the registry itself: it runs in the client's
        thread. Set an event there and read in a thread of your own.
        """
        for path in (paths.CHANGED, paths.WORKERS, paths.LEADER):
            self.coordination.watch(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """Calls back at every change of the session's state; the callback must not block."""
        self.coordination.on_session(callback)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, kind: type[Entry]) -> Stored[Entry] | None:
        """The entry at `path` with its version. Raises DamagedFile when it is not valid."""
        node = self.coordination.get(path)
        if node is None:
            return None
        return Stored(codec.decode(node.data, kind, path), node.version)

    def _readable(self, path: str, kind: type[Entry]) -> Entry | None:
        """The entry; None for a damaged one, which is logged once."""
        try:
            found = self._value(path, kind)
        except DamagedFile as error:
            if path not in self._damaged:
                self._damaged.add(path)
                _log.error("%s; it is taken for absent", error)
            return None
        self._damaged.discard(path)
        return found

    def _value(self, path: str, kind: type[Entry]) -> Entry | None:
        stored = self.read(path, kind)
        return stored.value if stored is not None else None

    def _make_skeleton(self) -> None:
        first = {
            paths.JOBS: b"", paths.WORKERS: b"", paths.CHANGED: b"",
            paths.EPOCH: codec.encode(EpochEntry(0, "")),
        }  # fmt: skip
        for path, data in first.items():
            if self.coordination.get(path) is None:
                try:
                    self.coordination.write(Create(path, data))
                except ConflictError:
                    continue  # another process was faster
