"""`perseid status`: endpoints, processes, workers and jobs, combined from their sources.

The leader knows the jobs' present state and is asked over HTTP. Without a leader ZooKeeper's data
is shown, and unreachable parts are listed under `faults` instead of ending the command.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from perseid.cli import follow, output

if TYPE_CHECKING:
    from perseid.embedded import ProcessInfo
    from perseid.records import Deployment, JobStatus, LeaderInfo, WorkerInfo
    from perseid.registry import Registry

TOKEN = "PERSEID_API_TOKEN"  # or ..._FILE; of role viewer, where coordinators require tokens
AUTHORITY = "PERSEID_API_CA"  # PEM file: the API's authority, unless it is a public one
ANSWER_S = 3.0  # for each part; an interactive command does not wait longer for one that is away


@dataclass(slots=True)
class Seen:
    """The collected answers. `view` is the leader's, None without one."""

    leader: LeaderInfo | None = None
    workers: tuple[WorkerInfo, ...] = ()
    jobs: list[dict[str, Any]] = field(default_factory=list)
    view: dict[str, Any] | None = None
    faults: list[str] = field(default_factory=list)
    repository: dict[str, Any] | None = None


def status(data: output.Data = None, as_json: output.Json = False) -> None:
    """Show endpoints, processes, workers, jobs with their replicas, lag and checkpoints."""
    from perseid.embedded import deployment, locate, processes

    folder = locate(data)
    settings = deployment(folder)
    shown = document(settings, processes(folder), look(settings))
    if as_json:
        output.document(shown)
    else:
        show(shown)


def document(settings: Deployment, processes: Sequence[ProcessInfo], seen: Seen) -> dict[str, Any]:
    """The document of `status --json` (contracts.md, Command line)."""
    view = seen.view
    dead = [f"process {p.name} is not alive" for p in processes if not p.alive]
    return {
        "kafka": settings.kafka,
        "zookeeper": settings.zookeeper + settings.chroot,
        "redis": settings.redis,
        "master": settings.master,
        "api": seen.leader.url if seen.leader is not None else None,
        "coordinator": _coordinators(processes, seen.leader),
        "looked_ms": view["leader"]["looked_ms"] if view is not None else None,
        "workers": _workers(processes, seen),
        "jobs": view["jobs"] if view is not None else seen.jobs,
        "repository": seen.repository,
        "processes": [asdict(process) for process in processes],
        "logs": settings.logs,
        "faults": dead + seen.faults,
    }


def look(settings: Deployment) -> Seen:
    """Asks ZooKeeper, the leader, Kafka and Redis."""
    from perseid.errors import PerseidError
    from perseid.registry import Registry

    seen = Seen()
    try:
        registry = Registry.connect(settings, ANSWER_S)
    except PerseidError as error:
        seen.faults.append(str(error))
    else:
        try:
            _look_into(registry, seen)
        except PerseidError as error:
            seen.faults.append(str(error))
        finally:
            registry.close()
    for name, ask in (("Kafka", _ask_kafka), ("Redis", _ask_redis)):
        fault = _fault_of(name, ask, settings)
        if fault is not None:
            seen.faults.append(fault)
    return seen


