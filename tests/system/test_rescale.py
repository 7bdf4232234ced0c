"""1 -> 3 -> 2 partitions under input, with `kill -9` of a worker and of the leader in each step."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perseid.records import crashpoints
from perseid.records.crashpoints import KillTarget
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until

JOB = "sized"
LINES = 2000
# From, to, where somebody dies by himself in that step, and what is killed besides.
STEPS: list[tuple[int, int, str, KillTarget, str]] = [
    (1, 3, "restore.during", "driver", "leader"),
    (3, 2, "coordinator.put-plan", "self", "worker"),
]


def job_of(folder: Path, partitions: int) -> str:
    return str(example(folder, "wordcount", {
        "name: wordcount": f"name: {JOB}", "topic: lines": f"topic: {JOB}-lines",
        "topic: word-counts": f"topic: {JOB}-counts, partitions: 3",
        "parallelism: 4": f"parallelism: {partitions}", 'period: "30s"': 'period: "3s"',
    }))  # fmt: skip


def kill(running: RunningCluster, what: str, job: dict[str, Any]) -> None:
    if what == "worker":
        running.cluster.kill(job["owner"].rpartition("-")[0])
        return
    leading = [c["pid"] for c in running.do("status")["coordinator"] if c["leader"]]
    assert leading, "no leader"
    os.kill(leading[0], signal.SIGKILL)


@pytest.mark.drawn(group="changes")
def test_one_three_two_partitions_and_nothing_is_lost_or_doubled(
    running: RunningCluster, crash_points: Path, tmp_path: Path
) -> None:
    running.topic(f"{JOB}-lines", 2)
    running.do("jobs", "apply", job_of(tmp_path / "1", 1))
    running.produce(f"{JOB}-lines", lines(LINES, 1))
    running.wait_caught_up(JOB)
    for before, after, point, target, killed in STEPS:
        two_workers(running)
        assert running.job(JOB)["parallelism"] == before
        crashpoints.arm(crash_points, point, target)
        running.produce(f"{JOB}-lines", lines(LINES, after))
        applied = running.do("jobs", "apply", job_of(tmp_path / str(after), after))
        assert f"{before} -> {after}" in str(applied)
        running.wait_job(
            JOB, lambda j, n=after: j["state"] == "rescaling" or j["parallelism"] == n,  # type: ignore[misc]
            "rescaling",
        )  # fmt: skip
        until(
            lambda at=point: not crashpoints.armed(crash_points, at), 300.0,  # type: ignore[misc]
            f"a death at {point}",
        )  # fmt: skip
        found = running.wait_job(
            JOB, lambda j, n=after: j["parallelism"] == n and bool(j["owner"]),  # type: ignore[misc]
            f"of {after} partitions",
        )  # fmt: skip
        kill(running, killed, found)
        running.produce(f"{JOB}-lines", lines(LINES, 10 + after))
        done = running.wait_caught_up(JOB)
        assert done["parallelism"] == after
        assert any(f"counts {before} -> {after}" in event for event in done["events"])
        verdict = verify_wordcount(running.kafka, f"{JOB}-lines", f"{JOB}-counts")
        assert verdict.ok, verdict
        rows = running.do("state", JOB, "counts", "--limit", "1000")["state"]["total"]["rows"]
        assert {row["partition"] for row in rows} == set(range(after))
    running.do("jobs", "remove", JOB, "--purge")


def two_workers(running: RunningCluster) -> None:
    """Waits for a worker to take over, so that a kill hits a job that can resume at once."""
    from perseid.registry import Registry

    with closing(Registry.connect(running.cluster.deployment)) as registry:
        until(lambda: len(registry.workers()) >= 2, 300.0, "two live workers")
