"""Which reports of tasks the driver gets over Spark's accumulator: those of successful attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# Two stages of two tasks each. The first attempt of one task of each stage fails after it has
# reported.
SCRIPT = """
import json
from functools import partial
from pathlib import Path
import pyarrow as pa
from pyspark import TaskContext
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.worker.spark.epochs import NO_EPOCH, Merging
from perseid.worker.spark.session import open_session

spark = open_session("local[2,3]", 2, "reports", Path("spark"))
reports = spark.sparkContext.accumulator(TaskReport(NO_EPOCH), Merging())

def work(first, reports, batches):
    rows = [n for batch in batches for n in batch.column(0).to_pylist()]
    task = TaskContext.get()
    gid, attempt = first + task.partitionId(), task.attemptNumber()
    mine = {gid: PartitionReport(sent=attempt)}
    if (gid % 2, attempt) == (0, 0):
        reports.add(TaskReport(8, partitions={**mine, 9: PartitionReport()}))
        raise RuntimeError("killed after its report")
    reports.add(TaskReport(7, partitions=mine))
    yield pa.RecordBatch.from_arrays([pa.array(rows, pa.int64())], names=["id"])

frame = spark.range(0, 100, 1, 2).mapInArrow(partial(work, 0, reports), "id long")
frame = frame.repartition(2, "id").mapInArrow(partial(work, 2, reports), "id long")
plan = frame._jdf.queryExecution().executedPlan()
rows = plan.clone().executeCollectPublic()
found = reports.value
sent = {gid: report.sent for gid, report in sorted(found.partitions.items())}
print("\\n" + json.dumps({"rows": len(rows), "epoch": found.epoch, "attempts": sent}))
spark.stop()
"""


@pytest.mark.drawn(group="spark")
def test_a_failed_attempt_does_not_report_and_its_repetition_counts_once(
    in_spark: Callable[[str, str], Any],
) -> None:
    found = in_spark(SCRIPT, "")
    attempts = {"0": 1, "1": 0, "2": 1, "3": 0}
    assert found == {"rows": 100, "epoch": 7, "attempts": attempts}
