"""A worker that joins gets its share of a spread job, and every row comes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perseid.records import Plan
from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from support.ranks import RankedJob

WORKERS = 3
LOAD = 1500  # rows: five epochs at least


@pytest.fixture
def two(running: RunningCluster) -> Iterator[RunningCluster]:
    """The warm cluster, which has two workers again at the end."""
    running.wait_workers(2)
    yield running
    running.cluster.up(workers=2, coordinators=2)


def plan_of(running: RunningCluster, job: str) -> Plan:
    with closing(Registry.connect(running.cluster.deployment)) as registry:
        found = registry.plan(job)
    assert found is not None
    return found


def test_a_worker_that_joins_gets_its_share_and_every_row_comes_once(
    two: RunningCluster, tmp_path: Path
) -> None:
    job = RankedJob(two, tmp_path, "shares")
    job.apply(spread=WORKERS)
    job.feed(LOAD)
    two.wait_caught_up(job.name)
    two.cluster.up(workers=WORKERS, coordinators=2)
    two.wait_workers(WORKERS)
    before = plan_of(two, job.name)
    assert len({own.owner for own in before.assignments}) == WORKERS - 1
    job.feed(LOAD)
    shown = two.do("rebalance", job.name)
    assert shown["state"] == "moved"
    (moved,) = shown["moves"]
    after = plan_of(two, job.name)
    assert set(Counter(own.owner for own in after.assignments).values()) == {1}
    assert [own.fragment for own in after.assignments if own not in before.assignments] == [
        moved["fragment"]
    ]
    assert two.job(job.name)["failures"] == 0
    job.feed(LOAD)
    job.judge()
    two.do("jobs", "remove", job.name, "--purge")
