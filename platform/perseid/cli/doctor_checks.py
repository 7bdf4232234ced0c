"""The checks of `perseid doctor`. Pure: facts in, findings out.

A finding has what was found, what was expected and what to type next. `problem`: a part of the
deployment does not work or will lose what a job needs; `warning`: it works, with a risk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from perseid.jobs.validation.retention import duration
from perseid.topics import durability, names
from perseid.topics.clients import TRANSACTION_TIMEOUT_MS
from perseid.topics.control import deviations
from perseid.topics.durability import alter

if TYPE_CHECKING:
    from perseid.cli.open_transactions import Held
    from perseid.records import LeaderInfo, WorkerInfo
    from perseid.records.access import Access
    from perseid.topics.admin import TopicInfo
    from perseid.topics.control import TopicSpec

Level = Literal["ok", "warning", "problem"]

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
MIB, GIB = 1 << 20, 1 << 30
SKEW_S = 2.0  # beyond the time of the query
DISK_SHORT_BYTES, DISK_SHORT_SHARE = 256 * MIB, 0.02
DISK_LOW_BYTES, DISK_LOW_SHARE = 2 * GIB, 0.1
RETENTION_NEAR = 0.5  # of a topic's retention: the maximum age of a newest checkpoint
LOCAL = ("127.", "localhost", "[::1]", "::1")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `next` is what to type or do, empty when there is nothing to do."""

    check: str
    level: Level
    found: str
    expected: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a job needs and what exists. `checkpoint_ms`: the time of its newest checkpoint.

    `needed`: its own topics with the settings for their creation. `begun`: a worker ever had it.
    `horizon_ms`: how far back its audits may ask, None without `audit: {horizon: ...}`.
    """

    name: str
    state: str
    desired: str
    begun: bool
    error: Mapping[str, Any] | None = None
    failing: str = ""  # its repeated failure, as a line
    sources: Mapping[str, str] = field(default_factory=dict)
    written: Sequence[str] = ()
    needed: Sequence[TopicSpec] = ()
    checkpoint_ms: int | None = None
    horizon_ms: int | None = None


def brokers(count: int, bootstrap: str) -> Finding:
    if count == 0:
        return Finding("kafka", "problem", f"no broker at {bootstrap}", "one at least",
                       "`perseid up`, or look at `perseid logs kafka`")  # fmt: skip
    return Finding("kafka", "ok", f"{count} brokers at {bootstrap}")


def broker_settings(broker: int, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Compares the transaction timeout that a broker allows with that of sinks."""
    most_ms = int(settings["transaction.max.timeout.ms"])
    check = f"broker {broker}: transaction.max.timeout.ms"
    if most_ms < TRANSACTION_TIMEOUT_MS:
        yield Finding(
            check, "problem", str(most_ms),
            f"at least {TRANSACTION_TIMEOUT_MS}, which sinks ask for: they are refused",
            _broker_config(broker, "transaction.max.timeout.ms", 900_000),
        )  # fmt: skip
    else:
        yield Finding(check, "ok", f"{most_ms}, sinks ask for {TRANSACTION_TIMEOUT_MS}")
    kept_ms = int(settings["transactional.id.expiration.ms"])
    check = f"broker {broker}: transactional.id.expiration.ms"
    expected = "at least a day: an id that is forgotten no longer fences a paused owner"
    change = _broker_config(broker, "transactional.id.expiration.ms", 7 * DAY_MS)
    if kept_ms < HOUR_MS:
        yield Finding(check, "problem", duration(kept_ms), expected, change)
    elif kept_ms < DAY_MS:
        yield Finding(check, "warning", duration(kept_ms), expected, change)
    else:
        yield Finding(check, "ok", duration(kept_ms))


def _broker_config(broker: int, name: str, value: int) -> str:
    return f"set {name}={value} in the broker's server.properties and restart broker {broker}"


def transaction_log(
    settings: Mapping[int, Mapping[str, str]], log: TopicInfo | None
) -> Iterator[Finding]:
    """Whether transactions can begin at all on these brokers."""
    found = [
        Finding(f"{one.what}: transactions", "problem", one.found, one.expected, one.remedy)
        for one in durability.of_transactions(settings, log)
    ]
    yield from found or [Finding("transaction log", "ok", f"fits {len(settings)} brokers")]


def copies(job: JobFacts, infos: Mapping[str, TopicInfo], brokers: int) -> Iterator[Finding]:
    """Whether an acknowledged record of the job's topics is on more than one broker."""
    check, found = f"job {job.name}: copies", list[Finding]()
    asked = [*job.sources.values(), *job.written, *(topic.name for topic in job.needed)]
    for name in dict.fromkeys(asked):
        for one in durability.of_topic(infos[name], brokers) if name in infos else ():
            read = name in job.sources.values()
            level: Level = "warning" if read and not one.stops else "problem"
            found.append(
                Finding(check, level, f"{one.what} has {one.found}", one.expected, one.remedy)
            )
    yield from found or [Finding(check, "ok", "as many as the brokers allow")]


