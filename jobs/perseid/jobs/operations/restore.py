"""Restores a backup into a ZooKeeper that has nothing of its jobs, next to the same Kafka.

Kafka holds what is committed: the ledgers record up to which epoch, the token log of what. A
restored job begins with its backup's checkpoint, runs the later tokens again, and its sinks skip
what the ledger has. So the backup may be older than the last transaction, but not older than a
change of the job: the backup's revision cannot run tokens of another revision, layout or job UUID.
Such a job is refused, and nothing is written.

1. Everything is checked: the backup's files, ZooKeeper, topics and token log of each job.
2. Files that the store lacks are copied.
3. Each job's nodes are written in one transaction, without an owner and with a generation above
   that of all owners since the backup: so what those wrote fences no new owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perseid.errors import DamagedFile, PermanentError, RefusedError
from perseid.jobs.model.trees import archive_path
from perseid.jobs.operations import backup
from perseid.jobs.operations.backup import Backup, JobBackup
from perseid.records import CheckpointPointers, Plan
from perseid.records.version import Build
from perseid.registry import Registry, paths
from perseid.registry import codec as entries
from perseid.registry.port import Create, Set, Write
from perseid.state.durability.store import Store
from perseid.topics import names
from perseid.topics.chain import Base, Chain, valid_tokens
from perseid.topics.codec import decode_progress, decode_token
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import LogReader
from perseid.topics.records import Begin, Token, TokenRecord

# Owners that died before they reported anything; the generations of others are in Kafka.
GENERATIONS = 1_000
READ_TIMEOUT_S = 30.0
TOKENS_READ = 10_000  # records at a time


@dataclass(frozen=True, slots=True)
class Restored:
    """One job. `epoch` is its checkpoint's; `replayed`: later epochs that have a token."""

    name: str
    desired: str
    generation: int
    epoch: int
    replayed: int


def restore(
    target: backup.Place, reader: LogReader, folder: Path, build: Build, only: Sequence[str] = (),
    *, dry_run: bool = False,
) -> list[Restored]:  # fmt: skip
    """Restores the jobs of a backup, all or those of `only`.

    RefusedError with every reason, and nothing is written, when one of them cannot be restored.
    """
    saved = backup.read(folder)
    if not build.reads(saved.protocol):
        read = ", ".join(map(str, (build.protocol, *build.takes_over)))
        raise RefusedError(
            f"the backup is of perseid {saved.version}, protocol {saved.protocol}; this is "
            f"{build.version}, which reads protocol {read} only: "
            f"restore it with perseid {saved.version}"
        )
    chosen = [job for job in saved.jobs if not only or job.name in only]
    unknown = sorted(set(only) - {job.name for job in chosen})
    if unknown:
        known = ", ".join(job.name for job in saved.jobs) or "none"
        raise RefusedError(f"the backup has no job {unknown[0]!r}; it has: {known}")
    look = _Look(target, reader)
    plans = [(job, look.at(job)) for job in chosen if not job.is_removed]
    gone = [(job, look.generation(job)) for job in chosen if job.is_removed]
    missing = list(_lacking(target.store, saved, [job for job, _ in plans]))
    look.refuse()
    if not dry_run:
        for path in missing:
            target.store.write(path, [backup.copy_of(folder, path)])
        if not only:
            _write_others(target.registry, saved.others)
        for job, found in plans:
            _write(target.registry, job.name, _nodes(job, found.generation))
        for job, generation in gone:
            _write(target.registry, job.name, {"generation": str(generation)})
    return [found for _, found in plans]


