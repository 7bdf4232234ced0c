"""Where the milliseconds of an epoch go: perseid's own measurements and Spark's event log.

The shipped word count with its words split in Python, one worker, a full topic, on a cluster of its
own below `--data`. Run it alone; prints medians over the epochs after the first ten.

    python tests/benchmarks/epoch_budget.py --data /dev/shm/budget --lines 6000000

An epoch is one Spark job with two stages (three numbers of a stage are those of its longest task):
    driver       the worker's epoch less the Spark job: clone of the plan, collecting, reports
    scheduling   the job less its stages, and each stage less its longest task
    JVM          the task less what runs in Python: deserialisation, threads, pipes, Arrow
    shuffle      of that: fetching and writing the blobs
    Python       `process` and `commit` are those of the partition that took longest; the rest is
                 the other partitions that the process has
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.bench_cluster import Place, place
from benches.sides import Perseid, running
from benches.spark_events import EVENT_LOG, events
from perseid.cli.scenario.bed import Names
from perseid.engine.order import decode_order
from perseid.testing.verify.read import read_topic
from perseid.topics import codec
from perseid.topics import names as topic_names
from perseid.topics.records import EpochDone
from perseid.worker.spark.stages import EPOCH_PROPERTY

FIRST = 10  # epochs: compilers and caches are cold
PYTHON = "time to execute Python code"


@dataclass
class Stage:
    """One stage of an epoch's job, in ms. `task`: the longest one; the others are of it."""

    wall: float = 0.0
    task: float = 0.0
    python: float = 0.0
    shuffle: float = 0.0


@dataclass
class Epoch:
    """A Spark job that ran an epoch."""

    stages: list[int]
    began: float
    ended: float = 0.0
    by_stage: dict[int, Stage] = field(default_factory=lambda: defaultdict(Stage))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=6_000_000)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perseid-events-") as folder:
        os.environ[EVENT_LOG] = folder
        with place(options.data) as where:
            done = played(where, options.lines, options.seconds)
        found = epochs(Path(folder))
    show(done, found)


def played(where: Place, lines: int, seconds: float) -> dict[int, EpochDone]:
    """What the worker reported of each epoch."""
    names = Names.fresh("budget")
    where.make_topics(names.source, names.sink)
    where.fill(names.source, lines)
    progress = topic_names.progress(names.job)
    with running(Perseid(where.cluster, workers=1), names):
        time.sleep(seconds)  # so long it is measured
        reported = [codec.decode(r.value or b"") for r in read_topic(where.kafka, progress)]
    return {record.epoch: record for record in reported if isinstance(record, EpochDone)}


def epochs(folder: Path) -> dict[int, Epoch]:
    """Of the event log: the jobs that carry an epoch's token."""
    found: dict[int, Epoch] = {}
    jobs: dict[int, Epoch] = {}
    stages: dict[int, Epoch] = {}
    for _, event in events(folder):  # only one driver has epochs to run
        match event["Event"]:
            case "SparkListenerJobStart" if EPOCH_PROPERTY in event.get("Properties", {}):
                order = decode_order(event["Properties"][EPOCH_PROPERTY])
                epoch = Epoch(event["Stage IDs"], event["Submission Time"])
                found[order.token.epoch] = jobs[event["Job ID"]] = epoch
                stages |= dict.fromkeys(epoch.stages, epoch)
            case "SparkListenerJobEnd" if event["Job ID"] in jobs:
                jobs[event["Job ID"]].ended = event["Completion Time"]
            case "SparkListenerStageCompleted" if event["Stage Info"]["Stage ID"] in stages:
                info = event["Stage Info"]
                stage = stages[info["Stage ID"]].by_stage[info["Stage ID"]]
                stage.wall = info["Completion Time"] - info["Submission Time"]
            case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                take_task(stages[event["Stage ID"]].by_stage[event["Stage ID"]], event)
    return {number: epoch for number, epoch in found.items() if epoch.ended}


def take_task(stage: Stage, event: dict[str, Any]) -> None:
    info, metrics = event["Task Info"], event["Task Metrics"]
    wall = info["Finish Time"] - info["Launch Time"]
    if wall <= stage.task:
        return
    updates = {a.get("Name"): a.get("Update") for a in info["Accumulables"]}
    written_ns = metrics["Shuffle Write Metrics"]["Shuffle Write Time"]
    stage.task, stage.python = wall, float(updates[PYTHON])
    stage.shuffle = metrics["Shuffle Read Metrics"]["Fetch Wait Time"] + written_ns / 1e6


def parts(reported: EpochDone, epoch: Epoch) -> dict[str, float]:
    """One epoch's milliseconds by what they went to; `shuffle` is a part of the JVM's."""
    stages = [epoch.by_stage[number] for number in sorted(epoch.by_stage)]
    job = epoch.ended - epoch.began
    walls, tasks = sum(s.wall for s in stages), sum(s.task for s in stages)
    commit, process = reported.stage_ms.get("commit", 0), reported.stage_ms.get("process", 0)
    return {
        "epoch": reported.duration_ms,
        "driver": reported.duration_ms - job,
        "scheduling": job - tasks,
        "of it between stages": job - walls,
        "JVM": tasks - sum(s.python for s in stages),
        "of it shuffle": sum(s.shuffle for s in stages),
        "Python, source stage": stages[0].python,
        "Python, state and sink stage": sum(s.python for s in stages[1:]),
        "of it process, one partition": process,
        "of it commit, one partition": commit,
    }


def show(reported: dict[int, EpochDone], found: dict[int, Epoch]) -> None:
    wide = [n for n in sorted(reported.keys() & found.keys()) if len(found[n].by_stage) > 1][FIRST:]
    if not wide:
        raise SystemExit("no epoch of two stages after the first ten: give it more --lines")
    rows = [parts(reported[number], found[number]) for number in wide]
    records = statistics.median(reported[number].rows_in for number in wide)
    whole = statistics.median(row["epoch"] for row in rows)
    print(f"{len(wide)} epochs, median {records:,.0f} records")
    for name in rows[0]:
        median = statistics.median(row[name] for row in rows)
        per_record_us = median * 1000 / records
        print(f"{name:30s} {median:8.1f} ms {median / whole:6.1%} {per_record_us:7.3f} us a record")


if __name__ == "__main__":
    main()
