"""A deployment whose Kafka, ZooKeeper, Redis and API ask who comes, with secrets that can be found.

A job runs on it, by a principal of its own with the rights that `perseid jobs acls` prints. Each
secret is a canary: a text that must be nowhere but in the files and variables that it was given in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from perseid.coordinator.api.tokens import Role, added
from perseid.embedded import Cluster, Outside
from perseid.records.access import Access
from perseid.registry import Registry
from perseid.registry.zookeeper import KazooCoordination
from perseid.state.durability.redis_client import rights
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.wait import until
from perseid.topics import clients
from perseid.topics.admin import TopicAdmin
from perseid.topics.ranges import RangeReader
from support.redis_server import RedisServer
from support.secured_kafka import ADMIN, SecuredKafkaServer
from support.zookeeper import SecuredZooKeeperServer

LINES = 2000
JOB = "wordcount"
CANARIES = {
    name: f"canary-{name}-2f9d61"
    for name in ("kafka", "job", "zookeeper", "redis", "registry", "wrong")
}


@dataclass
class Secured:
    """The running deployment and its servers; `token` is one of the API."""

    running: RunningCluster
    kafka: SecuredKafkaServer
    token: str
    folder: Path

    @property
    def secrets(self) -> list[str]:
        return [*CANARIES.values(), self.token]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.running.do("status")
        return next((job for job in found["jobs"] if job["name"] == JOB), {})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    for name, canary in CANARIES.items():
        (folder / name).write_text(canary + "\n")
    (folder / JOB).write_text(CANARIES["job"])
    users = {"perseid": CANARIES["kafka"], f"perseid-{JOB}": CANARIES["job"]}
    redis_access = Access(part="REDIS", user="perseid", password_file=str(folder / "redis"))
    acl = ["user default off", f"user perseid on >{CANARIES['redis']} {rights('local')}"]
    token = added(folder / "tokens", "ann", Role.ADMIN)
    assert token is not None
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        kafka = stack.enter_context(SecuredKafkaServer(folder / "a", users))
        keeper = stack.enter_context(SecuredZooKeeperServer(folder / "b"))
        redis = stack.enter_context(RedisServer(folder / "c", acl, redis_access))
        for name, value in {
            "KAFKA_CA": str(kafka.authority.ca),
            "KAFKA_USER": "perseid",
            "KAFKA_PASSWORD_FILE": str(folder / "kafka"),
            "KAFKA_JOB_USER": "perseid-{job}",
            "KAFKA_JOB_PASSWORD_FILE": str(folder / "{job}"),
            "ZOOKEEPER_CA": str(keeper.authority.ca),
            "ZOOKEEPER_USER": "perseid",
            "ZOOKEEPER_PASSWORD": CANARIES["zookeeper"],
            "REDIS_USER": "perseid",
            "REDIS_PASSWORD_FILE": str(folder / "redis"),
            "API_TOKENS": str(folder / "tokens"),
            "API_TOKEN": token,
            "SCHEMA_REGISTRY_AUTH_TESTS": f"user:{CANARIES['registry']}",
        }.items():
            environment.setenv(f"PERSEID_{name}", value)
        cluster = Cluster(folder / "data", tied=True)
        stack.callback(cluster.down, purge=True)
        cluster.up(
            workers=1, coordinators=1,
            outside=Outside(kafka=kafka.bootstrap, zookeeper=keeper.hosts, redis=redis.url),
        )  # fmt: skip
        yield Secured(RunningCluster(cluster), kafka, token, folder)


@pytest.fixture(scope="module")
def ran(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    """With a job that has read its input."""
    owner = secured.kafka.as_user(ADMIN)
    TopicAdmin(owner).create("lines", 2)
    folder = example(tmp_path_factory.mktemp("jobs") / JOB, JOB, {})
    printed = secured.running.do("jobs", "acls", str(folder), "--coordinator", "User:perseid")
    secured.kafka.allow(printed["acls"])
    secured.running.do("jobs", "apply", str(folder))
    producer = clients.bulk(owner)
    for line in lines(LINES, 1):
        producer.produce("lines", line)
    assert producer.flush(30) == 0

    def caught_up() -> bool:
        job = secured.status()
        return job.get("lag") == 0 and job["epoch"] == job["committed_epoch"] != 0

    until(caught_up, 120, "the job to have read its input")
    return secured


@pytest.mark.security("5.1", "5.2", "5.4", "5.5", "5.6")
def test_a_job_runs_where_everybody_is_asked(ran: Secured) -> None:
    counts = {row["word"]: row["n"] for row in _rows(ran, "word-counts")}
    assert sum(counts.values()) == 10 * LINES
    assert ran.running.do("status")["faults"] == []
    findings = ran.running.run("doctor").document["findings"]
    assert [f for f in findings if f["level"] == "problem"] == []


@pytest.mark.security("5.14")
def test_no_secret_is_in_a_file_of_the_deployment(ran: Secured) -> None:
    looked = 0
    for root in (ran.running.cluster.data, Path(ran.running.cluster.deployment.state)):
        for path in (p for p in root.rglob("*") if p.is_file()):
            looked += 1
            _assert_clean(ran, path.read_bytes(), str(path))
    assert looked > 20


@pytest.mark.security("5.14")
def test_no_secret_is_in_a_command_line(ran: Secured) -> None:
    mine = [p for p in psutil.process_iter() if _is_of(p, str(ran.running.cluster.data))]
    assert len(mine) >= 4
    for process in mine:
        _assert_clean(ran, " ".join(process.cmdline()).encode(), process.name())


@pytest.mark.security("5.14")
def test_no_secret_is_in_zookeeper(ran: Secured) -> None:
    with closing(Registry.connect(ran.running.cluster.deployment)) as registry:
        coordination = registry.coordination
        assert isinstance(coordination, KazooCoordination)
        paths = [""]
        for path in paths:
            node = coordination.get(path)
            _assert_clean(ran, f"{path}{node}".encode(), path)
            paths += [f"{path}/{child}" for child in coordination.children(path)]
    assert len(paths) > 8


@pytest.mark.security("5.14")
def test_no_secret_is_in_a_record(ran: Secured) -> None:
    owner = ran.kafka.as_user(ADMIN)
    topics = TopicAdmin(owner).list()
    assert f"perseid.{JOB}.tokens" in topics
    for topic in topics:
        for message in _messages(ran, topic):
            reported = repr((message.key(), message.value(), message.headers()))
            _assert_clean(ran, reported.encode(), topic)


@pytest.mark.security("5.14")
def test_no_secret_is_in_an_answer(ran: Secured) -> None:
    with closing(Registry.connect(ran.running.cluster.deployment)) as registry:
        leader = registry.leader()
    assert leader is not None
    header = {"Authorization": f"Bearer {ran.token}"}
    for path in ("api/v1/status", "api/v1/jobs", f"api/v1/jobs/{JOB}", "metrics", "openapi.json"):
        answer = httpx.get(f"{leader.url}/{path}", headers=header, timeout=5, trust_env=False)
        assert answer.status_code == 200
        _assert_clean(ran, answer.content, path)
    for command in (("status",), ("doctor",), ("jobs", "show", JOB), ("txn", "list")):
        shown = ran.running.run(*command)
        _assert_clean(ran, f"{shown.document}{shown.stderr}".encode(), " ".join(command))


@pytest.mark.security("5.14")
@pytest.mark.parametrize("part", ["KAFKA", "ZOOKEEPER", "REDIS"])
def test_no_secret_is_in_an_error(ran: Secured, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PERSEID_{part}_PASSWORD_FILE", str(ran.folder / "wrong"))
    for command in ("status", "doctor"):
        shown = ran.running.run(command)
        text = f"{shown.document}{shown.stderr}"
        assert part.lower() in text.lower()
        _assert_clean(ran, text.encode(), command)


def _messages(ran: Secured, topic: str) -> Iterator[Any]:
    owner = ran.kafka.as_user(ADMIN)
    admin = TopicAdmin(owner)
    places = [(topic, p) for p in range(admin.describe([topic])[topic].partitions)]
    with closing(RangeReader(owner)) as reader:
        for place, end in admin.ends(places).items():
            for batch in reader.read(*place, 0, end):
                yield from batch


def _rows(ran: Secured, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in _messages(ran, topic)]


def _assert_clean(ran: Secured, content: bytes, where: str) -> None:
    found = [secret for secret in ran.secrets if secret.encode() in content]
    assert not found, f"{where} has {found}"


def _is_of(process: psutil.Process, folder: str) -> bool:
    try:
        return process.pid != os.getpid() and folder in " ".join(process.cmdline())
    except psutil.Error:
        return False
