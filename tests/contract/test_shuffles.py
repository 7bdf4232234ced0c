"""Spark's shuffle files: deleted with the epoch that wrote them, and none that is still in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# Counts the files of a plan of two shuffles, one of them below a persisted frame: after each run
# of a clone, and after what was deleted; then those of a run that was aborted.
SCRIPT = """
import json
from pathlib import Path
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from perseid.testing.wait import until
from perseid.worker.spark import shuffles
from perseid.worker.spark.session import open_session

spark = open_session("local[2]", 2, "shuffles", Path("spark"))

def files():
    return len(list(Path("spark").rglob("shuffle_*.data")))

def down_to(count):
    until(lambda: files() == count, 30, f"{count} shuffle files to be left")

numbers = spark.range(0, 1000, 1, 2)
inner = numbers.repartition(2, numbers.id).persist()
frame = inner.selectExpr("id % 10 as k").repartition(2, "k").groupBy("k").count()
plan = frame._jdf.queryExecution().executedPlan()
outer, every = (shuffles.paths(plan, cached=c) for c in (False, True))
found = {"outer": len(outer), "every": len(every)}

def run():
    clone = plan.clone()
    rows = clone.executeCollectPublic()
    return clone, sum(rows[i].getLong(1) for i in range(len(rows)))

first, found["rows"] = run()
found["first"] = files()
shuffles.delete(spark, first, outer)
down_to(2)
second, found["rows again"] = run()
found["second"] = files()
shuffles.delete(spark, second, every)
down_to(0)
inner.unpersist(True)

# Aborted in its second stage, as a query's epoch is: its own tasks may still be ending.
slept = "reflect('java.lang.Thread', 'sleep', 60000L)"
slow = numbers.repartition(2, numbers.id).selectExpr(slept)._jdf.queryExecution().executedPlan()

def cut_off():
    spark.sparkContext.setJobGroup("slow", "slow", True)
    try:
        slow.executeCollectPublic()
    except Py4JJavaError as error:
        found["ended by"] = "cancelled" if "cancelled" in str(error.java_exception) else str(error)

running = InheritableThread(cut_off)
running.start()
down_to(2)
spark.sparkContext.cancelJobGroup("slow")
running.join()
shuffles.delete(spark, slow, shuffles.paths(slow, cached=False))
down_to(0)
print("\\n" + json.dumps(found))
spark.stop()
"""


@pytest.mark.drawn(group="spark")
def test_a_runs_shuffle_files_go_and_the_plan_runs_again(
    in_spark: Callable[[str, str], Any],
) -> None:
    found = in_spark(SCRIPT, "")
    rows = {"rows": 1_000, "rows again": 1_000}
    # Two map tasks each; the persisted frame is computed once, for both runs.
    files = {"first": 4, "second": 4}
    assert found == {**rows, **files, "outer": 1, "every": 2, "ended by": "cancelled"}
