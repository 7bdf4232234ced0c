"""The same job on a Spark standalone master: executors of one core, kept in place by the anchor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from perseid.embedded import Cluster
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until


@pytest.fixture
def standalone(cluster: Cluster, tmp_path: Path) -> Iterator[RunningCluster]:
    """A cluster of its own; the warm one is told to rest, for there are only two cores."""
    names = [p.name for p in cluster.processes() if p.kind in {"worker", "coordinator"}]
    for name in names:
        cluster.pause(name)
    mine = Cluster(tmp_path / "standalone", tied=True)
    try:
        mine.up(workers=1, coordinators=1, master="standalone")
        yield RunningCluster(mine)
    finally:
        mine.down(purge=True)
        for name in names:
            cluster.resume(name)


def executors(running: RunningCluster) -> list[psutil.Process]:
    """The JVMs that Spark's standalone worker has started."""
    return running.below("spark-worker", "CoarseGrainedExecutorBackend")


@pytest.mark.soak  # a second cluster on two cores takes minutes: not part of the normal run
@pytest.mark.timeout(400)
def test_a_killed_executor_loses_and_doubles_nothing(
    standalone: RunningCluster, tmp_path: Path
) -> None:
    running = standalone
    running.topic("lines")
    running.do("jobs", "apply", str(example(tmp_path / "job", "wordcount", {})))
    running.produce("lines", lines(2000, 1))
    running.wait_caught_up("wordcount", 180)
    before = until(lambda: executors(running), 60, "executors")
    assert len(before) == 2
    before[0].kill()
    for seed in range(5):
        running.produce("lines", lines(1000, 10 + seed))
    running.wait_caught_up("wordcount", 180)
    verdict = verify_wordcount(running.kafka, "lines", "word-counts")
    assert verdict.ok, verdict