def topics(job: JobFacts, infos: Mapping[str, TopicInfo]) -> Iterator[Finding]:
    """Whether the topics that a job needs exist, with the right settings."""
    check = f"job {job.name}: topics"
    found = list(_missing(job, infos, check))
    for name, topic in job.sources.items():
        if topic in infos and infos[topic].compacted:
            found.append(Finding(
                check, "problem", f"source {name}: topic {topic} is compacted",
                "cleanup.policy=delete: a replay must find what was read the first time",
                alter(topic, "cleanup.policy", "delete"),
            ))  # fmt: skip
    for wanted in job.needed:
        if wanted.name in infos:
            found += _kept(check, wanted, infos[wanted.name])
    count = len(job.sources) + len(job.written) + len(job.needed)
    yield from found or [Finding(check, "ok", f"{count} topics are there")]


def _missing(job: JobFacts, infos: Mapping[str, TopicInfo], check: str) -> Iterator[Finding]:
    for name, topic in job.sources.items():
        if topic not in infos:
            yield Finding(
                check, "problem", f"source {name}: there is no topic {topic}", "it exists",
                f"`perseid topics create {topic} --partitions N`",
            )  # fmt: skip
    for topic in job.written:
        if topic not in infos:
            yield Finding(
                check, "problem", f"there is no topic {topic}, which the job writes", "it exists",
                f"`perseid topics create {topic} --partitions N`, or `perseid jobs apply` again",
            )  # fmt: skip
    for wanted in job.needed if job.begun else ():
        if wanted.name not in infos and names.of_buffer(job.name, wanted.name) is not None:
            yield Finding(
                check, "problem", f"there is no topic {wanted.name}: {wanted.why}",
                "it stays as long as the job has its layout",
                f"`perseid jobs stop {job.name}` and `perseid jobs start {job.name}`: it is made "
                "again, and what follows the last checkpoint is sent again",
            )  # fmt: skip
        elif wanted.name not in infos:
            yield Finding(
                check, "problem", f"there is no topic {wanted.name}, which {wanted.why}",
                "it stays as long as the job",
                f"restore it, or `perseid jobs remove {job.name}` and apply the job again",
            )  # fmt: skip


def _kept(check: str, wanted: TopicSpec, info: TopicInfo) -> Iterator[Finding]:
    """Whether the topic keeps its records as required."""
    for name, found, expected in deviations(wanted, info):
        yield Finding(
            check, "problem", f"{info.name} has {name}={found}",
            f"{expected}: it is {wanted.why}", alter(info.name, name, expected),
        )  # fmt: skip
    if info.stamped != wanted.config["message.timestamp.type"]:
        yield Finding(
            check, "warning", f"{info.name} has message.timestamp.type={info.stamped}",
            "LogAppendTime: the broker's clock bounds what a new leader takes for the time",
            alter(info.name, "message.timestamp.type", "LogAppendTime"),
        )  # fmt: skip
    if info.partitions < wanted.partitions and "ledger" in wanted.name:
        yield Finding(
            check, "problem", f"{info.name} has {info.partitions} partitions",
            f"at least {wanted.partitions}", "`perseid jobs stop`, then `perseid jobs start`",
        )  # fmt: skip


def retention(job: JobFacts, infos: Mapping[str, TopicInfo], now_ms: int) -> Iterator[Finding]:
    """Whether sources still have what a restore from the newest checkpoint would read."""
    if job.checkpoint_ms is None:
        return
    age_ms = max(0, now_ms - job.checkpoint_ms)
    check = f"job {job.name}: retention"
    what_next = (
        f"`perseid checkpoint {job.name}`" if job.desired == "running"
        else f"`perseid jobs start {job.name}`"
    )  # fmt: skip
    for name, topic in job.sources.items():
        info = infos.get(topic)
        if info is None:
            continue
        kept = "without limit" if info.retention_ms < 0 else f"for {duration(info.retention_ms)}"
        found = (
            f"source {name}: {topic} keeps its records {kept}, and the newest checkpoint is "
            f"{age_ms // 1000} s old"
        )
        level: Level = "ok"
        if 0 <= info.retention_ms <= age_ms:
            level = "problem"
        elif info.retention_ms >= 0 and age_ms > RETENTION_NEAR * info.retention_ms:
            level = "warning"
        bad = level != "ok"
        expected = "a checkpoint that is younger: what follows it is read again" if bad else ""
        yield Finding(check, level, found, expected, what_next if bad else "")


