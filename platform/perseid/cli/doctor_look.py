"""The queries of `perseid doctor`: each asks one part and passes the answer to `doctor_checks`.

A part that does not answer is a finding too; checks that need its answer are skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perseid.cli import doctor_checks
from perseid.cli.doctor_checks import Finding, JobFacts
from perseid.cli.status import ANSWER_S

if TYPE_CHECKING:
    from perseid.records import Deployment, JobEntry
    from perseid.registry import Registry

_ADMIN_S = 1.0  # for a port that usually has no listener


def look(folder: Path, settings: Deployment) -> Iterator[Finding]:
    """All findings, first about the machine, then about the services."""
    yield from _tried("java", _java)
    yield from _tried("disk", lambda: _disks(folder, settings))
    yield from _tried("memory", _memory)
    yield from _tried("processes", lambda: _processes(folder))
    yield from _connections(settings)
    yield from _tried("redis", lambda: _redis(settings), level="warning")
    kafka = list(_tried("kafka", lambda: _brokers(settings)))
    yield from kafka
    zookeeper = list(_tried("zookeeper", lambda: _zookeeper(settings)))
    yield from zookeeper
    if any(f.level == "problem" for f in zookeeper):
        return
    yield from _tried(
        "jobs", lambda: _of_registry(folder, settings, not any(f.level == "problem" for f in kafka))
    )


def _tried(
    check: str, ask: Callable[[], Iterable[Finding]], level: doctor_checks.Level = "problem"
) -> Iterator[Finding]:
    """The findings of `ask`; its failure is a finding of `level`."""
    import redis

    from perseid.errors import PerseidError

    try:
        yield from ask()
    except (PerseidError, redis.RedisError, OSError) as error:
        yield Finding(check, level, str(error), "an answer", "`perseid status` shows what runs")


def _java() -> Iterator[Finding]:
    from perseid.embedded.java import java_home, version

    home = java_home()
    yield Finding("java", "ok", f"Java {version(home)} in {home}")


def _disks(folder: Path, settings: Deployment) -> Iterator[Finding]:
    """One finding for each file system of the folders on this machine."""
    seen: dict[int, list[tuple[str, str]]] = {}
    places = {"data": str(folder), "state": settings.state, "store": settings.store,
              "logs": settings.logs}  # fmt: skip
    for what, place in places.items():
        path = _existing(place)
        if path is not None:
            seen.setdefault(path.stat().st_dev, []).append((what, str(path)))
    for found in seen.values():
        usage = os.statvfs(found[0][1])
        free, total = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
        what = ", ".join(name for name, _ in found)
        yield doctor_checks.disk(what, found[0][1], free, total)


def _existing(place: str) -> Path | None:
    """The nearest folder that exists; None for a remote place, such as s3://bucket."""
    if "://" in place and not place.startswith("file://"):
        return None
    path = Path(place.removeprefix("file://"))
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _memory() -> Iterator[Finding]:
    from perseid.worker import machine

    found = machine.look()
    yield doctor_checks.memory(found.left, found.total, found.spare)


def _processes(folder: Path) -> Iterator[Finding]:
    from perseid.embedded import processes

    yield doctor_checks.processes([p.name for p in processes(folder) if not p.alive])


def _connections(settings: Deployment) -> Iterator[Finding]:
    redis = [urlsplit(settings.redis).hostname or ""]
    for part, hosts, access in (
        ("kafka", settings.kafka.split(","), settings.kafka_access),
        ("zookeeper", settings.zookeeper.split(","), settings.zookeeper_access),
        ("redis", redis, settings.redis_access),
    ):
        yield doctor_checks.connection(part, hosts, access)


def _redis(settings: Deployment) -> Iterator[Finding]:
    from perseid.state.durability.redis_client import connect

    with connect(settings.redis, settings.redis_access, ANSWER_S) as client:
        asked_s = time.monotonic()
        seconds, microseconds = client.time()
        took_s = time.monotonic() - asked_s
        ours_s = time.time() - took_s / 2
    yield Finding("redis", "ok", "answers")
    yield doctor_checks.skew("redis", seconds + microseconds / 1e6 - ours_s, took_s)


def _brokers(settings: Deployment) -> Iterator[Finding]:
    from perseid.embedded.kafka_probe import brokers
    from perseid.errors import PermanentError, TransientAnswer
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.durability import TRANSACTION_LOG

    count = brokers(settings.brokers(), ANSWER_S)
    yield doctor_checks.brokers(count, settings.kafka)
    if count:
        admin = TopicAdmin(settings.brokers(), timeout_s=ANSWER_S)
        found = admin.brokers()
        for broker, values in found.items():
            yield from doctor_checks.broker_settings(broker, values)
        try:
            log = admin.describe([TRANSACTION_LOG]).get(TRANSACTION_LOG)
        except (PermanentError, TransientAnswer):  # the query may not be permitted
            return
        yield from doctor_checks.transaction_log(found, log)


