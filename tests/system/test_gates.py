"""A revision that is applied with a gate: it runs once its results are the same, else never."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import Ran
from perseid.testing.verify.read import read_topic
from perseid.topics import codec, names
from support.ranks import CODE, RankedJob

LOAD = 300  # rows
EPOCHS = 3
GATE_S = 600.0  # a restore, a Spark plan and the epochs, on two slow cores


@pytest.mark.drawn(group="replicas")
def test_other_results_are_held_back_and_the_same_ones_pass(
    running: RunningCluster, tmp_path: Path
) -> None:
    job = RankedJob(running, tmp_path, "gated")
    running.wait_workers(2)
    job.apply(spread=1)
    job.feed(LOAD)

    def gated(code: str) -> Ran:
        (tmp_path / "ranks.py").write_text(code)
        return running.run(
            "jobs", "apply", str(tmp_path), "--gate", "audit", "--epochs", str(EPOCHS),
            "--timeout", str(GATE_S), timeout_s=2 * GATE_S,
        )  # fmt: skip

    with job.fed():
        before = running.wait_job(job.name, lambda j: j["state"] == "running", "running")
        held = gated(CODE.replace("VERSION = 1", "VERSION = 2"))
        assert held.code == 1, held
        (shown,) = held.document["jobs"]
        assert shown["state"] == "refused", held
        assert re.search(
            r"operator second, partition \d+, epoch \d+, gated-out\[\d\]: the new "
            r"revision has made .* records",
            shown["error"]["text"],
        ), held
        after = running.job(job.name)
        assert (after["revision"], after["owner"]) == (before["revision"], before["owner"])
        assert (after["gate"]["state"], after["state"]) == ("refused", "running")
        passed = gated(CODE + "# the same results\n")
        assert passed.code == 0, passed
        assert passed.document["jobs"][0]["state"] == "running", passed
        events = running.job(job.name)["events"]
        assert f"gate: {EPOCHS} of {EPOCHS} epochs equal, the job switches" in events
    job.feed(LOAD)
    assert {row["version"] for row in job.judge()} == {1}
    now = running.job(job.name)
    assert (now["revision"], now["gate"]) == (now["wanted_revision"], None)
    running.do("jobs", "remove", job.name, "--purge")


def output_epochs(running: RunningCluster, job: str) -> list[int]:
    """The epochs that wrote to the sink, as the ledger has them."""
    ledger = names.ledger(job)
    records = (
        codec.decode_ledger((ledger, r.partition), r.offset, r.value or b"")
        for r in read_topic(running.kafka, ledger)
    )
    return sorted({record.epoch for record in records if record.outputs})


@pytest.mark.drawn(group="replicas")
def test_approved_differences_pass_and_no_others(running: RunningCluster, tmp_path: Path) -> None:
    folder, report = tmp_path / "job", tmp_path / "audit"
    folder.mkdir()
    job = RankedJob(running, folder, "approved")
    running.wait_workers(2)
    job.apply(spread=1)
    running.keep_tokens(job.name)
    job.feed(LOAD)
    job.judge()
    (folder / "ranks.py").write_text(CODE.replace("VERSION = 1", "VERSION = 2"))
    ran = running.run(
        "replay", job.name, "--rev", str(folder), "--epochs", "1:", "--report", str(report),
        timeout_s=GATE_S,
    )  # fmt: skip
    assert (ran.code, ran.document["verdict"]) == (1, "diverged"), ran
    found = json.loads((report / "audit.json").read_text())
    (cause,) = found["causes"]
    assert (cause["operator"], cause["kind"], cause["fields"]) == ("second", "value", ["version"])
    other = report / "other.json"
    other.write_text(json.dumps({**found, "causes": [{**cause, "fields": ["of_b"]}]}))

    def applied(file: Path) -> Ran:
        return running.run(
            "jobs", "apply", str(folder), "--gate", "audit", "--epochs", str(EPOCHS),
            "--approve", str(file), "--timeout", str(GATE_S), timeout_s=2 * GATE_S,
        )  # fmt: skip

    with job.fed():
        running.wait_job(job.name, lambda j: j["state"] == "running", "running")
        began = output_epochs(running, job.name)[-1]
        held = applied(other)
        assert held.code == 1, held
        assert re.search(
            r"operator second, partition \d+, epoch \d+, approved-out\[\d\]: another value of "
            r"version, which is not approved",
            held.document["jobs"][0]["error"]["text"],
        ), held
        before = running.job(job.name)["revision"]
        passed = applied(report / "audit.json")
        assert passed.code == 0, passed
        assert "operator second: another value of version" in passed.stderr
        after = running.job(job.name)
        assert after["revision"] != before
        assert f"gate: {EPOCHS} of {EPOCHS} epochs equal, the job switches" in after["events"]
        epochs = [e for e in output_epochs(running, job.name) if e > began]
    gaps = [b - a - 1 for a, b in pairwise(epochs)]
    assert max(gaps) <= 1, f"the switch is one epoch without input: {epochs}"
    job.feed(LOAD)
    versions = defaultdict[str, list[int]](list)
    for row in job.judge():  # none is lost or doubled over the switch
        versions[row["b"]].append(row["version"])
    assert all(found == sorted(found) and found[-1] == 2 for found in versions.values())
    running.do("jobs", "remove", job.name, "--purge")
