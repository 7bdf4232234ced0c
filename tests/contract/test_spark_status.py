"""What Spark keeps of jobs that have ended, for a UI that no worker has: a few, not a thousand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

BOUNDS = {"jobs": 50, "stages": 50, "tasks": 500, "executions": 10}

# 100 jobs of two stages and twelve tasks each.
SCRIPT = """
import json, sys
from pathlib import Path
from perseid.testing.wait import until
from perseid.worker.spark.session import open_session

bounds = json.load(sys.stdin)
spark = open_session("local[2]", 2, "status", Path("spark"))
KINDS = {
    "jobs": "org.apache.spark.status.JobDataWrapper",
    "stages": "org.apache.spark.status.StageDataWrapper",
    "tasks": "org.apache.spark.status.TaskDataWrapper",
    "executions": "org.apache.spark.sql.execution.ui.SQLExecutionUIData",
}
store = spark._jsc.sc().statusStore().store()
classes = {kind: spark._jvm.java.lang.Class.forName(name) for kind, name in KINDS.items()}

def kept():
    return {kind: store.count(wrapper) for kind, wrapper in classes.items()}

frame = spark.range(0, 10, 1, 4)
frame = frame.repartition(8, frame.id)
for _ in range(100):
    frame.collect()
spark._jsc.sc().listenerBus().waitUntilEmpty(30_000)
# What is too much goes in a thread of its own.
until(lambda: all(count <= bounds[k] for k, count in kept().items()), 30, f"at most {bounds}")
print("\\n" + json.dumps(kept()))
spark.stop()
"""


@pytest.mark.drawn(group="spark")
def test_little_is_kept_of_jobs_that_have_ended(in_spark: Callable[[str, str], Any]) -> None:
    kept = in_spark(SCRIPT, json.dumps(BOUNDS))
    assert all(0 < kept[kind] <= bound for kind, bound in BOUNDS.items()), kept