def horizon(job: JobFacts, infos: Mapping[str, TopicInfo]) -> Iterator[Finding]:
    """Whether sources still have what audits of the job's horizon would read again."""
    if job.horizon_ms is None:
        return
    check, asked = f"job {job.name}: audit horizon", duration(job.horizon_ms)
    found = list[Finding]()
    for name, topic in job.sources.items():
        info = infos.get(topic)
        if info is not None and info.compacted:
            found.append(Finding(
                check, "warning", f"source {name}: {topic} is compacted",
                f"cleanup.policy=delete: an audit of the last {asked} finds other records than "
                "the job read", alter(topic, "cleanup.policy", "delete"),
            ))  # fmt: skip
        elif info is not None and 0 <= info.retention_ms < job.horizon_ms:
            found.append(Finding(
                check, "warning",
                f"source {name}: {topic} keeps its records for {duration(info.retention_ms)}",
                f"as long as the horizon of {asked}: an audit of what is older ends with "
                "input_gone", f"{alter(topic, 'retention.ms', str(job.horizon_ms))}, or a shorter "
                "`audit: {horizon: ...}` in job.yaml",
            ))  # fmt: skip
    yield from found or [Finding(check, "ok", f"{asked}, and the sources keep theirs as long")]


def failed(job: JobFacts) -> Iterator[Finding]:
    """Whether the job failed or does not do what its user wants."""
    if job.state == "failed":
        text = (job.error or {}).get("text", "no reason given")
        yield Finding(f"job {job.name}", "problem", f"failed: {text}", job.desired,
                      f"`perseid jobs show {job.name}`")  # fmt: skip
    elif job.failing:
        yield Finding(f"job {job.name}", "problem", job.failing, "epochs get done",
                      f"`perseid jobs show {job.name}`, `perseid logs {job.name}`")  # fmt: skip
    else:
        yield Finding(f"job {job.name}", "ok", job.state)


def damaged(found: Mapping[str, str]) -> Iterator[Finding]:
    """Jobs whose entry or plan in ZooKeeper cannot be read, and why."""
    for name, why in sorted(found.items()):
        what_next = f"`perseid restore` its backup, or `perseid jobs remove {name}` and apply it"
        yield Finding(f"entry of job {name}", "problem", why, "a readable entry", what_next)


def skew(who: str, ahead_s: float, asked_s: float) -> Finding:
    """`ahead_s`: their clock minus ours, in the middle of the `asked_s` that the query took."""
    check = f"clock of {who}"
    sure_s = max(0.0, abs(ahead_s) - asked_s / 2)
    if sure_s <= SKEW_S:
        return Finding(check, "ok", f"within {max(abs(ahead_s), asked_s / 2):.1f} s of ours")
    side = "ahead of" if ahead_s > 0 else "behind"
    return Finding(
        check, "warning", f"{abs(ahead_s):.1f} s {side} ours", f"within {SKEW_S:g} s",
        "let both follow one time server (chrony, ntpd): retention and the dates in records and "
        "logs are off, and a broker refuses records that are an hour ahead of its clock; state "
        "and timers go by the monotonic clock (`perseid jobs show` reports a clock that jumped)",
    )  # fmt: skip