class _Look:
    """One restore: reads and collects reasons against it, never writes."""

    def __init__(self, target: backup.Place, reader: LogReader) -> None:
        self._registry, self._topics, self._reader = target.registry, target.topics, reader
        self._ledger = LedgerReader(reader, target.topics)
        self._refusals: list[str] = []

    def refuse(self) -> None:
        """Raises RefusedError with all reasons found."""
        if self._refusals:
            raise RefusedError("\n".join(self._refusals))

    def at(self, job: JobBackup) -> Restored:
        entry, plan, pointers = job.entry(), job.plan(), job.pointers()
        newest = pointers.pointers[0] if pointers is not None and pointers.pointers else None
        base = Base(plan.job_uuid, plan.base_epoch, plan.base_offset) if plan is not None else None
        if newest is not None:
            base = Base(entry.uuid, newest.epoch, newest.token_offset)
        replayed = 0
        reasons = list(self._not_there(job))
        if not reasons:
            tokens, reasons = self._since(job, plan, base)
            replayed = tokens
        self._refusals += [f"{job.name}: {reason}" for reason in reasons]
        generation = self.generation(job) if not reasons else 0
        return Restored(
            job.name, entry.desired, generation, base.epoch if base is not None else 0, replayed
        )

    def generation(self, job: JobBackup) -> int:
        """A generation above that of the backup and of every owner since.

        Ledgers and tokens name the generations that committed or issued something, the progress
        topic all that began: a job may have failed for a night before its first epoch.
        """
        topic = names.ledger(job.name)
        info = self._topics.describe([topic]).get(topic)
        last = (
            self._ledger.last(topic, partition, timeout_s=READ_TIMEOUT_S)
            for partition in range(info.partitions if info is not None else 0)
        )
        known = [record.generation for record in last if record is not None]
        since = self._records(job, job.tokens_end)
        known += [record.generation for _, record in since if isinstance(record, Token)]
        topic = names.progress(job.name)
        recorded = self._read(topic, 0)
        known += [decode_progress(topic, *entry).generation for entry in recorded]
        return max([int(job.nodes.get("generation", "0")), *known]) + GENERATIONS

    def _not_there(self, job: JobBackup) -> Iterator[str]:
        if self._registry.job_entry(job.name) is not None:
            yield (
                "is in this ZooKeeper; a restore never replaces a job. If that is what you want, "
                f"`perseid jobs remove {job.name}` (without --purge) first"
            )
        there = self._topics.describe(sorted(job.topics))
        for topic, identity in sorted(job.topics.items()):
            if topic not in there:
                yield f"topic {topic} is not in this Kafka: a backup goes with its Kafka"
            elif there[topic].topic_id != identity:
                yield (
                    f"topic {topic} is another one than at the backup (it was deleted, or this is "
                    "another Kafka): what it had committed is not known any more"
                )

    def _since(self, job: JobBackup, plan: Plan | None, base: Base | None) -> tuple[int, list[str]]:
        """How many epochs follow the base, and why they cannot be run again."""
        uuid = job.entry().uuid
        if plan is None or base is None:
            begun = any(
                isinstance(r, Begin | Token) and r.job_uuid == uuid for _, r in self._records(job)
            )
            late = "was first run after the backup, which has nothing of it; restore a later one"
            return 0, [late] if begun else []
        chain = Chain(base)
        try:
            tokens = valid_tokens(chain, self._records(job, base.offset))
        except PermanentError as error:
            return 0, [str(error)]
        if chain.job_uuid != uuid:
            return 0, ["was started from scratch, or applied again, after the backup; restore a "
                       f"later one, or `perseid jobs remove {job.name}` and apply it"]  # fmt: skip
        apart = sorted({
            t.revision for offset, t in tokens.items()
            if offset >= job.tokens_end and (t.revision, t.layout) != (plan.revision, plan.layout)
        })  # fmt: skip
        if apart:
            return 0, [
                f"was changed after the backup: it has run revision {apart[0]}, the backup has "
                f"{plan.revision}; restore a later backup, or apply it under another name"
            ]
        return len(tokens), []

    def _records(self, job: JobBackup, start: int = 0) -> Iterator[tuple[int, TokenRecord]]:
        topic = names.tokens(job.name)
        found = self._read(topic, start)
        return ((offset, decode_token(topic, offset, value)) for offset, value in found)

    def _read(self, topic: str, start: int) -> Iterator[tuple[int, bytes]]:
        """A control topic's partition from `start` on; nothing of a missing topic."""
        place = (topic, 0)
        if topic not in self._topics.describe([topic]):
            return
        end = self._topics.ends([place])[place]
        at = max(start, self._topics.starts([place])[place])
        while at < end:
            until = min(end, at + TOKENS_READ)
            for entry in self._reader.read_range(*place, at, until, timeout_s=READ_TIMEOUT_S):
                yield entry.offset, entry.value
            at = until


def _lacking(store: Store, saved: Backup, jobs: Sequence[JobBackup]) -> Iterator[str]:
    """Files that the store lacks or has with other content; RefusedError without copies."""
    own = {archive_path(a) for job in jobs for a in archives(job)}
    own |= {path for job in jobs for path in saved.files if path.startswith(f"jobs/{job.name}/")}
    for path in sorted(own & saved.files.keys()):
        try:
            intact = backup.sha256(store.read(path)) == saved.files[path]
        except DamagedFile:
            intact = False
        if not intact and not saved.copied:
            raise RefusedError(
                f"the checkpoint store no longer has {path} as it was, and the backup was taken "
                "without copies; restore one with copies"
            )
        if not intact:
            yield path


def archives(job: JobBackup) -> set[str]:
    """The archives of a job: the wanted and the running one."""
    plan = job.plan()
    return {job.entry().archive, *([plan.archive] if plan is not None else [])}


def _nodes(job: JobBackup, generation: int) -> Mapping[str, str]:
    """The job's nodes to be written: without an owner, with the new generation.

    Without what is kept for audits: a backup has no copy of it.
    """
    nodes, plan = {**job.nodes, "generation": str(generation)}, job.plan()
    if plan is not None:
        plan = replace(plan.handed_to(None, generation), reason="restored from a backup")
        nodes["plan"] = entries.encode(plan).decode()
    pointers = job.pointers()
    if pointers is not None:
        pointers = CheckpointPointers(pointers.job_uuid, pointers.pointers)
        nodes["checkpoint"] = entries.encode(pointers).decode()
    return nodes


def _write(registry: Registry, job: str, nodes: Mapping[str, str]) -> None:
    """Writes all nodes of a job in one transaction; an existing generation may only rise."""
    there = registry.coordination.get(paths.generation(job))
    writes: list[Write] = []
    if registry.coordination.get(paths.job(job)) is None:
        writes.append(Create(paths.job(job), b""))
    for name, text in nodes.items():
        path = f"{paths.job(job)}/{paths.part(name)}"
        if path == paths.generation(job) and there is not None:
            highest = max(int(text), int(there.data) + GENERATIONS)
            writes.append(Set(path, str(highest).encode(), there.version))
        else:
            writes.append(Create(path, text.encode()))
    registry.coordination.write(*writes, Set(paths.CHANGED, job.encode()))


def _write_others(registry: Registry, others: Mapping[str, str]) -> None:
    """Existing nodes are not changed; parents come first in the backup."""
    for path, text in others.items():
        if registry.coordination.get(path) is None:
            registry.coordination.write(Create(path, text.encode()))
