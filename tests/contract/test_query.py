"""A streaming query that is stopped in mid-batch, as a fragment's is when its job is removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# A task's Python process hangs; the query is stopped. Processor time of the threads of Spark's
# tasks from then on until the process is gone, which Spark kills after its own waits.
SCRIPT = """
import json, os, time
from pathlib import Path
import psutil
from perseid.testing.wait import until
from perseid.worker.spark import query, token_source
from perseid.worker.spark.session import open_session

spark = open_session("local[2]", 2, "query", Path("spark"))
here = Path.cwd()

def hang(blobs):
    (here / "pid.new").write_text(str(os.getpid()))
    os.replace(here / "pid.new", here / "pid")
    time.sleep(600)  # hangs: the process ends by being killed, long before
    yield from blobs

def batch(_rows):
    spark.range(0, 1, 1, 1).mapInArrow(hang, "id long").collect()

def tasks_ns():
    threads = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    found = [threads.getThreadInfo(number) for number in threads.getAllThreadIds()]
    names = {info.getThreadId(): info.getThreadName() for info in found if info is not None}
    tasks = [number for number, name in names.items() if name.startswith("Executor task")]
    return {number: threads.getThreadCpuTime(number) for number in tasks}

running = query.start(spark, "query", here / "query", token_source.ticking(), batch)
until((here / "pid").exists, 60, "the task to run")
pid = int((here / "pid").read_text())
before, began_s = tasks_ns(), time.monotonic()
running.stop()
until(lambda: not psutil.pid_exists(pid), 30, "Spark to give the task up")
waited_s, after = time.monotonic() - began_s, tasks_ns()
spent_s = sum(after[number] - before[number] for number in before) / 1e9
print("\\n" + json.dumps({"waited_s": waited_s, "spent_s": spent_s, "tasks": len(before)}))
spark.stop()
"""


@pytest.mark.drawn(group="spark")
def test_tasks_of_a_stopped_query_wait_for_their_processes_without_a_core(
    in_spark: Callable[[str, str], Any],
) -> None:
    found = in_spark(SCRIPT, "")
    assert found["tasks"] >= 1
    assert found["waited_s"] > 1.0, f"nothing waited, so nothing is shown: {found}"
    assert found["spent_s"] < 0.1 * found["waited_s"], found


# A shuffled plan, made in the main thread, is cloned and runs in another one, which no query has.
OUTSIDE = """
import json, threading
from pathlib import Path
from perseid.worker.spark import query
from perseid.worker.spark.session import open_session

spark = open_session("local[2]", 2, "outside", Path("spark")).newSession()
frame = spark.range(0, 1000, 1, 4).repartition(2)
plan, found = frame._jdf.queryExecution().executedPlan(), {}

def run():
    with query.cancellable(spark, "group"):
        found["rows"] = len(plan.clone().executeCollectPublic())
        found["group"] = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    found["after"] = spark.sparkContext.getLocalProperty("spark.jobGroup.id")

thread = threading.Thread(target=run)
thread.start()
thread.join()
print("\\n" + json.dumps(found))
spark.stop()
"""


@pytest.mark.drawn(group="spark")
def test_an_epoch_runs_in_a_thread_that_no_query_has(in_spark: Callable[[str, str], Any]) -> None:
    assert in_spark(OUTSIDE, "") == {"rows": 1000, "group": "group", "after": None}
