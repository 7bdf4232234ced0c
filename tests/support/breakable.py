"""An embedded cluster whose links and disks a test breaks, one at a time or by a schedule.

Kafka and ZooKeeper belong to the test alone, each with a proxy and a disk of its own; state logs
have a third disk. Links are cut, carry only one direction, or flap; disks are filled.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from perseid.embedded import Cluster
from perseid.embedded.paths import state_root
from perseid.embedded.prepare import Outside
from perseid.errors import PerseidError
from perseid.testing.running import RunningCluster
from support.broker import ProxiedKafka
from support.disks import Disk
from support.proxy import Proxy
from support.zookeeper import ZooKeeperServer

MEGABYTES = {"kafka": 900, "zookeeper": 200, "state": 200}


class BreakableCluster:
    """A context manager; needs root for the disks."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder / "data", tied=True)
        places = {
            "kafka": folder / "kafka",
            "zookeeper": folder / "zookeeper",
            "state": state_root(self.cluster.data),
        }
        self.disks = {name: Disk(places[name], size) for name, size in MEGABYTES.items()}
        self._folder = folder
        self._opened = ExitStack()

    def __enter__(self) -> BreakableCluster:
        with ExitStack() as opened:
            for disk in self.disks.values():
                opened.enter_context(disk)
            self.kafka = ProxiedKafka(self._folder / "kafka")
            opened.enter_context(self.kafka.proxy)
            opened.enter_context(self.kafka)
            self.zookeeper = opened.enter_context(ZooKeeperServer(self._folder / "zookeeper"))
            proxy = opened.enter_context(Proxy(self.zookeeper.port))
            self.links = {"kafka": self.kafka.proxy, "zookeeper": proxy}
            opened.callback(self.cluster.down)
            hosts = f"127.0.0.1:{proxy.port}"
            self.cluster.up(outside=Outside(kafka=self.kafka.bootstrap, zookeeper=hosts))
            self.running = RunningCluster(self.cluster)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @contextmanager
    def cut(self, part: str) -> Iterator[None]:
        """Ends connections to `kafka` or `zookeeper`, and closes new ones at once."""
        self.links[part].cut()
        try:
            yield
        finally:
            self.links[part].mend()

    @contextmanager
    def half_open(self, part: str, lost: str) -> Iterator[None]:
        """Keeps connections, but drops one direction: "requests", "answers" or "both"."""
        link = self.links[part]
        link.requests_pass, link.answers_pass = lost == "answers", lost == "requests"
        try:
            yield
        finally:
            link.mend()

    def owner(self, job: str) -> str:
        """Returns the worker that runs the job, or the first one if no worker does."""
        owner = str(self.running.job(job).get("owner") or "")
        return owner.rpartition("-")[0] or "w1"

    def kill(self, name: str) -> None:
        """Sends SIGKILL; ignores a process that is being restarted at this moment."""
        with suppress(PerseidError):
            self.cluster.kill(name)

    def kill_task(self, job: str) -> None:
        """Sends SIGKILL to one Python process of the job's owner, if there is one."""
        with suppress(PerseidError, psutil.NoSuchProcess):
            for process in self.running.below(self.owner(job), "perseid.worker.spark.daemon")[-1:]:
                process.send_signal(signal.SIGKILL)
