"""`kill -9` at every instrumented point of an epoch, a checkpoint, a restore and a leader's writes.

One job counts words under a steady input. For each point: arm it, feed until some process has died
there, wait until all input is committed, and let the independent verifier read both topics whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.records import crashpoints
from perseid.records.crashpoints import Victim
from perseid.testing.running import RunningCluster, example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until

JOB = "killed"
LINES = 400  # of one feeding: an epoch or two
REACH_S = 90.0
ATTEMPTS = 4

POINTS: list[tuple[str, Victim]] = [
    ("source.after-read", "self"),
    ("log.before-rename", "self"),
    ("log.after-rename", "self"),
    ("sink.after-produce", "self"),
    ("sink.before-commit", "self"),
    ("sink.after-commit", "self"),
    ("checkpoint.during-upload", "self"),
    ("coordinator.append-token", "self"),
    ("coordinator.write-manifest", "self"),
    ("coordinator.put-pointers", "self"),
    ("log.before-rename", "driver"),
    ("log.after-rename", "driver"),
    ("sink.after-produce", "driver"),
    ("sink.before-commit", "driver"),
    ("sink.after-commit", "driver"),
    ("epoch.before-told", "driver"),
    ("checkpoint.during-upload", "driver"),
]
# Reached only while somebody takes over: a kill of the owning driver comes first.
TAKEOVER_POINTS: list[tuple[str, Victim]] = [
    ("restore.during", "self"),
    ("restore.during", "driver"),
    ("replay.during", "driver"),
    ("coordinator.put-plan", "self"),
    ("coordinator.put-status", "self"),
]


@pytest.fixture(scope="module")
def job(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running.topic("killed-lines")
    folder = example(
        tmp_path_factory.mktemp("killed"),
        "wordcount",
        {
            "name: wordcount": f"name: {JOB}",
            "topic: lines": "topic: killed-lines",
            "topic: word-counts": "topic: killed-counts",
            'period: "30s"': 'period: "3s"',
        },
    )
    running.do("jobs", "apply", str(folder))
    yield JOB
    running.do("jobs", "remove", JOB)


def feed_until_reached(running: RunningCluster, folder: Path, point: str, seed: int) -> None:
    fed = 0

    def reached() -> bool:
        nonlocal fed
        if not crashpoints.armed(folder, point):
            return True
        running.produce("killed-lines", lines(LINES, seed * 1000 + fed))
        fed += 1
        return False

    until(reached, REACH_S, f"some process to die at {point}")


def judge(running: RunningCluster) -> None:
    running.produce("killed-lines", lines(LINES, 7))
    running.wait_caught_up(JOB)
    verdict = verify_wordcount(running.kafka, "killed-lines", "killed-counts")
    assert verdict.ok, verdict
    assert verdict.output_records > 0


@pytest.mark.parametrize(("point", "victim"), POINTS)
def test_nothing_is_lost_or_doubled_by_a_kill(
    running: RunningCluster, crash_points: Path, job: str, point: str, victim: Victim
) -> None:
    two_workers(running)
    crashpoints.arm(crash_points, point, victim)
    feed_until_reached(running, crash_points, point, POINTS.index((point, victim)))
    judge(running)


@pytest.mark.parametrize(("point", "victim"), TAKEOVER_POINTS)
def test_nothing_is_lost_or_doubled_by_a_kill_during_a_takeover(
    running: RunningCluster, crash_points: Path, job: str, point: str, victim: Victim
) -> None:
    crashpoints.arm(crash_points, point, victim)
    for attempt in range(ATTEMPTS):  # a kill between two epochs leaves nothing to replay
        two_workers(running)
        owner = running.job(job)["owner"]
        running.produce("killed-lines", lines(20 * LINES, attempt))
        running.cluster.kill(owner.rpartition("-")[0])
        running.wait_job(job, lambda j, gone=owner: j["owner"] != gone, "taken over")  # type: ignore[misc]
        running.wait_caught_up(job)
        if not crashpoints.armed(crash_points, point):
            break
    assert not crashpoints.armed(crash_points, point), f"nobody died at {point}"
    judge(running)


def two_workers(running: RunningCluster) -> None:
    """Waits for a worker to take over, so that a kill hits a job that can go on at once."""
    from perseid.registry import Registry

    registry = Registry.connect(running.cluster.deployment)
    try:
        until(lambda: len(registry.workers()) >= 2, 120.0, "two live workers")
    finally:
        registry.close()