def _look_into(registry: Registry, seen: Seen) -> None:
    from perseid.errors import PerseidError
    from perseid.jobs.following import asking

    seen.leader = registry.leader()
    seen.workers = registry.workers()
    followed = asking.record(registry)
    if followed is not None:
        seen.repository = asking.document(followed, time.time_ns() // 1_000_000)
        seen.faults += seen.repository["faults"]
    if seen.leader is None:
        seen.faults.append("no coordinator leads")
    else:
        try:
            seen.view = ask_leader(seen.leader.url)
        except PerseidError as error:
            seen.faults.append(str(error))
    found = registry.look()
    seen.faults += [f"job {name}: {why}" for name, why in sorted(found.damaged.items())]
    if seen.view is None:
        seen.jobs = [_stored_job(registry, name) for name in sorted(found.entries)]
    for job in seen.view["jobs"] if seen.view is not None else seen.jobs:
        seen.faults += job_faults(job)


def job_faults(job: Mapping[str, Any]) -> list[str]:
    """The job's failure or repeated failures, and its last warning."""
    from perseid.jobs.operations.report import failing_text

    name, error = job["name"], job["error"] or {}
    found = [f"job {name} failed: {error.get('text', 'no reason given')}"]
    warnings = [e for e in job.get("events", ()) if e.startswith("warning: ")]
    failed = job["state"] == "failed"
    failing = [f"job {name} {failing_text(job['failing'])}"] if job.get("failing") else []
    warnings = warnings[-1:] + [held for held in (job.get("held_back"),) if held]
    stalled = [stalled_text(name, one) for one in job.get("stalled_input", ())]
    return [*(found if failed else failing), *stalled, *(f"job {name}: {w}" for w in warnings)]


def stalled_text(job: str, found: Mapping[str, Any]) -> str:
    """The effect of an open transaction that holds back a job's input."""
    return (
        f"job {job}: {found['topic']}[{found['partition']}] is held back at offset "
        f"{found['offset']} for {found['for_s']} s by an open transaction, {found['records']} "
        f"records wait for its end: `perseid txn list {job}` and `perseid doctor` show whose it "
        "may be"
    )


def ask_leader(url: str) -> dict[str, Any]:
    """The leader's view; PerseidError with the reason when there is none."""
    import httpx

    from perseid.errors import RefusedError, RetryableError
    from perseid.records import secret

    token, authority = secret.of_environment(TOKEN), os.environ.get(AUTHORITY)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(
            f"{url}/api/v1/status", timeout=ANSWER_S, trust_env=False, headers=headers,
            verify=ssl.create_default_context(cafile=authority),
        )  # fmt: skip
    except (httpx.HTTPError, OSError) as error:  # OSError: also of the authority's file
        raise RetryableError(f"the leader does not answer at {url}: {error}") from None
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise RefusedError(f"the leader at {url} wants a token of role viewer: put it into {TOKEN}")
    if answer.status_code != httpx.codes.OK:
        raise RetryableError(f"the leader at {url} answers with {answer.status_code}")
    found: dict[str, Any] = answer.json()
    return found


def _stored_job(registry: Registry, name: str) -> dict[str, Any]:
    """A job as in ZooKeeper; only the leader knows epochs and lag."""
    from perseid.jobs.operations import fragments

    stored, plan = registry.job_entry(name), registry.plan(name)
    entry = stored.value if stored is not None else None
    known, pointers = registry.status(name), registry.pointers(name)
    newest = pointers.pointers[0] if pointers is not None and pointers.pointers else None
    revision = plan.revision if plan is not None else entry.revision if entry is not None else None
    return {
        "name": name,
        "state": known.state if known is not None else "waiting",
        "revision": revision,
        "generation": plan.generation if plan is not None else registry.generation(name),
        "owner": plan.owner if plan is not None else None,
        "fragments": fragments.listed(plan),
        "epoch": None,
        "committed_epoch": None,
        "lag": None,
        "checkpoint": {"epoch": newest.epoch, "age_s": None, "bytes": newest.bytes}
        if newest is not None else None,
        "mode": "exact",
        "failing": _stored_failing(registry, name, known),
        "error": known.error if known is not None else None,
    }  # fmt: skip


def _stored_failing(
    registry: Registry, name: str, known: JobStatus | None
) -> dict[str, Any] | None:
    from perseid.jobs.operations import report

    found = registry.failures(name)
    if known is None or found is None or found.job_uuid != known.job_uuid:
        return None
    ended = known.state in ("failed", "stopped")
    return None if ended else report.failing(found, time.time_ns() // 1_000_000)


def _ask_kafka(settings: Deployment) -> None:
    from perseid.topics.admin import TopicAdmin

    TopicAdmin(settings.brokers(), timeout_s=ANSWER_S).list()


def _ask_redis(settings: Deployment) -> None:
    from perseid.state.durability.redis_client import connect

    with connect(settings.redis, settings.redis_access, ANSWER_S) as client:
        client.ping()


def _fault_of(name: str, ask: Callable[[Deployment], None], settings: Deployment) -> str | None:
    import redis

    from perseid.errors import PerseidError

    try:
        ask(settings)
    except (PerseidError, redis.RedisError, OSError) as error:
        return f"{name} does not answer: {error}"
    return None


def _coordinators(
    processes: Sequence[ProcessInfo], leader: LeaderInfo | None
) -> list[dict[str, Any]]:
    leading = leader.pid if leader is not None else None
    own = [p for p in processes if p.kind == "coordinator"]
    pids = [p.pid for p in own if p.pid is not None]
    if leading is not None and not own:  # else it is one of them, or one that has just died
        pids.append(leading)
    return [{"pid": pid, "leader": pid == leading} for pid in pids]


def _workers(processes: Sequence[ProcessInfo], seen: Seen) -> list[dict[str, Any]]:
    """Live workers as the leader sees them, then those that have not registered yet."""
    viewed: Mapping[str, Any] = {
        w["incarnation"]: w for w in (seen.view["workers"] if seen.view is not None else ())
    }
    found = [
        {
            "id": worker.id,
            "incarnation": worker.incarnation,
            "pid": worker.pid,
            "supervisor_pid": worker.supervisor_pid,
            "state": "leaving" if worker.leaving else "live",
            "cores": worker.cores,
            "fragments": viewed.get(worker.incarnation, {}).get("fragments", []),
        }
        for worker in seen.workers
    ]
    known = {worker["pid"] for worker in found}
    found += [
        {
            "id": p.name,
            "incarnation": None,
            "pid": p.pid,
            "supervisor_pid": p.supervisor_pid,
            "state": "starting" if p.alive else "dead",
            "cores": None,
            "fragments": [],
        }
        for p in processes
        if p.kind == "worker" and p.pid not in known
    ]
    return found


# -- as text ---------------------------------------------------------------------------------------


def show(shown: dict[str, Any]) -> None:
    """The same on a terminal."""
    output.fields({k: shown[k] for k in ("kafka", "zookeeper", "redis", "master", "api", "logs")})
    output.table(
        ("process", "kind", "pid", "supervisor", "restarts"),
        [(p["name"], p["kind"], p["pid"], p["supervisor_pid"], p["restarts"])
         for p in shown["processes"]], title="\nprocesses",
    )  # fmt: skip
    output.table(
        ("worker", "pid", "state", "cores", "runs"),
        [(w["id"], w["pid"], w["state"], w["cores"], ", ".join(map(_runs, w["fragments"])))
         for w in shown["workers"]], title="\nworkers",
    )  # fmt: skip
    output.table(
        ("job", "state", "revision", "generation", "epoch", "committed", "lag", "in/s",
         "checkpoint"),
        [_job_row(job) for job in shown["jobs"]], title="\njobs",
    )  # fmt: skip
    listed = [(job["name"], one) for job in shown["jobs"] for one in job.get("fragments", ())]
    if listed:
        columns = ("name", "role", "state", "partitions", "owner", "generation", "epoch")
        output.table(
            ("job", "fragment", "role", "state", "partitions", "worker", "generation", "epoch"),
            [(job, *(one[c] for c in columns)) for job, one in listed], title="\nfragments",
        )
    output.lines(line for job in shown["jobs"] if (line := _late(job)))
    if shown["repository"] is not None:
        output.lines([""])
        follow.show(shown["repository"])
    if shown["faults"]:
        output.lines(["", "faults", *(f"  {fault}" for fault in shown["faults"])])


def _runs(fragment: Mapping[str, Any]) -> str:
    from perseid.records import WHOLE

    job, name = str(fragment["job"]), fragment.get("fragment", WHOLE)
    return job if name == WHOLE else f"{job}/{name}"


def _late(job: Mapping[str, Any]) -> str:
    from perseid.jobs.operations.report import event_time_text

    text = event_time_text(job)
    return f"job {job['name']}: {text}" if text else ""


def _job_row(job: Mapping[str, Any]) -> tuple[Any, ...]:
    checkpoint = job["checkpoint"]
    age = "-"
    if checkpoint is not None:
        seconds = checkpoint["age_s"]
        age = f"epoch {checkpoint['epoch']}" + (f", {seconds:.0f} s" if seconds is not None else "")
    state = "failing" if job.get("failing") else job["state"]
    return (job["name"], state, job["revision"][:12], job["generation"], job["epoch"],
            job["committed_epoch"], job["lag"], job.get("records_in_per_s"), age)  # fmt: skip
