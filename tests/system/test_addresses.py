"""Kafka and ZooKeeper come back under other addresses of their names, and a job resumes.

Coordinator and worker run with an /etc/hosts of their own, so every client that they have looks the
names up as it does at any user's. Mounting that needs root.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from perseid.embedded import Cluster
from perseid.embedded.prepare import Outside
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until
from support.addresses import HostsFile, Left, Movable, NamedKafka
from support.engines import Engine
from support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1200)]

JOB, SOURCE, SINK = "moved", "moved-lines", "moved-counts"
# Of a machine that is gone ZooKeeper's clients hear when two thirds of a session are over: that is
# tested with a session of some length in the contract ring.
LEFT: dict[str, Left] = {"kafka": "silent", "zookeeper": "refused"}
RESUMES_S = 300.0


class Moving:
    """The running job, and the servers that move."""

    def __init__(self, running: RunningCluster, parts: dict[str, Movable]) -> None:
        self.running, self.parts, self.seed = running, parts, 0

    def give(self) -> None:
        self.seed += 1
        self.running.produce(SOURCE, lines(500, self.seed))

    def judge(self) -> None:
        """Not by the job's lag: until its broker answers the leader knows no newer end."""
        kafka = self.running.kafka
        until(lambda: verify_wordcount(kafka, SOURCE, SINK).ok, RESUMES_S, "all counts to be right")
        self.running.wait_caught_up(JOB)


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moving]:
    folder = tmp_path_factory.mktemp("moved")
    names = HostsFile(folder / "hosts")
    with ExitStack() as opened:
        kafka = NamedKafka(folder / "kafka")
        keeper = opened.enter_context(ZooKeeperServer(folder / "zookeeper"))
        ports = {"kafka": kafka.named, "zookeeper": keeper.port}
        parts = {
            part: opened.enter_context(Movable(names, f"{part}.perseid.test", port))
            for part, port in ports.items()
        }
        kafka.advertised = parts["kafka"].at
        opened.enter_context(kafka)
        cluster = Cluster(folder / "data", tied=True)
        opened.callback(cluster.down)
        cluster.up(
            workers=0, coordinators=0,
            outside=Outside(kafka=kafka.bootstrap, zookeeper=keeper.hosts),
        )  # fmt: skip
        running = RunningCluster(cluster)
        by_name = {
            "PERSEID_KAFKA": parts["kafka"].at,
            "PERSEID_ZOOKEEPER": parts["zookeeper"].at,
        }
        for kind, name in (("coordinator", "c1"), ("worker", "w1")):
            opened.enter_context(Engine(cluster, kind, name, by_name, names.before))
        running.wait_workers(1)
        running.topic(SOURCE, 2)
        running.apply(example(folder / "job", "wordcount", {
            "name: wordcount": f"name: {JOB}", "topic: lines": f"topic: {SOURCE}",
            "topic: word-counts": f"topic: {SINK}", 'period: "30s"': 'period: "3s"',
        }))  # fmt: skip
        yield Moving(running, parts)


def test_a_job_resumes_after_every_move(moving: Moving) -> None:
    moving.give()
    moving.judge()
    owner = moving.running.job(JOB)["owner"]
    assert all(part.old.taken for part in moving.parts.values())
    for part, left in LEFT.items():
        moving.parts[part].move(left)
        moving.give()
        moving.judge()
    assert moving.running.job(JOB)["owner"] == owner, "the worker's session was lost"
