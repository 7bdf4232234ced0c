"""What users see of the fragments of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.jobs.model.layout import Layout, Task
from perseid.jobs.operations import fragments, report
from perseid.records import Assignment, JobEntry, Plan

LAYOUT = Layout(1, tuple(
    Task(gid, name, partition, 1, stateful=True, ledger=gid)
    for gid, (name, partition) in enumerate(
        [("counts", 0), ("counts", 1), ("counts", 2), ("totals", 0), ("totals", 1)]
    )
))  # fmt: skip
FUSED = Plan.fused("shop", "u1", 7, "w1-a", "r1", "a1", 1, 0, 0)
SPREAD = replace(FUSED, assignments=(
    Assignment("0", (0, 1, 3), "w1-a", 6, split=0), Assignment("1", (2, 4), None, 7, split=1),
))  # fmt: skip
ENTRY = JobEntry("shop", "u1", "r1", "a1", "running", 1, 0)


def test_a_job_that_is_one_fragment_has_an_owner_and_no_list() -> None:
    assert FUSED.owner == "w1-a"
    assert fragments.listed(FUSED, LAYOUT, {"whole": 4}) == []
    assert fragments.listed(None) == []


def test_a_job_that_is_one_fragment_is_listed_with_its_replica() -> None:
    plan = FUSED.with_replica("whole", "w2-b", 8)
    known = fragments.listed(plan, LAYOUT, {"whole": 4, "whole.replica": 3}, {"whole": "running"})
    assert [(o["role"], o["owner"], o["generation"], o["epoch"], o["state"]) for o in known] == [
        ("primary", "w1-a", 7, 4, "running"), ("replica", "w2-b", 8, 3, None),
    ]  # fmt: skip
    assert fragments.text(known[1]).startswith("whole (replica): counts 0-2, totals 0-1; worker w2")
    shown = report.details(ENTRY, None, plan, None, None)
    assert report.owners_text(shown) == "w1-a"
    assert "  generation  0, owner w1-a" in report.as_text(shown)


def test_each_fragment_is_listed_with_what_is_known() -> None:
    assert SPREAD.owner is None
    known = fragments.listed(SPREAD, LAYOUT, {"0": 4}, {"0": "running"})
    assert known == [
        {"name": "0", "role": "primary", "state": "running", "partitions": "counts 0-1, totals 0",
         "owner": "w1-a", "generation": 6, "epoch": 4},
        {"name": "1", "role": "primary", "state": None, "partitions": "counts 2, totals 1",
         "owner": None, "generation": 7, "epoch": None},
    ]  # fmt: skip
    assert [one["partitions"] for one in fragments.listed(SPREAD)] == [None, None]
    assert [*map(fragments.text, known)] == [
        "0: counts 0-1, totals 0; worker w1-a, generation 6, epoch 4, running",
        "1: counts 2, totals 1; worker none, generation 7",
    ]


@pytest.mark.parametrize(
    ("gids", "text"),
    [((0, 1, 2), "counts 0-2"), ((0, 2, 4), "counts 0 and 2, totals 1"), ((), "")],
)
def test_partitions_in_short(gids: tuple[int, ...], text: str) -> None:
    assert fragments.partitions_text(LAYOUT.part(gids).tasks) == text


def test_jobs_list_and_show_name_the_owner_or_each_fragments() -> None:
    one, several = (report.details(ENTRY, None, plan, None, None) for plan in (FUSED, SPREAD))
    assert (one["owner"], report.owners_text(one)) == ("w1-a", "w1-a")
    assert (several["owner"], report.owners_text(several)) == (None, "0: w1-a, 1: none")
    assert "  generation  0, owner w1-a" in report.as_text(one)
    shown = report.as_text(several)
    assert "  generation  0" in shown
    assert "  fragment    0: partitions unknown; worker w1-a, generation 6" in shown
    earlier = report.summary(replace(ENTRY, uuid="u2"), None, SPREAD)
    assert (earlier["owner"], earlier["fragments"]) == (None, [])
