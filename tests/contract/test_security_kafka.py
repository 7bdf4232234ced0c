"""Two jobs with principals of their own on a Kafka that asks who comes.

Each has exactly the rights that `perseid jobs acls` prints. It can do its work with them, over
encrypted connections, and reaches nothing of the other.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from perseid.cli import main
from perseid.errors import PerseidError, RetryableError, TransientAnswer
from perseid.records import Deployment
from perseid.records.access import Access, Brokers
from perseid.topics import clients, names
from perseid.topics.admin import TopicAdmin
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import KafkaLogReader, KafkaLogWriter
from perseid.topics.ranges import RangeReader
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession
from support.secured_kafka import ADMIN, SecuredKafkaServer

OURS, THEIRS = "ours", "theirs"
USERS = {
    "perseid-ours": "secret of ours", "perseid-theirs": "secret of theirs", "perseid": "secret",
}  # fmt: skip
JOB = """\
name: {name}
sources: {{lines: {{topic: {name}-in, format: text}}}}
sinks: {{out: {{input: lines, topic: {name}-out, format: text}}}}
"""
DENIED = "the broker denies"


@pytest.fixture(scope="module")
def acls(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the verb prints for a folder with both jobs."""
    folder = tmp_path_factory.mktemp("jobs")
    for name in (OURS, THEIRS):
        (folder / name).mkdir()
        (folder / name / "job.yaml").write_text(JOB.format(name=name))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        asked = ["jobs", "acls", str(folder), "--coordinator", "User:perseid", "--json"]
        assert main.run(asked) == 0
    found: list[dict[str, Any]] = json.loads(printed.getvalue())["acls"]
    return found


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, acls: list[dict[str, Any]]
) -> Iterator[SecuredKafkaServer]:
    """With those rights, and the topics of both jobs, which the coordinator has made."""
    with SecuredKafkaServer(tmp_path_factory.mktemp("secured-kafka"), USERS) as running:
        running.allow(acls)
        owner, coordinator = running.as_user(ADMIN), TopicAdmin(running.as_user("perseid"))
        for job in (OURS, THEIRS):
            assert TopicAdmin(owner).create(f"{job}-in", 1)
            KafkaLogWriter(owner).append(f"{job}-in", 0, b"a line")
            own = names.tokens(job), names.progress(job), names.ledger(job)
            for topic in (*own, f"{job}-out"):
                assert coordinator.create(topic, 1)
        yield running


@pytest.fixture
def ours(server: SecuredKafkaServer) -> Brokers:
    return server.as_user("perseid-ours")


def sink(brokers: Brokers, job: str) -> SinkSession:
    topics = TopicAdmin(brokers)
    ledger = LedgerReader(KafkaLogReader(brokers), topics)
    who = SinkIdentity(job, "uuid", 1, "op", 0, ledger=0, after_epoch=0)
    return SinkSession(who, KafkaTransactions(brokers), ledger, topics)


def values(brokers: Brokers, topic: str) -> list[bytes | None]:
    place = (topic, 0)
    end = TopicAdmin(brokers).ends([place])[place]
    with closing(RangeReader(brokers, timeout_s=5)) as reader:
        return [m.value() for batch in reader.read(topic, 0, 0, end) for m in batch]


@pytest.mark.security("5.2", "5.1")
def test_a_job_does_its_work_with_what_is_printed(
    server: SecuredKafkaServer, ours: Brokers
) -> None:
    coordinator = server.as_user("perseid")
    KafkaLogWriter(coordinator).append(names.tokens(OURS), 0, b"a token")
    with closing(KafkaLogReader(ours)) as tokens:
        found = tokens.read_from(names.tokens(OURS), 0, 0, max_records=1, timeout_s=10)
    assert [entry.value for entry in found] == [b"a token"]
    assert values(ours, f"{OURS}-in") == [b"a line"]
    KafkaLogWriter(ours).append(names.progress(OURS), 0, b"a report")
    with closing(sink(ours, OURS)) as writer:
        for epoch in (1, 2):
            writer.commit(epoch, epoch, 1, [SinkBatch(f"{OURS}-out", [None], [b"%d" % epoch])])
    assert values(server.as_user(ADMIN), f"{OURS}-out") == [b"1", b"2"]
    with closing(sink(ours, OURS)) as again:  # who takes over reads the ledger back
        assert again.commit(2, 2, 2, [SinkBatch(f"{OURS}-out", [None], [b"2"])]).skipped


@pytest.mark.security("5.2")
@pytest.mark.parametrize(
    "attempt",
    [
        lambda mine: values(mine, "theirs-in"),
        lambda mine: values(mine, "theirs-out"),
        lambda mine: TopicAdmin(mine).describe(["theirs-out"]),
        lambda mine: TopicAdmin(mine).identities([names.ledger(THEIRS)]),
        lambda mine: KafkaLogWriter(mine).append("theirs-out", 0, b"forged"),
        lambda mine: KafkaLogWriter(mine).append("ours-in", 0, b"forged"),
        lambda mine: KafkaLogWriter(mine).append(names.progress(THEIRS), 0, b"forged"),
        lambda mine: KafkaLogWriter(mine).append(names.tokens(OURS), 0, b"forged"),
        lambda mine: KafkaTransactions(mine).acquire("perseid.theirs.1.op.0", 1_000_000, 5),
        lambda mine: KafkaTransactions(mine).acquire("perseid.ours-too.1.op.0", 1_000_000, 5),
        lambda mine: TopicAdmin(mine).create("perseid.ours.more", 1),
        lambda mine: TopicAdmin(mine).delete(["ours-out"]),
    ],
    ids=[
        "read a source", "read a sink", "describe", "identity", "write a sink", "write a source",
        "report", "write a token", "fence", "fence a like name", "create", "delete",
    ],
)  # fmt: skip
def test_nothing_of_another_job_is_in_reach(
    ours: Brokers, attempt: Callable[[Brokers], object]
) -> None:
    with pytest.raises(TransientAnswer, match=DENIED):
        attempt(ours)


