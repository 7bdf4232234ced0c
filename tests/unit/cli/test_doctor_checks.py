"""What `perseid doctor` reports for which facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perseid.cli import doctor_checks, doctor_look
from perseid.cli.doctor_checks import DAY_MS, GIB, HOUR_MS, MIB, Finding, JobFacts
from perseid.cli.open_transactions import SLOW_S, STUCK_S, Held
from perseid.errors import RetryableError
from perseid.records import LeaderInfo, WorkerInfo
from perseid.records.access import Access
from perseid.topics import names
from perseid.topics.admin import TopicInfo
from perseid.topics.control import buffer_topic, control_topics, optional_topics

LEADER = LeaderInfo("c1", 5, 20, "http://127.0.0.1:9")
WORKER = WorkerInfo("w1", "w1-a", "h", 30, 31, 2, "local[2]", 0)
JOB = JobFacts(
    "shop", "running", "running", True, sources={"lines": "lines"}, written=("shop-counts",),
    needed=control_topics("shop", 3), checkpoint_ms=1_000_000,
)  # fmt: skip
INFOS = {
    "lines": TopicInfo("lines", "1", 2, retention_ms=DAY_MS),
    "shop-counts": TopicInfo("shop-counts", "2", 2, cleanup_policy="compact"),
    **{
        t.name: TopicInfo(
            t.name,
            t.name,
            t.partitions,
            retention_ms=int(t.config["retention.ms"]),
            stamped=t.config["message.timestamp.type"],
        )
        for t in JOB.needed
    },
}


def levels(found: Any) -> list[str]:
    return [one.level for one in found]


def only(found: Any) -> Finding:
    [one] = found
    assert one.level == "ok" or (one.expected and one.next), one
    assert isinstance(one, Finding)
    return one


@pytest.mark.parametrize(
    ("most_ms", "kept_ms", "expected"),
    [
        (900_000, 7 * DAY_MS, ["ok", "ok"]),
        (30_000, DAY_MS, ["ok", "ok"]),
        (29_999, DAY_MS - 1, ["problem", "warning"]),
        (900_000, HOUR_MS - 1, ["ok", "problem"]),
    ],
)
def test_brokers_have_to_allow_what_sinks_ask_for(
    most_ms: int, kept_ms: int, expected: list[str]
) -> None:
    settings = {
        "transaction.max.timeout.ms": str(most_ms), "transactional.id.expiration.ms": str(kept_ms)
    }  # fmt: skip
    found = list(doctor_checks.broker_settings(1, settings))
    assert levels(found) == expected
    assert all("server.properties" in one.next for one in found if one.level != "ok")


def test_no_broker_is_a_problem() -> None:
    assert doctor_checks.brokers(0, "k:1").level == "problem"
    assert doctor_checks.brokers(3, "k:1").found == "3 brokers at k:1"


def test_a_job_that_fails_again_and_again_is_a_problem() -> None:
    text = "fails again and again (7 times in 61 s): the store is away"
    found = only(doctor_checks.failed(replace(JOB, state="restoring", failing=text)))
    assert (found.level, found.found) == ("problem", text)
    assert "perseid jobs show shop" in found.next
    failed = only(doctor_checks.failed(replace(JOB, state="failed", error={"text": "no"})))
    assert failed.found == "failed: no"


def test_all_topics_there_is_one_finding() -> None:
    assert only(doctor_checks.topics(JOB, INFOS)).found == "5 topics are there"


@pytest.mark.parametrize(
    ("topic", "words", "what_next"),
    [
        ("lines", "source lines", "perseid topics create lines"),
        ("shop-counts", "which the job writes", "perseid topics create shop-counts"),
        ("perseid.shop.ledger", "which epochs are committed", "perseid jobs remove shop"),
        ("perseid.shop.tokens", "input of every epoch", "perseid jobs remove shop"),
    ],
)
def test_a_missing_topic_is_a_problem(topic: str, words: str, what_next: str) -> None:
    infos = {name: info for name, info in INFOS.items() if name != topic}
    found = only(doctor_checks.topics(JOB, infos))
    assert found.level == "problem"
    assert words in found.found
    assert what_next in found.next


def test_a_job_that_has_not_begun_has_no_topics_of_its_own_yet() -> None:
    infos = {name: info for name, info in INFOS.items() if not name.startswith("perseid.")}
    assert levels(doctor_checks.topics(replace(JOB, begun=False), infos)) == ["ok"]


@pytest.mark.parametrize(
    ("topic", "change", "what_next"),
    [
        ("lines", {"cleanup_policy": "compact,delete"}, "cleanup.policy=delete"),
        ("perseid.shop.tokens", {"cleanup_policy": "compact"}, "cleanup.policy=delete"),
        ("perseid.shop.tokens", {"retention_ms": DAY_MS}, "retention.ms=-1"),
        ("perseid.shop.ledger", {"retention_ms": DAY_MS}, "retention.ms=-1"),
        ("perseid.shop.ledger", {"partitions": 2}, "perseid jobs start"),
    ],
)
def test_topics_that_do_not_keep_what_they_must(
    topic: str, change: dict[str, Any], what_next: str
) -> None:
    infos = {**INFOS, topic: replace(INFOS[topic], **change)}
    found = only(doctor_checks.topics(JOB, infos))
    assert found.level == "problem"
    assert what_next in found.next


def test_a_buffer_that_does_not_keep_its_rows_is_a_problem() -> None:
    buffers = optional_topics("shop", [names.buffer("shop", "totals", 1)])
    job = replace(JOB, needed=(*JOB.needed, *buffers))
    (name,) = (topic.name for topic in buffers)
    info = TopicInfo(name, "9", 4, retention_ms=-1, stamped="LogAppendTime")
    assert only(doctor_checks.topics(job, {**INFOS, name: info})).found == "6 topics are there"
    short = replace(info, retention_ms=DAY_MS)
    found = only(doctor_checks.topics(job, {**INFOS, name: short}))
    assert (found.level, found.found) == ("problem", f"{name} has retention.ms={DAY_MS}")
    assert "rows for totals from other fragments" in found.expected


def test_a_buffer_that_is_gone_comes_with_a_new_start() -> None:
    name = names.buffer("shop", "totals", 1)
    job = replace(JOB, begun=True, needed=(*JOB.needed, buffer_topic("shop", "totals", 1, 4)))
    found = only(doctor_checks.topics(job, INFOS))
    assert (found.level, found.found) == (
        "problem", f"there is no topic {name}: rows for totals from other fragments"
    )  # fmt: skip
    assert found.next.startswith("`perseid jobs stop shop` and `perseid jobs start shop`")


def test_a_token_log_that_its_producers_stamp_bounds_no_time() -> None:
    topic = "perseid.shop.tokens"
    found = only(
        doctor_checks.topics(JOB, {**INFOS, topic: replace(INFOS[topic], stamped="CreateTime")})
    )
    assert found.level == "warning"
    assert "message.timestamp.type=LogAppendTime" in found.next


def test_a_clock_that_differs_is_not_reported_as_harmless() -> None:
    found = doctor_checks.skew("zookeeper", 3_600.0, 0.1)
    assert found.found == "3600.0 s ahead of ours"
    assert "state and timers go by the monotonic clock" in found.next


@pytest.mark.parametrize(
    ("source", "found", "what_next"),
    [
        ({"retention_ms": 7 * DAY_MS}, "7d, and the sources keep theirs as long", ""),
        ({"retention_ms": -1}, "7d, and the sources keep theirs as long", ""),
        (
            {"retention_ms": DAY_MS}, "source lines: lines keeps its records for 1d",
            f"--add-config retention.ms={7 * DAY_MS}`, or a shorter `audit: {{horizon: ...}}`",
        ),
        (
            {"cleanup_policy": "compact"}, "source lines: lines is compacted",
            "--add-config cleanup.policy=delete",
        ),
    ],
)  # fmt: skip
def test_sources_keep_their_records_as_long_as_audits_ask(
    source: dict[str, Any], found: str, what_next: str
) -> None:
    job = replace(JOB, horizon_ms=7 * DAY_MS)
    infos = {**INFOS, "lines": replace(INFOS["lines"], **source)}
    one = only(doctor_checks.horizon(job, infos))
    assert (one.level, one.found) == ("warning" if what_next else "ok", found)
    assert what_next in one.next
    assert list(doctor_checks.horizon(JOB, infos)) == [], "it has no horizon"


def test_progress_may_be_kept_for_any_time() -> None:
    progress = replace(INFOS["perseid.shop.progress"], retention_ms=5)
    infos = {**INFOS, progress.name: progress}
    assert levels(doctor_checks.topics(JOB, infos)) == ["ok"]


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "level"),
    [
        (HOUR_MS, DAY_MS, "ok"),
        (DAY_MS // 2 + 1, DAY_MS, "warning"),
        (DAY_MS, DAY_MS, "problem"),
        (100 * DAY_MS, -1, "ok"),
    ],
)
def test_retention_against_the_newest_checkpoint(
    age_ms: int, retention_ms: int, level: str
) -> None:
    infos = {"lines": replace(INFOS["lines"], retention_ms=retention_ms)}
    found = only(doctor_checks.retention(JOB, infos, 1_000_000 + age_ms))
    assert found.level == level
    if level != "ok":
        assert found.next == "`perseid checkpoint shop`"
        stopped = replace(JOB, desired="stopped")
        [found] = doctor_checks.retention(stopped, infos, 1_000_000 + age_ms)
        assert found.next == "`perseid jobs start shop`"


def test_without_a_checkpoint_or_a_topic_retention_is_no_problem() -> None:
    assert levels(doctor_checks.retention(replace(JOB, checkpoint_ms=None), INFOS, 0)) == []
    assert levels(doctor_checks.retention(JOB, {}, 0)) == []


def test_a_failed_job_is_a_problem_with_its_error() -> None:
    found = only(doctor_checks.failed(replace(JOB, state="failed", error={"text": "full"})))
    assert (found.level, found.found) == ("problem", "failed: full")
    assert only(doctor_checks.failed(JOB)).found == "running"


def test_a_clock_is_judged_less_what_asking_took() -> None:
    assert doctor_checks.skew("redis", -1.9, 0.1).level == "ok"
    assert doctor_checks.skew("redis", 3.0, 2.5).level == "ok"
    ahead, late = doctor_checks.skew("redis", 3.0, 0.1), doctor_checks.skew("redis", -90.0, 0.1)
    assert (ahead.level, late.level) == ("warning", "warning")
    assert (ahead.found, late.found) == ("3.0 s ahead of ours", "90.0 s behind ours")


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (50 * GIB, 100 * GIB, "ok"),
        (9 * GIB, 100 * GIB, "warning"),
        (1 * GIB, 100 * GIB, "problem"),
        (3 * GIB, 8 * GIB, "ok"),
        (900 * MIB, 8 * GIB, "warning"),
        (200 * MIB, 8 * GIB, "problem"),
        (200 * MIB, 1 * GIB, "ok"),  # a small one cannot have 2 GiB free
        (100 * MIB, 1 * GIB, "problem"),
    ],
)
def test_disks(free: int, total: int, level: str) -> None:
    found = doctor_checks.disk("state", "/dev/shm", free, total)
    assert found.level == level
    assert f"{free // MIB} of {total // MIB} MiB free" in found.found


def test_only_transactions_that_no_process_ends_are_a_problem() -> None:
    now_ms = 100_000_000
    young = Held("t", 0, 1, 2, ("perseid.shop.1.op.0",), since_ms=now_ms - 1000)
    old = replace(young, since_ms=now_ms - int(STUCK_S * 1000) - 1)
    assert levels(doctor_checks.transactions([young], now_ms)) == ["ok"]
    found = only(doctor_checks.transactions([young, old], now_ms))
    assert (found.level, found.next) == ("problem", "`perseid txn abort shop`")
    found = only(doctor_checks.transactions([replace(old, ids=())], now_ms))
    assert found.level == "problem"
    assert "kafka-transactions.sh find-hanging" in found.next
    foreign = replace(young, ids=(), since_ms=now_ms - int(SLOW_S * 1000) - 1)
    found = only(doctor_checks.transactions([foreign], now_ms))
    assert found.level == "warning", "its time-out may be a quarter of an hour"
    assert "t[0] is held back at offset 1 for 10 s, by a producer that is not" in found.found
    mine = replace(foreign, ids=young.ids)
    assert levels(doctor_checks.transactions([mine], now_ms)) == ["ok"]


def test_a_transaction_log_that_does_not_fit_the_brokers_is_a_problem() -> None:
    large = {"transaction.state.log.replication.factor": "3"}
    found = only(doctor_checks.transaction_log({1: large}, None))
    assert (found.level, found.check) == ("problem", "broker 1: transactions")
    assert found.found == "transaction.state.log.replication.factor=3"
    assert levels(doctor_checks.transaction_log({1: {}}, None)) == ["ok"]


def test_one_copy_of_an_acknowledged_record_is_a_problem() -> None:
    three = {n: replace(i, replicas=3, min_insync_replicas=2) for n, i in INFOS.items()}
    assert levels(doctor_checks.copies(JOB, three, 3)) == ["ok"]
    assert levels(doctor_checks.copies(JOB, INFOS, 1)) == ["ok"]
    weak = {n: replace(i, min_insync_replicas=1) for n, i in three.items()}
    found = list(doctor_checks.copies(JOB, weak, 3))
    assert [one.level for one in found] == ["warning", *["problem"] * 4], "a source is others'"
    assert "topic perseid.shop.tokens has min.insync.replicas=1 of 3 copies" in [
        one.found for one in found
    ]


def test_zookeeper_open_to_all_matters_beyond_loopback() -> None:
    def look(hosts: str, *, open_to_all: bool = True, admin: bool = False) -> list[str]:
        return levels(
            doctor_checks.zookeeper(
                hosts, open_to_all=open_to_all, admin_servers=["zk2"] if admin else []
            )
        )

    assert look("127.0.0.1:1,localhost:2") == ["ok", "ok"]
    assert look("127.0.0.1:1,zk2:2181") == ["ok", "warning"]
    assert look("zk2:2181", open_to_all=False) == ["ok"]
    assert look("zk2:2181", open_to_all=False, admin=True) == ["ok", "warning"]


@pytest.mark.security("5.1", "5.4", "5.5")
@pytest.mark.parametrize(
    ("hosts", "settings", "level", "shown"),
    [
        (["127.0.0.1:1", " localhost:2"], {}, "ok", "loopback"),
        (["kafka:9092"], {}, "warning", "not encrypted and without a user"),
        (["kafka:9093"], {"ca": "/ca"}, "warning", "without a user"),
        (["kafka:9093"], {"ca": "/ca", "user": "a"}, "ok", "encrypted"),
        (["kafka:9093"], {"ca": "/ca", "cert": "/c", "key": "/k"}, "ok", "encrypted"),
        (["127.0.0.1:1", "kafka:9093"], {}, "warning", "not encrypted"),
    ],
)
def test_connections_to_elsewhere_should_be_closed(
    hosts: list[str], settings: dict[str, str], level: str, shown: str
) -> None:
    found = doctor_checks.connection("kafka", hosts, Access(part="KAFKA", **settings))
    assert found.level == level and shown in found.found
    assert ("PERSEID_KAFKA_CA" in found.next) == (level == "warning")


def test_coordinators_need_a_leader_and_a_standby() -> None:
    assert doctor_checks.coordinators(None, ["c1", "c2"]).level == "problem"
    assert doctor_checks.coordinators(LEADER, ["c1"]).level == "warning"
    both = doctor_checks.coordinators(LEADER, ["c1", "c2"])
    assert (both.level, both.found) == ("ok", "c1 leads, 2 known")


def test_workers_are_needed_by_jobs_that_should_run() -> None:
    assert doctor_checks.workers([], [JOB]).level == "problem"
    assert doctor_checks.workers([], [replace(JOB, desired="stopped")]).level == "warning"
    assert doctor_checks.workers([WORKER], [JOB]).level == "warning"
    assert doctor_checks.workers([WORKER, WORKER], [JOB]).found == "2 alive (4 cores)"


def test_memory_is_judged_by_the_reserve_at_which_jobs_are_stopped() -> None:
    assert doctor_checks.memory(900 * MIB, 16 * GIB, -1.0).level == "problem"
    assert doctor_checks.memory(900 * MIB, 8 * GIB, 400.0 * MIB).level == "warning"
    assert doctor_checks.memory(4 * GIB, 8 * GIB, 3.5 * GIB).level == "ok"


def test_processes_that_are_dead_are_named() -> None:
    assert doctor_checks.processes([]).level == "ok"
    assert "w2" in doctor_checks.processes(["w2"]).next


def test_warnings_alone_are_no_failure() -> None:
    fine, warned = Finding("a", "ok", "x"), Finding("b", "warning", "x")
    assert doctor_checks.exit_code([fine, warned]) == 0
    assert doctor_checks.exit_code([fine, Finding("c", "problem", "x")]) == 1


def test_a_part_that_does_not_answer_is_a_finding() -> None:
    def asked() -> Any:
        yield Finding("kafka", "ok", "there")
        raise RetryableError("gone")

    there, gone = doctor_look._tried("kafka", asked)
    assert there.level == "ok"
    assert (gone.check, gone.level, gone.found) == ("kafka", "problem", "gone")
