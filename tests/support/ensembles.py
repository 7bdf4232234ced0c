"""Kafka and ZooKeeper as in production: three members each, of which one or two are lost.

Kafka: three nodes that are broker and controller, replication factor 3 and `min.insync.replicas=2`
everywhere, no unclean election. ZooKeeper: a quorum of three, which serves while two are alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, Self, TypeVar

from perseid.testing.server import Server, free_port
from perseid.testing.wait import until
from support.broker import KafkaServer
from support.zookeeper import ZooKeeperServer

SIZE = 3
MEMBER = TypeVar("MEMBER", bound=Server)


class Ensemble(Generic[MEMBER]):
    """Members that need each other to answer; a context manager that kills and starts members."""

    members: Sequence[MEMBER]

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for member in self.members:
                opened.callback(member.kill)
                member.launch()
            for member in self.members:
                member.await_answers()
            opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()


class EnsembleBroker(KafkaServer):
    """One of three: broker and controller with a vote."""

    start_timeout_s = 120.0  # three JVMs on two cores

    def __init__(self, folder: Path, node: int) -> None:
        super().__init__(folder)
        self.node = node
        self.voters = ""

    def settings(self) -> str:
        own = {
            "node.id": self.node,
            "controller.quorum.voters": self.voters,
            "default.replication.factor": SIZE,
            "min.insync.replicas": 2,
            "unclean.leader.election.enable": "false",
            "offsets.topic.replication.factor": SIZE,
            "transaction.state.log.replication.factor": SIZE,
            "transaction.state.log.min.isr": 2,
            # A dead follower leaves the in-sync replicas after this time.
            "replica.lag.time.max.ms": 5000,
        }
        return "".join(f"{name}={value}\n" for name, value in own.items())


class KafkaEnsemble(Ensemble[EnsembleBroker]):
    """Three brokers."""

    def __init__(self, folder: Path) -> None:
        self.members = [EnsembleBroker(folder / f"kafka-{n}", n) for n in range(1, SIZE + 1)]
        voters = ",".join(f"{b.node}@127.0.0.1:{b.ports['controller']}" for b in self.members)
        for broker in self.members:
            broker.voters = voters

    def __enter__(self) -> Self:
        for broker in self.members:
            broker.prepare()
        return super().__enter__()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.members)

    def await_in_sync(self, timeout_s: float = 120.0) -> None:
        """Waits until every partition has all its replicas in sync, as in a rolling restart."""
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap})

        def whole() -> bool:
            topics = client.list_topics(timeout=10).topics.values()
            partitions = [p for t in topics for p in t.partitions.values()]
            return all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in partitions)

        until(whole, timeout_s, "all replicas of all partitions to be in sync")


class EnsembleZooKeeper(ZooKeeperServer):
    """One of three. Its own port serves the clients."""

    start_timeout_s = 60.0

    def __init__(self, folder: Path, node: int, others: str) -> None:
        self._others = others
        super().__init__(folder)
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "myid").write_text(f"{node}\n")

    def settings(self) -> str:
        return f"{super().settings()}initLimit=20\nsyncLimit=10\n{self._others}"

    def command(self) -> list[str]:
        # The same program starts a single server or a quorum member.
        command = super().command()
        return [part.replace("ZooKeeperServerMain", "quorum.QuorumPeerMain") for part in command]


class ZooKeeperEnsemble(Ensemble[EnsembleZooKeeper]):
    """Three servers."""

    def __init__(self, folder: Path) -> None:
        others = "".join(
            f"server.{n}=127.0.0.1:{free_port()}:{free_port()}\n" for n in range(1, SIZE + 1)
        )
        self.members = [
            EnsembleZooKeeper(folder / f"zookeeper-{n}", n, others) for n in range(1, SIZE + 1)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(member.hosts for member in self.members)
