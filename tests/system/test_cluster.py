"""The embedded cluster with its real parts: idempotent, healed after any kill, data kept.

These tests use a cluster of their own without coordinators and workers: what is shown here is that
the parts come back, where they were, with what they held.
"""

import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from perseid.embedded import Cluster, faults, health
from perseid.embedded.identity import send, tagged, wait_gone
from perseid.embedded.paths import state_root
from perseid.errors import RefusedError
from perseid.records.marks import Mark, mark
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin

PARTS = ("kafka", "zookeeper", "redis")
WAIT_S = 120.0  # on a busy machine; what counts is that it comes back


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("own") / "data", tied=True)
    state_log(cluster).mkdir(parents=True)  # as left by a cluster whose folder was deleted
    cluster.up(workers=0, coordinators=0)
    yield cluster
    cluster.down(purge=True)
    assert list(tagged(f"{cluster.data}#")) == []


@pytest.fixture
def up(own: Cluster) -> Cluster:
    """Whatever the test before did, the parts are there."""
    own.up(workers=0, coordinators=0)
    return own


def state_log(cluster: Cluster) -> Path:
    return state_root(cluster.data) / "uuid" / "1"


def marks(cluster: Cluster) -> dict[str, Mark | None]:
    return {row.name: mark(row.pid) if row.pid else None for row in cluster.processes()}


def put(cluster: Cluster) -> tuple[str, str]:
    """A record in a new topic, synced, and a ZooKeeper node; returns topic and path."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    TopicAdmin(cluster.deployment.kafka).create(name, 1, {"flush.messages": "1"})
    producer = Producer({"bootstrap.servers": cluster.deployment.kafka, "acks": "all"})
    producer.produce(name, b"kept")
    assert producer.flush(20) == 0
    keeper = KazooClient(cluster.deployment.zookeeper)
    keeper.start(20)
    try:
        keeper.create(f"/{name}", b"kept")
    finally:
        keeper.stop()
        keeper.close()
    return name, f"/{name}"


def held(cluster: Cluster, topic: str, path: str) -> tuple[bytes, bytes]:
    """What topic and node hold."""
    settings = {"bootstrap.servers": cluster.deployment.kafka, "group.id": "test"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        record = until(lambda: consumer.poll(0.5), WAIT_S, f"a record of {topic}")
    keeper = KazooClient(cluster.deployment.zookeeper)
    keeper.start(20)
    try:
        node: bytes = keeper.get(path)[0]
    finally:
        keeper.stop()
        keeper.close()
    return record.value() or b"", node


def healthy(cluster: Cluster, part: str) -> bool:
    return health.probes(cluster.deployment)[part]() is None


def test_the_first_up_alone_removes_state_logs_of_a_deleted_folder(up: Cluster) -> None:
    log = state_log(up)
    assert not log.exists()
    log.mkdir(parents=True)
    up.up(workers=0, coordinators=0)
    assert log.exists()


def test_a_second_up_changes_nothing(up: Cluster) -> None:
    before, settings = up.processes(), up.deployment
    assert up.up(workers=0, coordinators=0) == settings
    assert up.processes() == before
    assert {row.name for row in before} == {"keeper", *PARTS}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("supervisor", [False, True], ids=["process", "supervisor"])
@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_comes_back_with_what_it_held(
    part: str, supervisor: bool, up: Cluster
) -> None:
    topic, path = put(up)
    before = marks(up)
    old = before[part]
    assert old is not None
    up.kill(part, supervisor=supervisor)
    up.wait_alive(part, other_than=old.pid)
    until(lambda: healthy(up, part), WAIT_S, f"{part} to answer")
    after = marks(up)
    assert [name for name in before if after[name] != before[name]] == [part]
    assert held(up, topic, path) == (b"kept", b"kept")


def test_a_killed_keeper_comes_back_and_keeps_the_same_processes(up: Cluster) -> None:
    before = marks(up)
    old = up.kill("keeper")
    up.wait_alive("keeper", other_than=old)
    assert {n: m for n, m in marks(up).items() if n != "keeper"} == {
        n: m for n, m in before.items() if n != "keeper"
    }
    redis = up.pid("redis")
    up.kill("redis", supervisor=True)
    up.wait_alive("redis", other_than=redis)
    until(lambda: healthy(up, "redis"), WAIT_S, "redis to answer")


def test_after_kill_9_of_everything_up_resumes_with_the_data(up: Cluster) -> None:
    topic, path = put(up)
    everything = [
        who
        for row in up.processes()
        for pid in (row.supervisor_pid, row.pid)
        if pid is not None and (who := mark(pid))
    ]
    assert len(everything) == 1 + 2 * len(PARTS)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none revives another meanwhile
        for who in everything:
            send(who, number)
    assert all(wait_gone(who, 20) for who in everything)
    settings = up.deployment
    assert up.up(workers=0, coordinators=0) == settings
    assert held(up, topic, path) == (b"kept", b"kept")


def test_down_stops_exactly_what_up_started_and_up_finds_the_data(up: Cluster) -> None:
    topic, path = put(up)
    before = {name: who for name, who in marks(up).items() if who is not None}
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        assert set(up.down()) == set(before)
        assert all(wait_gone(who, 20) for who in before.values())
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert up.down() == []
    up.up(workers=0, coordinators=0)
    assert held(up, topic, path) == (b"kept", b"kept")


def test_a_part_that_is_cut_off_is_away_and_comes_back_or_the_reason_is_reported(
    up: Cluster,
) -> None:
    """What this machine allows: with root and iptables the cut, otherwise the refusal."""
    topic, path = put(up)
    before = marks(up)
    try:
        with faults.partition(up.deployment, "zookeeper"):
            assert not healthy(up, "zookeeper")
            assert healthy(up, "kafka")
    except RefusedError as error:
        assert "perseid chaos pause zookeeper" in str(error)
    until(lambda: healthy(up, "zookeeper"), WAIT_S, "zookeeper to answer")
    assert marks(up) == before
    assert held(up, topic, path) == (b"kept", b"kept")


def test_a_paused_broker_resumes_where_it_was(up: Cluster) -> None:
    topic, path = put(up)
    before = marks(up)
    assert up.pause("kafka") == [up.pid("kafka")]
    try:
        assert not healthy(up, "kafka")
    finally:
        up.resume("kafka")
    until(lambda: healthy(up, "kafka"), WAIT_S, "kafka to answer")
    assert marks(up) == before
    assert held(up, topic, path) == (b"kept", b"kept")