def _zookeeper(settings: Deployment) -> Iterator[Finding]:
    from perseid.registry.probe import look as probe

    hosts = settings.zookeeper
    found = probe(
        hosts, settings.chroot, settings.zookeeper_session_s, ANSWER_S, settings.zookeeper_access
    )
    open_servers = [host for host in hosts.split(",") if _has_admin_server(host.strip())]
    yield from doctor_checks.zookeeper(
        hosts, open_to_all=found.open_to_all, admin_servers=open_servers
    )
    yield doctor_checks.skew("zookeeper", found.ahead_s, found.asked_s)


def _has_admin_server(host: str) -> bool:
    """Whether ZooKeeper's AdminServer, and not another page, answers at the usual port."""
    import httpx

    url = f"http://{host.rpartition(':')[0] or host}:8080/commands/ruok"
    try:
        answer = httpx.get(url, timeout=_ADMIN_S, trust_env=False).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("command") == "ruok"


def _of_registry(folder: Path, settings: Deployment, with_kafka: bool) -> Iterator[Finding]:
    from perseid.registry import Registry

    with closing(Registry.connect(settings, ANSWER_S)) as registry:
        registered = [coordinator.id for coordinator in registry.coordinators()]
        yield doctor_checks.coordinators(registry.leader(), registered)
        jobs = list(_jobs(settings, registry))
        yield doctor_checks.workers(registry.workers(), jobs)
        yield from doctor_checks.damaged(registry.look().damaged)
    for job in jobs:
        yield from doctor_checks.failed(job)
    if with_kafka:
        yield from _of_topics(folder, settings, jobs)


def _of_topics(folder: Path, settings: Deployment, jobs: list[JobFacts]) -> Iterator[Finding]:
    from perseid.cli.jobs import connected
    from perseid.cli.txn import Transactions
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.control import optional_topics

    admin = TopicAdmin(settings.brokers(), timeout_s=ANSWER_S)
    now_ms, brokers = time.time_ns() // 1_000_000, len(admin.brokers())
    existing = admin.list()
    for known in jobs:
        needed = {topic.name: topic for topic in optional_topics(known.name, existing)}
        needed |= {topic.name: topic for topic in known.needed}
        job = replace(known, needed=tuple(needed.values()))
        infos = admin.describe(sorted({*job.sources.values(), *job.written, *needed}))
        yield from doctor_checks.topics(job, infos)
        yield from doctor_checks.retention(job, infos, now_ms)
        yield from doctor_checks.horizon(job, infos)
        yield from doctor_checks.copies(job, infos, brokers)
    with connected(folder) as cluster:
        held = Transactions(cluster, settings.brokers()).held()
    yield from doctor_checks.transactions(held, time.time_ns() // 1_000_000)


def _jobs(settings: Deployment, registry: Registry) -> Iterator[JobFacts]:
    from perseid.jobs.model.trees import fetch_archive
    from perseid.state.durability.store import open_store

    store = open_store(settings.store)
    with TemporaryDirectory(prefix="perseid-doctor-") as cache:
        for _, entry in sorted(registry.look().entries.items()):
            if entry.desired != "removed":
                yield _job(registry, entry, fetch_archive(store, entry.archive, Path(cache)))


def _job(registry: Registry, entry: JobEntry, folder: Path) -> JobFacts:
    from perseid.cli.topic_roles import layout_in_force
    from perseid.jobs.model import layout
    from perseid.jobs.model.buffers import buffer_specs
    from perseid.jobs.validation import parse
    from perseid.topics.control import control_topics

    spec = parse.load(folder)
    status, plan = registry.status(entry.name), registry.plan(entry.name)
    saved = registry.pointers(entry.name)
    known = status if status is not None and status.job_uuid == entry.uuid else None
    ours = saved.pointers if saved is not None and saved.job_uuid == entry.uuid else ()
    begun = plan is not None and plan.job_uuid == entry.uuid
    number = layout_in_force(entry, plan)
    buffers = buffer_specs(spec, layout.build(spec, number)) if number is not None else ()
    return JobFacts(
        entry.name, known.state if known else "waiting", entry.desired, begun,
        known.error if known else None,
        _failing(registry, entry, known.state if known else "waiting"),
        {name: source.topic for name, source in spec.sources.items()},
        tuple(spec.written_topics),
        (*control_topics(entry.name, layout.build(spec, 1).ledger_partitions), *buffers),
        ours[0].time_ms if ours else None,
        None if spec.audit.horizon_s is None else round(spec.audit.horizon_s * 1000),
    )  # fmt: skip


def _failing(registry: Registry, entry: JobEntry, state: str) -> str:
    from perseid.jobs.operations import report

    found = registry.failures(entry.name)
    if found is None or found.job_uuid != entry.uuid or state in ("failed", "stopped"):
        return ""
    failing = report.failing(found, time.time_ns() // 1_000_000)
    return report.failing_text(failing) if failing is not None else ""
