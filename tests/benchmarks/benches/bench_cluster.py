"""A cluster for one benchmark alone: Kafka, ZooKeeper and Redis up, engines only while measured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perseid.cli import output
from perseid.cli.scenario.bed import TOPIC_CONFIG
from perseid.embedded import Cluster, locate, processes
from perseid.embedded.paths import state_root
from perseid.errors import PermanentError, RetryableError
from perseid.topics.admin import TopicAdmin

PARTITIONS = 4
ASKED_S = 60.0  # of the broker: with gigabytes to delete it took more than the usual 15 s
_STATE = "PERSEID_STATE"  # wins over the deployment's settings, in every process


@dataclass(frozen=True, slots=True)
class Place:
    """Where a benchmark runs."""

    cluster: Cluster
    data: Path
    kafka: str
    topics: TopicAdmin

    def make_topics(self, *topics: str) -> None:
        for topic in topics:
            self.topics.create(topic, PARTITIONS, TOPIC_CONFIG)

    def records(self, topic: str) -> int | None:
        """End offsets of its partitions together; None while the broker does not answer."""
        try:
            return sum(self.topics.ends([(topic, p) for p in range(PARTITIONS)]).values())
        except RetryableError as error:
            output.note(f"perseid: {error}; asking again")
            return None

    def fill(self, topic: str, records: int, *flags: str) -> None:
        """Writes `records` lines as fast as it goes."""
        done = subprocess.run(
            [
                sys.executable, "-m", "perseid.testing.generator", "--kafka", self.kafka,
                "--topic", topic, "--records", str(records), *flags,
            ],
            stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise PermanentError(f"the generator ended with exit code {done.returncode}")


@contextmanager
def state_logs_in(folder: Path | None) -> Iterator[None]:
    """Clusters that begin here have their state logs in a folder of their own below `folder`.

    It goes again, but stays when something failed, which is printed. None: where they are anyway.
    """
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    own = tempfile.mkdtemp(prefix="perseid-state-", dir=folder.resolve())
    before = os.environ.get(_STATE)
    os.environ[_STATE] = own
    try:
        yield
        shutil.rmtree(own, ignore_errors=True)
    except BaseException:
        output.note(f"perseid: the state logs of what failed are below {own}")
        raise
    finally:
        os.environ.pop(_STATE)
        if before is not None:
            os.environ[_STATE] = before


@contextmanager
def place(data: Path | None) -> Iterator[Place]:
    """A cluster without engines; below `data` when it is given, else in a folder that goes again.

    What it has written goes too, unless `data` had something in it before: each run leaves
    gigabytes, and on a tmpfs they are the machine's memory. A cluster of the user's own is left
    alone, but it costs time on the same cores, so it is named.
    """
    if data is None and any(p.alive for p in processes(locate(None))):
        output.note("perseid: a cluster runs on this machine too; `perseid down` for true figures")
    ours = data is None or not data.exists() or not any(data.iterdir())
    folder = data or Path(tempfile.mkdtemp(prefix="perseid-bench-"))
    cluster = Cluster(folder, note=output.note)
    try:
        deployment = cluster.up(workers=0, coordinators=0)
        admin = TopicAdmin(deployment.kafka, timeout_s=ASKED_S)
        yield Place(cluster, cluster.data, deployment.kafka, admin)
    except BaseException:
        cluster.down()
        state = os.environ.get(_STATE) or state_root(cluster.data)
        output.note(f"perseid: logs of what failed are below {folder}, its state below {state}")
        raise
    cluster.down(purge=ours)
    if data is None:
        shutil.rmtree(folder, ignore_errors=True)