@pytest.mark.security("5.2")
def test_an_attempt_to_fence_leaves_the_other_jobs_writer_alone(
    server: SecuredKafkaServer, ours: Brokers
) -> None:
    theirs = server.as_user("perseid-theirs")
    transaction = KafkaTransactions(theirs).acquire("perseid.theirs.1.op.7", 1_000_000, 10)
    transaction.begin()
    with pytest.raises(TransientAnswer, match=DENIED):
        KafkaTransactions(ours).acquire("perseid.theirs.1.op.7", 1_000_000, 5)
    transaction.commit(10)


@pytest.mark.security("5.2")
def test_a_trim_of_another_jobs_topic_is_refused(server: SecuredKafkaServer, ours: Brokers) -> None:
    with pytest.raises(RetryableError, match="No leaders found"):
        TopicAdmin(ours).delete_records({("theirs-in", 0): 1})
    assert values(server.as_user(ADMIN), "theirs-in") == [b"a line"]


@pytest.mark.security("5.2")
def test_a_job_sees_only_its_own_topics(ours: Brokers) -> None:
    own = [names.ledger(OURS), names.progress(OURS), names.tokens(OURS), "ours-in", "ours-out"]
    assert TopicAdmin(ours).list() == sorted(own)


@pytest.mark.security("5.2")
def test_only_coordinators_commit_offsets_of_a_jobs_group(
    server: SecuredKafkaServer, ours: Brokers
) -> None:
    def commit(brokers: Brokers) -> None:
        transactional = clients.transactional(brokers, f"perseid.{OURS}.offsets")
        transactional.init_transactions(10)
        transactional.begin_transaction()
        with closing(clients.reader(brokers, **{"group.id": names.group(OURS)})) as reader:
            group = reader.consumer_group_metadata()
        place = TopicPartition(f"{OURS}-in", 0, 1)
        transactional.send_offsets_to_transaction([place], group, 10)
        transactional.commit_transaction(10)

    commit(server.as_user("perseid"))
    with pytest.raises(KafkaException) as caught:
        commit(ours)
    assert caught.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


@pytest.mark.security("5.1")
def test_a_certificate_is_a_principal_too(
    server: SecuredKafkaServer, acls: list[dict[str, Any]]
) -> None:
    brokers = server.as_certificate("perseid-ours")
    assert values(brokers, "ours-in") == [b"a line"]
    with pytest.raises(TransientAnswer, match=DENIED):
        values(brokers, "theirs-in")


@pytest.mark.security("5.1")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("wrong password", "Authentication failed"),
        ("wrong user", "Authentication failed"),
        ("other authority", "certificate verify failed"),
        ("other name", "certificate verify failed"),
        ("plain", "Broker transport failure|Disconnected|timed out"),
    ],
)
def test_who_is_not_let_in_or_not_trusted_is_reported_why(
    server: SecuredKafkaServer, ours: Brokers, tmp_path: Path, change: str, text: str
) -> None:
    (tmp_path / "password").write_text("canary-5f0c")
    own = ours.access.model_dump()
    access = {
        "wrong password": {**own, "password_file": str(tmp_path / "password")},
        "wrong user": {**own, "user": "unknown"},
        "other authority": {**own, "ca": str(server.authority.ca.parent / "broker.pem")},
    }.get(change, own)
    where = server.bootstrap.replace("localhost", "127.0.0.1")  # no name in the certificate
    brokers: str | Brokers = Brokers(
        where if change == "other name" else server.bootstrap, Access.model_validate(access)
    )
    if change == "plain":
        brokers = server.bootstrap
    with pytest.raises(RetryableError, match=text) as caught:
        TopicAdmin(brokers, timeout_s=2).list()
    assert "canary-5f0c" not in str(caught.value)


@pytest.mark.security("5.14")
def test_a_pickled_deployment_has_the_place_of_a_secret_and_not_the_secret(
    server: SecuredKafkaServer, ours: Brokers
) -> None:
    """Tasks of Spark have it with them; what opens clients there reads the file there."""
    job_access = {
        **ours.access.model_dump(), "part": "KAFKA_JOB", "user": "perseid-{job}",
        "password_file": str(server.folder / "perseid-{job}.password"), "ca": None,
    }  # fmt: skip
    deployment = Deployment(
        kafka=server.bootstrap, zookeeper="", redis="redis://127.0.0.1", store="", state="",
        logs="", kafka_access=server.as_user("perseid").access,
        kafka_job_access=Access.model_validate(job_access),
    )  # fmt: skip
    shipped = pickle.dumps(deployment)
    assert not any(secret.encode() in shipped for secret in USERS.values())
    brokers = pickle.loads(shipped).brokers(OURS)
    assert brokers.access.user == "perseid-ours"
    assert values(brokers, "ours-in") == [b"a line"]


@pytest.mark.security("5.14")
def test_without_its_password_file_a_client_is_not_made(ours: Brokers) -> None:
    gone = ours.access.model_copy(update={"password_file": "/nowhere/password"})
    with pytest.raises(PerseidError, match=r"PASSWORD_FILE: /nowhere/password cannot be read"):
        TopicAdmin(Brokers(ours.bootstrap, gone))
