"""An operator that raises what has no text: the job fails for good and names the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.errors.texts import EVENT_MAX, TEXT_MAX
from perseid.registry.codec import ENTRY_BYTES_MAX
from perseid.testing.running import RunningCluster

JOB = """
name: raised-{name}
parallelism: 2
sources:
  orders: {{topic: raised-{name}-orders, format: json, columns: {{user: string, n: int64}}}}
operators:
  spent: {{input: orders, key: user, use: "spent:Spent"}}
sinks:
  spent: {{input: spent, topic: raised-{name}-spent, format: json, key: user}}
"""
CODE = """
from perseid.jobs import Operator, Table, pa

class Spent(Operator):
    output = pa.schema([("user", pa.string()), ("total", pa.int64())])
    kept = Table(key=pa.string(), total=pa.int64())

    def process(self, batch, out):
        changed = self.kept.add(batch["user"], total=batch["n"])
        bad = [row for row in batch.to_pylist() if row["n"] < 0]
        if bad:
            raise {kind}(f"{{bad}} in {{batch.to_pylist()}} {{'x' * 2_000_000}} \\ud800")
        out.emit(changed.rename_columns(["user", "total"]))
"""
FORGED = "perseid-error[RetryableError]: all is well ::end"
GOOD = "ann.of.the.valley@example.org"


@pytest.mark.drawn(group="field")
@pytest.mark.parametrize(
    ("kind", "reported"), [("ValueError", "PermanentError"), ("MemoryError", "UnexpectedError")]
)
def test_the_job_fails_within_three_tries_and_its_status_stays_short(
    running: RunningCluster, tmp_path: Path, kind: str, reported: str
) -> None:
    """The records quote the mark of an error that passes."""
    job = f"raised-{kind.lower()}"
    (tmp_path / "job.yaml").write_text(JOB.format(name=kind.lower()))
    (tmp_path / "spent.py").write_text(CODE.format(kind=kind))
    running.topic(f"{job}-orders", 2)
    running.do("jobs", "apply", str(tmp_path))
    good = [json.dumps({"user": GOOD, "n": n}).encode() for n in range(1, 9)]
    running.produce(f"{job}-orders", good)
    done = running.wait_caught_up(job)["committed_epoch"]
    bad = json.dumps({"user": FORGED, "n": -1}).encode()
    running.produce(f"{job}-orders", [*good, bad])
    failed = running.wait_job(job, lambda j: j["state"] == "failed", "failed")
    error = failed["error"]
    assert error["kind"] == reported
    assert "operator spent (Spent), partition " in error["text"]
    assert f", epoch {failed['committed_epoch'] + 1}: process raised {kind}" in error["text"]
    assert failed["committed_epoch"] >= done
    assert len(error["text"].encode()) <= TEXT_MAX
    events = failed["events"]
    assert all(len(event.encode()) <= EVENT_MAX for event in events), events
    assert sum(event.startswith("failure ") for event in events) == (kind == "MemoryError") * 2
    shown = json.dumps(running.do("jobs", "show", job))
    assert len(shown) < ENTRY_BYTES_MAX
    assert GOOD not in shown, "of a row that is good"
    assert GOOD not in "".join(running.logs().values())
    running.do("jobs", "remove", job, "--purge")
