"""A feedback edge on a whole cluster: each row goes round three times, and a worker is killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.wait import until

JOB = """\
name: rounds
parallelism: 2
sources:
  in: {topic: rounds-in, format: json, columns: {key: string, i: int64}}
operators:
  joined:
    inputs: {new: in, back: {from: counted, feedback: {delay: 1}}}
    key: key
    use: "m:Joined"
  counted: {input: joined, key: i, use: "m:Counted", parallelism: 3}
sinks:
  out: {input: counted, topic: rounds-out, format: json, key: i}
faultTolerance: {checkpoint: {period: "3s"}}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

COLUMNS = pa.schema([("key", pa.string()), ("i", pa.int64()), ("round", pa.int64()),
                     ("made", pa.int64()), ("heard", pa.int64())])

class Joined(Operator):
    output = COLUMNS

    def process(self, batch, out):
        new, back = batch["new"], batch["back"]
        none = pa.array([0] * new.num_rows, pa.int64())
        out.emit(pa.table([new["key"], new["i"], none, none, none], schema=COLUMNS))
        rows = [r for r in back.to_pylist() if r["round"] < 3]
        for row in rows:
            row.update(round=row["round"] + 1, heard=self.epoch)
        out.emit(pa.Table.from_pylist(rows, schema=COLUMNS))

class Counted(Operator):
    output = COLUMNS
    n = Table(key=pa.int64(), n=pa.int64())

    def process(self, batch, out):
        self.n.add(batch["i"], n=1)
        made = pa.array([self.epoch] * batch.num_rows, pa.int64())
        out.emit(batch.set_column(3, "made", made))
"""
ROUNDS, ROWS, BATCHES = 3, 300, 5


@pytest.mark.drawn(group="feedback edges")
def test_each_row_goes_round_once_an_epoch_through_deaths(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("rounds-in", 2)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(CODE)
    running.do("jobs", "apply", str(tmp_path))
    for number in range(BATCHES):
        rows = [{"key": f"k{i % 7}", "i": number * ROWS + i} for i in range(ROWS)]
        running.produce("rounds-in", [json.dumps(row).encode() for row in rows])
        if number == 2:  # at once: rows of this and of the epochs before are on the edge
            running.kill_owner("rounds")
        running.wait_caught_up("rounds")

    def output() -> list[dict[str, int]]:
        return running.rows("rounds-out")

    # An idle job has an epoch every ten seconds.
    until(lambda: len(output()) >= BATCHES * ROWS * (ROUNDS + 1), 90.0, "all rounds of all rows")
    running.wait_caught_up("rounds")
    found = output()
    assert Counter((row["i"], row["round"]) for row in found) == Counter(
        (i, turn) for i in range(BATCHES * ROWS) for turn in range(ROUNDS + 1)
    )
    made = {(row["i"], row["round"]): row["made"] for row in found}
    for row in found:
        if row["round"]:
            assert row["heard"] == row["made"] == made[row["i"], row["round"] - 1] + 1
    running.do("jobs", "remove", "rounds", "--purge")
