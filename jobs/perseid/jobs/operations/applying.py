"""`jobs apply`: first checks everything, then writes, job by job.

1. Every job file is valid, and its operators can be imported.
2. Its sources exist, are not compacted and keep records for long enough; no other job writes its
   sink topics; the schema registries know and accept its schemas.
3. The state of a running job can be kept.
4. Only then, per job: archive into the store, schemas, missing topics, entry by compare-and-set.

So a refused repository changes nothing, and running jobs are not affected by it.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from perseid.clocks import Clock
from perseid.errors import PermanentError, RefusedError, TransientAnswer
from perseid.jobs.environments import checking
from perseid.jobs.environments.loading import forget, load_all
from perseid.jobs.environments.lockfile import LOCK_FILE
from perseid.jobs.model.buffers import buffer_topics
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.trees import (
    ArchiveStore,
    archive,
    fetch_archive,
    read_folder,
    sha256,
    store_archive,
)
from perseid.jobs.operations import change, gated, schemas, steering
from perseid.jobs.operations.classes import Classes, load_jobs
from perseid.jobs.repository.job_folders import Validated
from perseid.jobs.validation import parse, retention
from perseid.records import JobEntry
from perseid.registry.facade import Registry
from perseid.registry.port import Check
from perseid.topics import admin, durability
from perseid.topics.control import control_topics
from perseid.topics.schema_registry import SchemaRegistry

T = TypeVar("T")


# Of all sources together. The first token and every checkpoint's token name each of them: 10,000
# are a tenth of the largest record that Kafka takes, and the coordinator polls all of their ends.
SOURCE_PARTITIONS_MAX = 10_000
WITHOUT_GATE = gated.Gating()


class Topics(Protocol):
    """The methods of Kafka that applying needs."""

    def describe(self, topics: Sequence[str]) -> dict[str, admin.TopicInfo]: ...
    def create(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> bool: ...
    def brokers(self) -> dict[int, dict[str, str]]: ...


# Raises JobFileErrors. Not called where a Spark would be too expensive, as when a branch is
# followed: then a worker reports the mistakes.
CheckQueries = Callable[[Sequence[Validated], Mapping[str, Classes]], None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where jobs are applied to. `check_queries` checks their SQL with Spark."""

    registry: Registry
    topics: Topics
    store: ArchiveStore
    clock: Clock
    allow_code: bool = True
    schema_registries: Mapping[str, SchemaRegistry] = field(default_factory=dict)
    check_queries: CheckQueries | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What applying does to one job. `version`: of the entry it replaces, None for a new job.

    `action`: "create", "change" or "unchanged". `topics` are those to be created, with partitions.
    `warnings`: settings of its topics that do not stop it, but may lose acknowledged records.
    """

    job: Validated
    action: str
    entry: JobEntry
    version: int | None
    topics: tuple[tuple[str, int], ...]
    difference: tuple[str, ...]
    files: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision that the store holds."""

    spec: JobSpec
    folder: Path


def prepare(
    cluster: Cluster, jobs: Sequence[Validated], gate: gated.Gating = WITHOUT_GATE
) -> list[Change]:
    """What applying would do; nothing is written.

    `gate`: a changed job switches once so many epochs were equal (`JobEntry.gate`).
    Raises JobFileErrors with the mistakes of all jobs, else RefusedError with all reasons.
    """
    classes = load_jobs(jobs, allow_code=cluster.allow_code)
    schemas.check_names(jobs, sorted(cluster.schema_registries))
    jobs = [schemas.pinned(job, cluster.schema_registries) for job in jobs]
    if cluster.check_queries is not None:
        cluster.check_queries(jobs, classes)
    specs = [job.spec for job in jobs]
    with tempfile.TemporaryDirectory(prefix="perseid-apply-") as work:
        look = _Look(cluster, Path(work))
        changes, refusals = [], list(look.of_brokers())
        refusals += gated.unknown(gate.approval, [spec.name for spec in specs])
        for job in jobs:
            found = list(look.refusals(job, classes[job.spec.name], specs))
            found += look.gate_refusals(job, gate) if gate.epochs and not found else ()
            refusals += [f"{job.spec.name}: {text}" for text in found]
            if not found:
                changes.append(replace(look.change(job, gate), warnings=look.warnings(job.spec)))
        if refusals:
            raise RefusedError("\n".join(refusals))
        return changes


def prepare_one(cluster: Cluster, job: Validated, specs: Sequence[JobSpec]) -> Change:
    """The same for one job of those in `specs`; code of the others is not loaded."""
    classes = load_jobs([job], allow_code=cluster.allow_code)[job.spec.name]
    schemas.check_names([job], sorted(cluster.schema_registries))
    job = schemas.pinned(job, cluster.schema_registries)
    with tempfile.TemporaryDirectory(prefix="perseid-apply-") as work:
        look = _Look(cluster, Path(work))
        refusals = [*look.of_brokers(), *look.refusals(job, classes, specs)]
        if refusals:
            raise RefusedError("\n".join(refusals))
        return replace(look.change(job), warnings=look.warnings(job.spec))


