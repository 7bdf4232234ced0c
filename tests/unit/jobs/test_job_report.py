"""What `jobs list` and `jobs show` print of a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.coordinator.api import answers
from perseid.jobs.operations import report, verbs
from perseid.records import (
    Assignment,
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    JobStatus,
    Plan,
)
from perseid.registry import codec, paths
from support.applied_jobs import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_show_has_the_fragments_of_the_revision_that_runs(world: World) -> None:
    running = world.apply(world.write()).entry
    one = Plan.fused("job", running.uuid, 3, "w1-a", "r1", running.archive, 1, 0, 0)
    both = Assignment("0", (0, 1), "w1-a", 3, split=0), Assignment("1", (2,), "w2-a", 2, split=1)
    world.put(paths.plan("job"), codec.encode(replace(one, assignments=both)))
    world.apply(world.write(more=", partitions: 7"))
    shown, fault = verbs.show(world.cluster, "job", world.folder / "cache")
    assert fault is None
    assert [(f["name"], f["partitions"], f["owner"]) for f in shown["fragments"]] == [
        ("0", "dead-letters 0, o 0", "w1-a"), ("1", "o 1", "w2-a"),
    ]  # fmt: skip
    answers.JobDetails.model_validate({**shown, "spec_error": fault})
    assert [job["owner"] for job in verbs.every(world.registry)] == [None]
    world.plan(running.archive)
    shown, _ = verbs.show(world.cluster, "job", world.folder / "cache")
    assert (shown["owner"], shown["fragments"]) == ("w1", [])


def test_a_whole_job_that_is_listed_with_its_replica_has_the_primarys_owner() -> None:
    entry = JobEntry("shop", "u1", "r1", "a1", "running", 1, 0)
    plan = Plan.fused("shop", "u1", 7, "w1-a", "r1", "a1", 1, 0, 0)
    both = [
        {"name": "whole", "role": role, "state": "running", "partitions": "counts 0-3",
         "owner": owner, "generation": generation, "epoch": 4}
        for role, owner, generation in (("primary", "w1-a", 7), ("replica", "w2-a", 8))
    ]  # fmt: skip
    shown = report.details(entry, None, plan, None, None) | {"fragments": both}
    assert report.owners_text(shown) == "w1-a"
    text = report.as_text(shown)
    assert "  generation  0, owner w1-a" in text
    assert [line.split()[-2:] for line in text if line.startswith("  fragment ")] == [
        ["4,", "running"], ["4,", "running"],
    ]  # fmt: skip
    waiting = shown | {"owner": None}
    assert report.owners_text(waiting) is None
    assert "  generation  0, owner none" in report.as_text(waiting)


def test_the_plan_of_an_earlier_job_of_that_name_is_not_shown(world: World) -> None:
    entry = world.apply(world.write()).entry
    earlier = Plan.fused("job", "another-uuid", 3, "w1-a", "r1", entry.archive, 1, 0, 0)
    both = Assignment("0", (0, 1), "w1-a", 3, split=0), Assignment("1", (2,), "w2-a", 2, split=1)
    world.put(paths.plan("job"), codec.encode(replace(earlier, assignments=both)))
    shown, _ = verbs.show(world.cluster, "job", world.folder / "cache")
    assert (shown["owner"], shown["fragments"]) == (None, [])


def test_show_has_the_horizon_of_audits() -> None:
    entry = JobEntry("shop", "u1", "r1", "a1", "running", 1, 0)
    spec = {"audit": {"horizon_s": 7 * 86_400.0}}
    newest, older, oldest = (
        CheckpointPointer(epoch, 1, 1, "r1", epoch, "m", 0, 10, 1_790_000_000_000 + epoch)
        for epoch in (90, 60, 20)
    )
    found = CheckpointPointers("u1", (newest, older), (oldest,), {"r1": "a1"})
    shown = report.details(entry, None, None, found, spec)
    assert shown["audit"] == {
        "horizon_s": 7 * 86_400.0, "checkpoints": 3, "from_epoch": 20,
        "from_ms": 1_790_000_000_020,
    }  # fmt: skip
    answers.JobAudit.model_validate(shown["audit"])
    line = "  audit       horizon 7d, 3 checkpoints from epoch 20 (2026-09-21T14:13:20Z) on"
    assert line in report.as_text(shown)
    assert len([text for text in report.as_text(shown) if text.startswith("  checkpoint ")]) == 2
    begun = report.details(entry, None, None, CheckpointPointers("u0", (newest,)), spec)
    assert "  audit       horizon 7d, no checkpoint yet" in report.as_text(begun)
    without = report.details(entry, None, None, found, {"audit": {"horizon_s": None}})
    assert without["audit"] is None


def test_show_has_the_last_error_and_the_next_step(world: World) -> None:
    world.apply(world.write())
    world.answer("failed", error={"kind": "BadInputError", "text": "in[0] offset 5: no JSON"})
    status = world.registry.status("job")
    shown = report.details(world.entry(), status, None, CheckpointPointers("other"), None)
    assert shown["error"]["next"].startswith("mend the job")
    text = "\n".join(report.as_text(shown))
    assert "job: failed (wanted: running)" in text
    assert "BadInputError: in[0] offset 5: no JSON" in text
    assert "`perseid jobs apply`" in text


def test_a_status_of_an_earlier_life_counts_for_nothing(world: World) -> None:
    world.apply(world.write())
    old = JobStatus("another-uuid", "running", 7, 9, 0)
    assert report.summary(world.entry(), old, None)["state"] == "waiting"
    assert report.summary(world.entry(), old, None)["generation"] == 0


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({"first": 12, "second": 3_000}, "first 12, second 3000; at most 5000 bytes each"),
        ({}, "empty; at most 5000 bytes each"),
    ],
)
def test_show_has_what_buffers_hold(held: dict[str, int], text: str) -> None:
    entry = JobEntry("shop", "u1", "r1", "a1", "running", 1, 0)
    shown = report.details(entry, None, None, None, None)
    assert f"  buffers     {text}" in report.as_text(
        shown | {"buffers": {"bytes_max": 5000, "bytes": held}}
    )
    assert not any("buffers" in line for line in report.as_text(shown | {"buffers": None}))


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ({"late_records": 0, "watermark_ms": 1_700_000_000_000}, ""),
        ({"late_records": 1000, "watermark_ms": 4_102_444_795_000},
         "1000 records were late, the watermark is 2099-12-31T23:59:55Z"),
        ({"late_records": 1, "watermark_ms": 10**18}, "1 records were late, the watermark is "
         "1000000000000000000 ms"),
        ({"late_records": 2, "watermark_ms": None}, "2 records were late"),
    ],
)  # fmt: skip
def test_late_records_are_reported_with_the_watermark(
    shown: dict[str, int | None], message: str
) -> None:
    assert report.event_time_text(shown) == message