def disk(what: str, folder: str, free: int, total: int) -> Finding:
    check = f"disk of {what}"
    found = f"{folder}: {free // MIB} of {total // MIB} MiB free"
    short = max(min(DISK_SHORT_BYTES, total // 8), DISK_SHORT_SHARE * total)
    low = max(min(DISK_LOW_BYTES, total // 8), DISK_LOW_SHARE * total)
    if free >= low:
        return Finding(check, "ok", found)
    level: Level = "problem" if free < short else "warning"
    return Finding(
        check, level, found, f"at least {round(low) // MIB} MiB", f"make room in {folder}"
    )


def transactions(held: Sequence[Held], now_ms: int) -> Iterator[Finding]:
    """Open ones are normal while jobs write; abandoned ones hold readers back."""
    check = "transactions"
    stuck = [one for one in held if one.stuck(now_ms)]
    for one in stuck:
        whose = " or ".join(one.ids) or "no job here"
        job = one.ids[0].split(".")[1] if one.ids else ""
        yield Finding(
            check, "problem",
            f"{one.topic}[{one.partition}] is held back at offset {one.stable} for "
            f"{one.age_s(now_ms) or 0:.0f} s, by {whose}",
            f"an end within {TRANSACTION_TIMEOUT_MS // 1000} s",
            f"`perseid txn abort {job}`" if job else _FOREIGN,
        )  # fmt: skip
    slow = [one for one in held if one.slow(now_ms) and one not in stuck]
    for one in slow:
        yield Finding(
            check, "warning",
            f"{one.topic}[{one.partition}] is held back at offset {one.stable} for "
            f"{one.age_s(now_ms) or 0:.0f} s, by a producer that is not perseid's",
            "an end: what follows it cannot be read, of any producer", _FOREIGN,
        )  # fmt: skip
    if not (stuck or slow):
        yield Finding(check, "ok", f"{len(held)} partitions with an open one, none for long")


_FOREIGN = (
    "look for its producer (`kafka-transactions.sh find-hanging`), let it commit or end it; the "
    "broker does after the producer's transaction.timeout.ms"
)


def connection(part: str, hosts: Iterable[str], access: Access) -> Finding:
    """Whether the connection is encrypted, and whether the servers authenticate clients."""
    check = f"{part}: connection"
    if all(host.strip().startswith(LOCAL) for host in hosts):
        return Finding(check, "ok", "on loopback only")
    lacking = [
        text
        for text, there in (("not encrypted", access.encrypted), ("without a user", access.known))
        if not there
    ]
    if not lacking:
        return Finding(check, "ok", "encrypted, and known to the servers")
    return Finding(
        check, "warning", " and ".join(lacking), "TLS, and a user or a certificate of ours",
        f"set {access.variable('ca')} and {access.variable('user')}, see compose/SECURITY.md",
    )  # fmt: skip


def zookeeper(hosts: str, *, open_to_all: bool, admin_servers: Sequence[str]) -> Iterator[Finding]:
    """A session works; reports who else could write there."""
    yield Finding("zookeeper", "ok", f"a session at {hosts}")
    local = all(host.strip().startswith(LOCAL) for host in hosts.split(","))
    if open_to_all:
        yield Finding(
            "zookeeper: access", "ok" if local else "warning",
            "its nodes are open to everybody" + (", on loopback only" if local else ""),
            "" if local else "no other host reaches it",
            "" if local else "set PERSEID_ZOOKEEPER_USER, see compose/SECURITY.md",
        )  # fmt: skip
    for host in admin_servers:
        yield Finding(
            "zookeeper: AdminServer", "warning", f"that of {host} answers", "switched off",
            "admin.enableServer=false in zoo.cfg, then restart ZooKeeper",
        )  # fmt: skip


def coordinators(leader: LeaderInfo | None, registered: Iterable[str]) -> Finding:
    """`registered`: the names of leaders and standbys."""
    check, known = "coordinators", set(registered)
    if leader is None:
        return Finding(check, "problem", f"{len(known)} alive, none leads", "one leads",
                       "`perseid up`, or look at `perseid logs c1`")  # fmt: skip
    found = f"{leader.id} leads, {len(known)} known"
    if len(known) < 2:
        return Finding(check, "warning", found, "two: the other takes over when it dies",
                       "`perseid up`, or `perseid coordinator` on another host")  # fmt: skip
    return Finding(check, "ok", found)


def workers(alive: Sequence[WorkerInfo], jobs: Iterable[JobFacts]) -> Finding:
    check = "workers"
    wanted = [job.name for job in jobs if job.desired == "running"]
    found = f"{len(alive)} alive ({sum(worker.cores for worker in alive)} cores)"
    if not alive:
        level: Level = "problem" if wanted else "warning"
        return Finding(check, level, "none alive", f"one at least, for {len(wanted)} jobs",
                       "`perseid up`, or `perseid worker` on a host")  # fmt: skip
    if len(alive) == 1:
        return Finding(check, "warning", found, "two: the other takes jobs over",
                       "`perseid up --workers 2`, or `perseid worker` on another host")  # fmt: skip
    return Finding(check, "ok", found)


def processes(dead: Sequence[str]) -> Finding:
    if dead:
        return Finding("processes", "problem", f"not alive: {', '.join(dead)}", "all are",
                       f"`perseid up`, or look at `perseid logs {dead[0]}`")  # fmt: skip
    return Finding("processes", "ok", "all of this machine's are alive")


def memory(left: int, total: int, spare: float) -> Finding:
    """`spare`: what is left above the reserve at which jobs are stopped."""
    found = f"{left // MIB} of {total // MIB} MiB left"
    reserve = left - spare
    if spare < 0:
        expected = f"at least {reserve / MIB:.0f} MiB: below it the fastest growing job is stopped"
        return Finding("memory", "problem", found, expected, "fewer jobs here, or more memory")
    if left < 2 * reserve:
        return Finding("memory", "warning", found, f"at least {2 * reserve / MIB:.0f} MiB",
                       "fewer jobs here, or more memory")  # fmt: skip
    return Finding("memory", "ok", found)


def exit_code(findings: Iterable[Finding]) -> int:
    return int(any(one.level == "problem" for one in findings))
