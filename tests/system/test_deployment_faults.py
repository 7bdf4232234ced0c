"""What people see of a job that fails again and again, and of input that is held back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from perseid.records.entries import FAILING_MIN
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.transactions import PartitionBatch

JOB = """\
name: {name}
parallelism: 2
sources:
  lines: {{topic: {name}-lines, format: text}}
operators:
  ask: {{input: lines, use: "ask:Ask"}}
sinks:
  out: {{input: ask, topic: {name}-out, format: json}}
"""
AWAY = """\
from perseid.errors import RetryableError
from perseid.jobs import Operator

class Ask(Operator):
    def process(self, batch, out):
        raise RetryableError("the service of prices does not answer")
"""
BACK = """\
from perseid.jobs import Operator

class Ask(Operator):
    def process(self, batch, out):
        out.emit(batch.select(["value"]))
"""
REPORTED_S = 120.0


def written(folder: Path, name: str, code: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(JOB.format(name=name))
    (folder / "ask.py").write_text(code)
    return str(folder)


@pytest.mark.drawn(group="field")
def test_a_job_that_fails_again_and_again_is_reported_and_its_correction_runs(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("prices-lines")
    running.do("jobs", "apply", written(tmp_path / "away", "prices", AWAY))
    running.produce("prices-lines", [b"a", b"b"])
    shown = running.wait_job("prices", lambda j: j["failing"] is not None, "shown as failing")
    failing = shown["failing"]
    assert failing["failures"] >= FAILING_MIN
    assert "the service of prices does not answer" in failing["text"]
    faults = running.run("status").document["faults"]
    assert any(f.startswith("job prices fails again and again (") for f in faults)
    details = running.do("jobs", "show", "prices")
    assert "the service of prices does not answer" in details["failing"]["text"]
    findings = running.run("doctor").document["findings"]
    (found,) = [one for one in findings if one["check"] == "job prices"]
    assert found["level"] == "problem"
    assert "fails again and again" in found["found"]

    running.do("jobs", "apply", written(tmp_path / "back", "prices", BACK), "--no-wait")
    running.wait_caught_up("prices")
    assert sorted(row["value"] for row in running.rows("prices-out")) == ["a", "b"]
    running.do("jobs", "remove", "prices", "--purge")


@pytest.mark.drawn(group="field")
def test_input_after_an_open_transaction_is_lag_and_reported(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("loaded-lines", partitions=1)
    running.do("jobs", "apply", written(tmp_path / "job", "loaded", BACK))
    running.produce("loaded-lines", [b"a"])
    running.wait_caught_up("loaded")
    with closing(KafkaTransactions(running.kafka, timeout_ms=120_000)) as kafka:
        loader = kafka.acquire("loader-of-lines", 1_000_000, 20)
        loader.begin()
        loader.send(PartitionBatch("loaded-lines", 0, [None], [b"undecided"]))
        loader.flush(20)
        running.produce("loaded-lines", [b"b"] * 10)
        shown = running.wait_job("loaded", lambda j: bool(j["stalled_input"]), "held back")
        (stalled,) = shown["stalled_input"]
        assert (stalled["topic"], stalled["partition"], stalled["records"]) == (
            "loaded-lines", 0, 11
        )  # fmt: skip
        assert (shown["lag"], shown["backlog"]) == (11, 0)
        faults = running.run("status").document["faults"]
        assert any("loaded-lines[0] is held back at offset" in fault for fault in faults)
        findings = running.run("doctor").document["findings"]
        (found,) = [one for one in findings if one["check"] == "transactions"]
        assert found["level"] in ("warning", "problem")
        loader.commit(20)
    running.wait_caught_up("loaded")
    until(lambda: len(running.rows("loaded-out")) == 12, REPORTED_S, "all records in the sink")
    running.do("jobs", "remove", "loaded", "--purge")
