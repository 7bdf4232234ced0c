"""A backup: a deployment's data outside of Kafka, in a folder.

    backup.json      the nodes of ZooKeeper verbatim, Kafka's state at that time, and all files
    store/<path>     job archives, and the checkpoints that the nodes name, as in the store

Kafka is not in it: token logs, ledgers and sinks remain in Kafka and decide what is committed. So
an older backup does no harm: later epochs are in token log and ledger, and are replayed, not
written again (`restore`). Each job is read as of one moment.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from perseid.errors import DamagedFile, PermanentError, RefusedError, RetryableError
from perseid.jobs.model.trees import archive_path
from perseid.records import BackupMark, CheckpointPointers, JobEntry, Plan
from perseid.records.version import Build
from perseid.registry import Registry, codec, paths
from perseid.state.durability import checkpoint
from perseid.state.durability.pieces import file_of
from perseid.state.durability.store import Store
from perseid.topics import names
from perseid.topics.admin import TopicInfo, TopicReader

FORMAT = 1
MARKS_MAX = 200  # of a job: its token log is held back by at most so many newest backups
TRIES_MAX = 10  # of a job that changes while it is read
OF_A_MOMENT = (paths.EPOCH, paths.LEADER, paths.COORDINATORS, paths.WORKERS, paths.CHANGED,
               paths.PROTOCOL, paths.DEPLOYMENT)  # fmt: skip
CONTENTS, STORE = "backup.json", "store"


@dataclass(frozen=True, slots=True)
class JobBackup:
    """One job. `nodes` by the last part of their path, such as "plan".

    `topics`: the ids of its token log and ledger; `tokens_end`: the offset after the last token
    record. Later records are newer than the backup.
    """

    name: str
    nodes: Mapping[str, str]
    topics: Mapping[str, str]
    tokens_end: int

    @property
    def is_removed(self) -> bool:
        """Whether only its generation is left; a later job of its name continues above that."""
        return "spec" not in self.nodes

    def entry(self) -> JobEntry:
        return codec.decode(self.nodes["spec"].encode(), JobEntry, f"spec of {self.name}")

    def plan(self) -> Plan | None:
        """The job's plan; None where it is of an earlier job of the same name."""
        if "plan" not in self.nodes:
            return None
        found = codec.decode(self.nodes["plan"].encode(), Plan, f"plan of {self.name}")
        return found if found.job_uuid == self.entry().uuid else None

    def pointers(self) -> CheckpointPointers | None:
        if "checkpoint" not in self.nodes:
            return None
        text = self.nodes["checkpoint"]
        found = codec.decode(text.encode(), CheckpointPointers, f"checkpoint of {self.name}")
        return found if found.job_uuid == self.entry().uuid else None


@dataclass(frozen=True, slots=True)
class Backup:
    """Content of `backup.json`. `others`: nodes besides the jobs, by path.

    `files`: SHA-256 by path in the store; of those that are `copied` the folder has a copy.
    """

    protocol: int
    version: str
    deployment: str
    taken_ms: int
    copied: bool
    jobs: tuple[JobBackup, ...]
    others: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


class Place(Protocol):
    """Where a backup is taken, or restored to."""

    @property
    def registry(self) -> Registry: ...
    @property
    def topics(self) -> TopicReader: ...
    @property
    def store(self) -> Store: ...


def take(
    source: Place, folder: Path, build: Build, deployment: str, now_ms: int, *, copied: bool
) -> Backup:
    """Writes a backup into the new folder, which appears only when it is complete.

    Raises RefusedError when the folder exists, RetryableError when a part does not answer or a job
    changes too often while it is read.
    """
    if folder.exists():
        raise RefusedError(f"{folder} is there already; name a new folder for each backup")
    draft = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)  # of one that was interrupted
    try:
        (draft / STORE).mkdir(mode=0o700, parents=True)
        jobs, files = [], dict[str, str]()
        for name in source.registry.job_names():
            mark(source.registry, name, now_ms)
            job, own = _job(source, name, draft, copied)
            jobs.append(job)
            files |= own
        others = dict(_others(source.registry, "/"))
        made = Backup(
            build.protocol, build.version, deployment, now_ms, copied, tuple(jobs), others, files
        )
        document = {"format": FORMAT, **asdict(made)}
        (draft / CONTENTS).write_text(json.dumps(document, indent=1) + "\n")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def read(folder: Path) -> Backup:
    """The backup in a folder. RefusedError when there is none; DamagedFile when it is damaged."""
    path = folder / CONTENTS
    if not path.is_file():
        raise RefusedError(f"{folder} holds no backup: there is no {CONTENTS} in it")
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        if document.pop("format") != FORMAT:
            raise RefusedError(f"{path} has another format than {FORMAT}, which this version reads")
        jobs = tuple(JobBackup(**job) for job in document.pop("jobs"))
        found = Backup(jobs=jobs, **document)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is not as a backup was written: {error!r}") from error
    if found.copied:
        for name, digest in found.files.items():
            if sha256(copy_of(folder, name)) != digest:
                raise DamagedFile(f"{folder / STORE / name} is not as it was written")
    return found


