"""Audits of a job on a whole cluster: what they find is compared with what was done to the job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from support.audited import LOAD, audit, found, generation, stop, written
from support.ranks import RankedJob


@pytest.mark.drawn
@pytest.mark.parametrize("spread", [1, 2])
def test_a_past_with_deaths_is_equal_and_what_a_revision_changes_is_found(
    running: RunningCluster, tmp_path: Path, spread: int
) -> None:
    job = RankedJob(running, tmp_path, f"audited{spread}")
    running.wait_workers(2)
    job.apply(spread=spread)
    running.keep_tokens(job.name)
    job.feed(LOAD)
    running.kill(running.worker_of(job.name) if spread == 1 else "w1")
    job.feed(LOAD)
    job.judge()
    rows = len(job.rows)
    checkpoint = running.do("checkpoint", job.name, "--timeout", "100")["checkpoint"]["epoch"]
    job.feed(LOAD)
    job.judge()

    live = spread > 1
    if not live:
        stop(running, job.name)
    before = written(running, job.name, live=live), generation(running, job.name)
    equal = found(audit(running, job, "--epochs", "1:"), 0)
    assert (equal["verdict"], equal["base"], equal["first_epoch"]) == ("equal", "scratch", 1)
    assert equal["records_in"] == len(job.rows)
    (compared,) = equal["compared"]
    assert (compared["topic"], compared["by"]) == (f"{job.name}-out", "ledger")
    assert compared["records"] == len(job.rows)
    assert spread > 1 or compared["in_topic"] == compared["windows"]
    assert equal["causes"] == []
    assert equal["recorded"] == equal["environment"]
    assert (written(running, job.name, live=live), generation(running, job.name)) == before

    later = found(audit(running, job, "--epochs", f"{checkpoint + 1}:"), 0)
    assert later["verdict"] == "equal"
    assert later["base"] == f"checkpoint {checkpoint}"
    assert later["records_in"] == later["compared"][0]["records"] == LOAD

    other = tmp_path / "other"
    shutil.copytree(tmp_path, other, ignore=shutil.ignore_patterns("other"))
    code = (other / "ranks.py").read_text()
    changed = code.replace(
        "[VERSION] * rows.num_rows", f"[VERSION + (i >= {rows}) for i in batch['i'].to_pylist()]"
    )
    assert changed != code
    (other / "ranks.py").write_text(changed)
    diverged = found(audit(running, job, "--epochs", "1:", "--rev", str(other)), 1)
    assert diverged["verdict"] == "diverged"
    (cause,) = diverged["causes"]
    assert (cause["operator"], cause["kind"], cause["fields"]) == ("second", "value", ["version"])
    begun = min(t.epoch for t in running.tokens(job.name) if t.epoch > checkpoint and t.records)
    assert (cause["first_epoch"], cause["records"]) == (begun, LOAD)
    assert "operator second" in diverged["reasons"][0]
    assert {sample["operator"] for sample in cause["samples"]} == {"second"}
    running.do("jobs", "remove", job.name, "--purge")


@pytest.mark.drawn(group="audits")
def test_code_that_reads_a_clock_is_found_before_a_revision_is_blamed(
    running: RunningCluster, tmp_path: Path
) -> None:
    job = RankedJob(running, tmp_path, "clocked")
    job.apply(spread=1)
    running.keep_tokens(job.name)
    job.feed(LOAD)
    running.wait_caught_up(job.name)
    before = running.tokens(job.name)[-1].revision
    first = running.tokens(job.name)[-1].epoch
    code = tmp_path / "ranks.py"
    code.write_text(code.read_text().replace("VERSION = 1", "import time\n")
                    .replace("[VERSION]", "[time.time_ns()]"))  # fmt: skip
    running.apply(tmp_path)
    job.feed(LOAD)
    running.wait_caught_up(job.name, above_epoch=first)
    refused = audit(running, job, "--epochs", f"{first}:")
    assert refused.code == 3, refused.stderr
    assert "revisions" in refused.stderr
    begun = min(t.epoch for t in running.tokens(job.name) if t.revision != before)
    clocked = found(audit(running, job, "--epochs", f"{begun}:"), 1)
    assert clocked["verdict"] == "not_deterministic"
    assert "operator second" in clocked["reasons"][0]
    running.do("jobs", "remove", job.name, "--purge")


@pytest.mark.drawn(group="audits")
def test_a_foreign_record_and_another_environment_are_found(
    running: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, out = RankedJob(running, tmp_path, "guarded"), "guarded-out"
    job.apply(spread=1)
    running.keep_tokens(job.name)
    job.feed(LOAD)
    running.wait_caught_up(job.name)
    last = running.tokens(job.name)[-1]
    code = tmp_path / "ranks.py"  # what Arrow uses of the processor comes out
    level = "len(__import__('pyarrow').runtime_info().simd_level)"
    code.write_text(code.read_text().replace("VERSION = 1", f"VERSION = {level}"))
    running.apply(tmp_path)
    job.feed(LOAD)
    running.wait_caught_up(job.name, above_epoch=last.epoch)
    running.produce(out, [b"foreign"], [b"b1"])
    (foreign,) = (r for r in read_topic(running.kafka, out) if r.value == b"foreign")
    job.feed(LOAD)
    running.wait_caught_up(job.name)
    stop(running, job.name)
    begun = min(t.epoch for t in running.tokens(job.name) if t.revision != last.revision)

    changed = found(audit(running, job, "--epochs", f"{begun}:"), 1)
    assert changed["verdict"] == "sink_changed"
    place = f"{out}[{foreign.partition}]"
    text = f"{place}: 1 record that no ledger has, at offset {foreign.offset}"
    assert text in changed["reasons"][0]
    assert changed["causes"] == []
    (compared,) = changed["compared"]
    assert compared["in_topic"] == compared["windows"] > 0
    assert changed["recorded"] == changed["environment"]
    assert {"python", "numpy", "cpu", "arrow_simd"} < changed["recorded"].keys()

    mixed = found(audit(running, job, "--epochs", f"{begun}:", "--mixed", out), 0)
    assert mixed["verdict"] == "equal"
    assert "1 of other writers" in mixed["compared"][0]["why"]

    monkeypatch.setenv("ARROW_USER_SIMD_LEVEL", "NONE")
    differs = found(audit(running, job, "--epochs", f"{begun}:", "--no-sink"), 1)
    assert differs["verdict"] == "environment_differs"
    assert "arrow_simd" in differs["reasons"][0]
    assert "recorded, none here" in differs["reasons"][0]
    running.do("jobs", "remove", job.name, "--purge")
