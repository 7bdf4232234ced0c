"""Event time on a whole cluster: late rows by policy, and a worker killed in between.

The token log has which watermark each epoch had, so what must have been late is computed here from
the tokens and the source topic alone.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic

JOB = """\
name: {job}
sources:
  in:
    topic: {job}-in
    format: json
    columns: {{key: string, ms: int64, i: int64}}
    eventTime: {{column: ms, watermark: "1s", late: {late}}}
operators:
  marked: {{input: in, key: key, use: "marked:Marked"}}
sinks:
  out: {{input: marked, topic: {job}-out, format: json, key: key}}
faultTolerance: {{checkpoint: {{period: "3s"}}}}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

class Marked(Operator):
    n = Table(key=pa.string(), rows=pa.int64())

    def process(self, batch, out):
        self.n.add(batch["key"], rows=1)
        mark = pa.array([self.watermark] * batch.num_rows, pa.int64())
        out.emit(batch.select(["key", "i"]).append_column("mark", mark))
"""
PARTITIONS = 2


def expected(running: RunningCluster, job: str, late: str) -> tuple[Counter[Any], list[bytes]]:
    """(key, i, watermark) of every row that is kept, and the values that are late."""
    records = {(r.partition, r.offset): r.value or b"" for r in
               read_topic(running.kafka, f"{job}-in")}  # fmt: skip
    rows: Counter[Any] = Counter()
    late_values: list[bytes] = []
    for token in running.tokens(job):
        for found in (r for split in token.splits for r in split):
            for offset in range(found.start, found.end):
                row = json.loads(records[found.partition, offset])
                mark = token.watermark_ms
                if mark is not None and row["ms"] < mark:
                    late_values.append(records[found.partition, offset])
                    if late != "update":
                        continue
                rows[row["key"], row["i"], mark] += 1
    return rows, late_values


def feed(running: RunningCluster, topic: str, number: int, chance: random.Random) -> None:
    """Ten seconds of event time; a fifth of the rows is up to a minute late."""
    rows = []
    for i in range(200):
        ms = 1_000_000 + 10_000 * number + 50 * i - chance.choice([0, 0, 0, 0, 60_000])
        rows.append({"key": f"k{chance.randrange(9)}", "ms": ms, "i": 200 * number + i})
    running.produce(topic, [json.dumps(row).encode() for row in rows])


@pytest.mark.drawn
@pytest.mark.parametrize("late", ["dlq", "update"])
def test_late_rows_are_those_of_the_tokens(
    running: RunningCluster, tmp_path: Path, late: str
) -> None:
    job = f"timed-{late}"
    running.topic(f"{job}-in", PARTITIONS)
    (tmp_path / "job.yaml").write_text(JOB.format(job=job, late=late))
    (tmp_path / "marked.py").write_text(CODE)
    running.do("jobs", "apply", str(tmp_path))
    running.keep_tokens(job)
    chance = random.Random(5)
    for number in range(8):
        feed(running, f"{job}-in", number, chance)
        if number == 4 and late == "dlq":
            running.kill_owner(job)
        running.wait_caught_up(job)

    wanted, late_values = expected(running, job, late)
    found = Counter((row["key"], row["i"], row["mark"]) for row in running.rows(f"{job}-out"))
    assert found == wanted
    assert late_values, "no row was late, so nothing was shown"
    letters = read_topic(running.kafka, f"perseid.{job}.dlq") if late == "dlq" else []
    assert Counter(r.value for r in letters) == Counter(late_values if late == "dlq" else [])
    marks = [t.watermark_ms for t in running.tokens(job)]
    known = [m for m in marks if m is not None]
    assert known == sorted(known) and known == marks[len(marks) - len(known) :]

    # Each partition's largest event time is reported, also of the epoch that a killed worker ended.
    largest = [max(ms) for ms in _times(running, f"{job}-in")]
    least = min(largest) - 1000  # more once a partition has been quiet for half a minute
    running.wait_job(job, lambda j: (j["watermark_ms"] or 0) >= least, f"at watermark {least}")
    assert running.job(job)["late_records"] == len(late_values)
    running.do("jobs", "remove", job, "--purge")


def _times(running: RunningCluster, topic: str) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for record in read_topic(running.kafka, topic):
        found[record.partition].append(json.loads(record.value or b"")["ms"])
    return found