def perform(cluster: Cluster, wanted: Change, guards: Sequence[Check] = ()) -> None:
    """Writes one change; refused when another client changed the job since `prepare`.

    Raises FencedError when a node of `guards` has another version by now.
    """
    store_archive(cluster.store, wanted.job.tree)
    schemas.register(wanted.job.spec.sinks, wanted.job.tree.files, cluster.schema_registries)
    for topic, partitions in wanted.topics:
        cluster.topics.create(topic, partitions)
    if wanted.action != "unchanged":
        steering.put(cluster.registry, wanted.entry, wanted.version, guards)


def revision(cluster: Cluster, sha: str, cache: Path) -> Revision:
    """An applied revision, read back from the store."""
    folder = fetch_archive(cluster.store, sha, cache)
    return Revision(parse.load(folder), folder)


class _Look:
    """One `prepare`: reads, never writes."""

    def __init__(self, cluster: Cluster, work: Path) -> None:
        self._cluster, self._work = cluster, work
        self._entries = cluster.registry.jobs()
        self._brokers = _asked(cluster.topics.brokers) or {}

    def of_brokers(self) -> Iterator[str]:
        """Reasons why no job could write at all."""
        log = _asked(lambda: self._cluster.topics.describe([durability.TRANSACTION_LOG]))
        if log is not None:
            found = log.get(durability.TRANSACTION_LOG)
            yield from map(str, durability.of_transactions(self._brokers, found))

    def warnings(self, spec: JobSpec) -> tuple[str, ...]:
        """Of the topics that exist by now."""
        control = [topic.name for topic in control_topics(spec.name, 1)]
        plan = self._cluster.registry.plan(spec.name)
        buffers = buffer_topics(spec, build(spec, plan.layout if plan is not None else 1))
        read = (s.topic for s in spec.sources.values())
        names = {*read, *spec.written_topics, *control, *buffers}
        infos = self._cluster.topics.describe(sorted(names))
        found = (durability.of_topic(info, len(self._brokers)) for info in infos.values())
        return tuple(str(weakness) for some in found for weakness in some)

    def refusals(self, job: Validated, new: Classes, all_jobs: Sequence[JobSpec]) -> Iterator[str]:
        yield from self._sources(job.spec, new)
        yield from schemas.refusals(job, self._cluster.schema_registries)
        others = {spec.name: spec for spec in all_jobs if spec.name != job.spec.name}
        yield from self._sinks(job.spec, others)
        entry = self._entries.get(job.spec.name)
        if entry is None:
            return
        if entry.desired == "removed":
            yield "is being removed; apply it again when `perseid jobs list` no longer has it"
            return
        for sha in dict.fromkeys(self._running(entry)):
            reasons = self._disagreements(sha, job.spec, new)
            if reasons:
                yield (
                    "the state of the running revision cannot be kept:\n"
                    + "\n".join(f"  {reason}" for reason in reasons)
                    + f"\n  to start over with empty state: `perseid jobs remove {job.spec.name}`, "
                    "then apply again"
                )
                return

    def gate_refusals(self, job: Validated, gate: gated.Gating) -> Iterator[str]:
        """Why the revision cannot be compared with the running one, unless that is itself."""
        name, registry = job.spec.name, self._cluster.registry
        plan, sha = registry.plan(name), sha256(archive(job.tree.files))
        entry = self._entries.get(name)
        if plan is None or plan.archive != sha:
            old = revision(self._cluster, plan.archive, self._work).spec if plan else None
            yield from gated.refusals(entry, registry.status(name), plan, old, job.spec)
        if gate.approval is not None and gate.approval.job == name:
            yield from gated.approval_refusals(gate.approval, entry, sha)

    def _disagreements(self, sha: str, spec: JobSpec, new: Classes) -> list[str]:
        old = revision(self._cluster, sha, self._work)
        try:
            checking.prepare(old.folder, f"the running revision's {LOCK_FILE}")
            return change.disagreements(
                old.spec, load_all(old.spec.operators, old.folder), spec, new
            )
        finally:
            forget(old.folder)

    def change(self, job: Validated, gate: gated.Gating = WITHOUT_GATE) -> Change:
        sha = sha256(archive(job.tree.files))
        stored = self._cluster.registry.job_entry(job.spec.name)
        topics = tuple(self._missing_topics(job.spec))
        now = self._cluster.clock.wall_ms()
        if stored is None:
            entry = JobEntry(
                job.spec.name, str(uuid.uuid4()), job.tree.revision, sha, "running", 1, now,
                {"from": "scratch"}, writes=_written(job.spec),
            )  # fmt: skip
            return Change(job, "create", entry, None, topics,
                          tuple(change.difference(None, job.spec)), ())  # fmt: skip
        plan = self._cluster.registry.plan(job.spec.name)
        runs = plan is not None and plan.archive == sha
        if stored.value.archive == sha and (runs or not stored.value.gate):
            return Change(job, "unchanged", stored.value, stored.version, topics, (), ())
        entry = replace(
            stored.value, revision=job.tree.revision, archive=sha, applied_ms=now,
            counter=stored.value.counter + 1, start={"from": "checkpoint"}, stop_checkpoint=False,
            writes=_written(job.spec), gate=0 if runs else gate.epochs, approved=(),
        )  # fmt: skip
        if entry.gate:
            writes = gated.written(stored.value.writes, _written(job.spec))
            entry = replace(entry, writes=writes, approved=gate.approved(job.spec.name))
        old = revision(self._cluster, stored.value.archive, self._work)
        files = change.file_difference(read_folder(old.folder), job.tree.files)
        return Change(job, "change", entry, stored.version, topics,
                      tuple(change.difference(old.spec, job.spec)), tuple(files))  # fmt: skip

    def _running(self, entry: JobEntry) -> Iterator[str]:
        """The archives whose state may exist: the running one, and the one requested last.

        The latter only if it may have run: a job that failed before it ran that runs again only
        after another request.
        """
        registry = self._cluster.registry
        status, plan = registry.status(entry.name), registry.plan(entry.name)
        ours = plan is not None and plan.job_uuid == entry.uuid
        if plan is not None and ours:
            yield plan.archive
        gate = plan.gate if plan is not None and ours else None
        if gate is not None and gate.refused and gate.counter == entry.counter:
            return
        failed = (status.job_uuid, status.counter) if status is not None and status.error else None
        if not ours or failed != (entry.uuid, entry.counter):
            yield entry.archive

    def _sources(self, spec: JobSpec, classes: Classes) -> Iterator[str]:
        infos = self._cluster.topics.describe(sorted({s.topic for s in spec.sources.values()}))
        for name, source in spec.sources.items():
            info = infos.get(source.topic)
            if info is None:
                yield (
                    f"source {name}: topic {source.topic} does not exist; create it with "
                    f"`perseid topics create {source.topic} --partitions 4`"
                )
            elif info.compacted:
                yield (
                    f"source {name}: topic {source.topic} is compacted, so a replay would not "
                    "find what was read the first time; read a topic with cleanup.policy=delete"
                )
            elif isinstance(source.start, dict):
                beyond = [p for p in source.start if p >= info.partitions]
                if beyond:
                    yield (
                        f"source {name}: start names partition {beyond[0]}, but topic "
                        f"{source.topic} has {info.partitions} (from 0); remove it"
                    )
        read = sum(infos[s.topic].partitions for s in spec.sources.values() if s.topic in infos)
        if read > SOURCE_PARTITIONS_MAX:
            yield (
                f"its sources have {read} partitions, and a job reads at most "
                f"{SOURCE_PARTITIONS_MAX}; read fewer topics, or divide them among several jobs"
            )
        yield from retention.refusals(spec, classes, infos)

    def _sinks(self, spec: JobSpec, others: Mapping[str, JobSpec]) -> Iterator[str]:
        known: dict[str, Mapping[str, bool]] = {n: _written(other) for n, other in others.items()}
        for name, entry in self._entries.items():
            if name not in known and name != spec.name and entry.desired != "removed":
                known[name] = self._written_by(entry)
        mine = _written(spec)
        for other, written in known.items():
            for topic in mine.keys() & written.keys():
                if not (mine[topic] and written[topic]):
                    yield (
                        f"topic {topic} is written by job {other} too; write another topic, "
                        "or `headers: true` in the sinks of both jobs, which marks whose is what"
                    )

    def _written_by(self, entry: JobEntry) -> Mapping[str, bool]:
        if entry.writes is not None:
            return entry.writes
        return _written(revision(self._cluster, entry.archive, self._work).spec)

    def _missing_topics(self, spec: JobSpec) -> Iterator[tuple[str, int]]:
        wanted = spec.written_topics
        there = self._cluster.topics.describe(sorted(wanted))
        yield from ((t, n) for t, n in wanted.items() if t not in there)


def _asked(question: Callable[[], T]) -> T | None:
    """The answer; None where the right to ask is missing, which must not prevent applying."""
    try:
        return question()
    except (PermanentError, TransientAnswer):
        return None


def _written(spec: JobSpec) -> dict[str, bool]:
    """The topics that the job writes, and whether every record there marks its job."""
    return {topic: _marked(spec, topic) for topic in spec.written_topics}


def _marked(spec: JobSpec, topic: str) -> bool:
    """Whether every record that the job writes to the topic marks itself; dead letters do."""
    return all(s.headers for s in spec.sinks.values() if s.topic == topic)
