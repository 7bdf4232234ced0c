"""A revision that is applied with a gate: it runs once its results are the same, else never."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import Ran
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