def copy_of(folder: Path, name: str) -> bytes:
    """A file's copy; DamagedFile when it is missing."""
    try:
        return (folder / STORE / name).read_bytes()
    except FileNotFoundError as error:
        raise DamagedFile(f"{folder / STORE / name} is missing from the backup") from error


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _job(
    source: Place, name: str, draft: Path, copied: bool
) -> tuple[JobBackup, Mapping[str, str]]:
    """The job at one moment, and its files."""
    for _ in range(TRIES_MAX):
        nodes = _nodes(source.registry, name)
        found = JobBackup(name, nodes, *_in_kafka(source.topics, name))
        try:
            files = dict(_files(source.store, found, draft, copied))
        except DamagedFile:
            if nodes == _nodes(source.registry, name):  # else a newer checkpoint has replaced them
                raise
            continue
        after = _nodes(source.registry, name)
        if all(nodes.get(n) == after.get(n) for n in ("spec", "plan", "generation", "checkpoint")):
            return found, files
    raise RetryableError(f"job {name} changed {TRIES_MAX} times while it was read: try again")


def mark(registry: Registry, name: str, now_ms: int, *, whole: bool = False) -> None:
    """Keeps the token log from the oldest checkpoint on, before anything of the job is read.

    An owner reads from there (`perseid.engine.feed.base_of`), never earlier. The
    coordinator respects marks when it trims, for a limited time (`perseid.coordinator.trimming`).
    `whole`: from the beginning of the plan on, to read all tokens.
    """
    older, held = registry.backups(name), _held(registry, name, whole)
    while held is not None:
        mark = BackupMark(*held, max(now_ms, _newest_ms(registry, name)))
        kept = [m for m in older if m.job_uuid == mark.job_uuid]
        registry.put_backups(name, (mark, *kept[: MARKS_MAX - 1]))
        # A trim that missed the mark may have reached a checkpoint completed meanwhile.
        before, held = held, _held(registry, name, whole)
        if held == before:
            return


def _held(registry: Registry, name: str, whole: bool) -> tuple[str, int, int] | None:
    """Job UUID, epoch and offset of what a mark holds; None for a job that never ran."""
    plan, pointers = registry.plan(name), registry.pointers(name)
    if plan is None:
        return None
    if not whole and pointers is not None and pointers.job_uuid == plan.job_uuid:
        for oldest in pointers.pointers[-1:]:
            return plan.job_uuid, oldest.epoch, oldest.token_offset
    return plan.job_uuid, plan.base_epoch, plan.base_offset


def _newest_ms(registry: Registry, name: str) -> int:
    """The time of the newest checkpoint: a backup is later, even if the clock here is late."""
    pointers = registry.pointers(name)
    return max((p.time_ms for p in pointers.pointers), default=0) if pointers is not None else 0


def _nodes(registry: Registry, name: str) -> dict[str, str]:
    there = {n: registry.coordination.get(f"{paths.job(name)}/{n}")
             for n in registry.coordination.children(paths.job(name))}  # fmt: skip
    return {n: node.data.decode() for n, node in there.items() if node is not None}


def _in_kafka(topics: TopicReader, name: str) -> tuple[dict[str, str], int]:
    """Ids of the topics that decide what is committed, and the end of the token log."""
    found: dict[str, TopicInfo] = topics.describe([names.tokens(name), names.ledger(name)])
    place = (names.tokens(name), 0)
    end = topics.ends([place])[place] if names.tokens(name) in found else 0
    return {topic: info.topic_id for topic, info in found.items()}, end


def _files(store: Store, job: JobBackup, draft: Path, copied: bool) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of all files that the job's nodes name; copies them meanwhile."""
    for path in needed(store, job):
        data = store.read(path)
        if copied:
            target = draft / STORE / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        yield path, sha256(data)


def needed(store: Store, job: JobBackup) -> list[str]:
    """The paths of a job's archives, manifests and parts; DamagedFile for a damaged manifest."""
    if job.is_removed:
        return []
    plan, pointers = job.plan(), job.pointers()
    archives = {job.entry().archive, *([plan.archive] if plan is not None else [])}
    kept = pointers.pointers if pointers is not None else ()
    manifests = [checkpoint.read_manifest(store, p.manifest, p.crc) for p in kept]
    wanted = checkpoint.needed(manifests)
    inside = store.list(checkpoint.job_folder(job.name, job.entry().uuid)) if wanted else []
    parts = [path for path in inside if file_of(path) in wanted]
    missing = wanted - {file_of(path) for path in parts}
    if missing:
        raise DamagedFile(f"{min(missing)} is missing from the checkpoint store")
    return sorted({*map(archive_path, archives), *(p.manifest for p in kept), *parts})


def _others(registry: Registry, top: str) -> Iterator[tuple[str, str]]:
    """Persistent nodes that belong to no job and are not transient state."""
    for name in registry.coordination.children(top):
        path = f"{top.rstrip('/')}/{name}"
        node = registry.coordination.get(path)
        if path in (*OF_A_MOMENT, paths.JOBS) or node is None or node.ephemeral:
            continue
        try:
            yield path, node.data.decode()
        except UnicodeDecodeError as error:
            raise PermanentError(f"node {path} does not hold text: {error}") from None
        yield from _others(registry, path)
