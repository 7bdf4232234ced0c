"""What Spark does for an epoch: where the work runs, from Spark's own event log."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from benches.spark_events import EVENT_LOG, events
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.wait import until

REPORT_BYTES_MAX = 20_000  # of one task's result: its report and Spark's own accounting


def test_work_runs_in_executor_tasks_and_the_driver_holds_no_rows(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.wait_workers(2)  # one that a test before has killed warms up, and shuffles for that
    shuffles = shuffle_files(running)
    running.topic("ev-lines")
    names = {"topic: lines": "topic: ev-lines", "topic: word-counts": "topic: ev-counts",
             "name: wordcount": "name: ev"}  # fmt: skip
    running.produce("ev-lines", lines(60_000, 1, words=20_000))  # waits, so the first epoch is wide
    running.do("jobs", "apply", str(example(tmp_path / "ev", "wordcount", names)))
    running.wait_caught_up("ev")
    running.produce("ev-lines", lines(100, 2, words=1_000))
    running.wait_caught_up("ev")
    until(
        lambda: not shuffle_files(running) - shuffles,
        30, "the shuffle files of the job's epochs to be deleted",
    )  # fmt: skip
    query = f"fragment-ev-{running.job('ev')['generation']}"
    running.do("jobs", "remove", "ev", "--purge")

    def stages() -> dict[tuple[Path, int], list[dict[str, Any]]]:
        """Finished tasks of the job's query by stage, and only of its epochs."""
        log = list(events(Path(os.environ[EVENT_LOG])))
        mine = {
            (path, stage)
            for path, event in log
            if event["Event"] == "SparkListenerJobStart"
            and query in json.dumps(event.get("Properties", {}))
            for stage in event["Stage IDs"]
        }
        by_stage: dict[tuple[Path, int], list[dict[str, Any]]] = defaultdict(list)
        for path, event in log:
            if event["Event"] == "SparkListenerTaskEnd" and (path, event["Stage ID"]) in mine:
                by_stage[path, event["Stage ID"]].append(event)
        return by_stage

    found = until(lambda: stages() or None, 60, "the event log to have the job's stages")
    shuffling = [s for s in found.values() if written(s) > 0]
    stateful = [s for s in found.values() if read(s) > 0]
    assert shuffling, "source tasks write what they read into the shuffle"
    assert stateful, "stateful tasks read it from there"
    # The last epoch may have been cut off by the removal; no stage has other than its partitions.
    tasks = [{t["Task Info"]["Index"] for t in s} for s in stateful]
    assert max(map(len, tasks)) == 2, f"a stage of as many tasks as run at once: {tasks}"
    assert all(found <= {0, 1} for found in tasks), tasks
    single_task = [s for s in found.values() if not written(s) and not read(s)]
    assert single_task, "a small epoch shuffles nothing"
    assert all(len(s) == 1 for s in single_task), "and is one task"
    results = [t["Task Metrics"]["Result Size"] for s in stateful for t in s]
    assert max(results) < REPORT_BYTES_MAX, "a report, not data"
    largest = max(stateful, key=read)
    assert read(largest) > 5 * sum(t["Task Metrics"]["Result Size"] for t in largest)


def shuffle_files(running: RunningCluster) -> set[Path]:
    """Of all workers on this host, and of other jobs that they had."""
    return set(Path(running.cluster.deployment.state).glob("queries/*/spark/**/shuffle_*"))


def written(stage: list[dict[str, Any]]) -> int:
    return sum(t["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"] for t in stage)


def read(stage: list[dict[str, Any]]) -> int:
    metrics = [t["Task Metrics"]["Shuffle Read Metrics"] for t in stage]
    return sum(m["Local Bytes Read"] + m["Remote Bytes Read"] for m in metrics)
