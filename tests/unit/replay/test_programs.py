"""Whose files an audit runs: those that the entry, the plan or the horizon names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.records import CheckpointPointers, JobEntry, Plan
from perseid.replay.programs import Program, recorded

ENTRY = JobEntry("shop", "u1", "r3", "a3", "running", 3, 0)
PLAN = Plan.fused("shop", "u1", 7, "w1-a", "r2", "a2", 1, 0, 0)
POINTERS = CheckpointPointers("u1", archives={"r1": "a1", "r2": "a2"})


@pytest.mark.parametrize("revision", ["r1", "r2", "r3"])
def test_each_revision_of_the_horizon_has_its_files(revision: str) -> None:
    found = recorded(revision, ENTRY, PLAN, POINTERS)
    assert found == Program(revision, f"a{revision[1:]}")


def test_what_is_older_or_of_an_earlier_job_of_that_name_is_not_known() -> None:
    assert recorded("r0", ENTRY, PLAN, POINTERS) is None
    assert recorded("r1", ENTRY, PLAN) is None
    other = replace(ENTRY, uuid="u2")
    assert recorded("r1", other, PLAN, POINTERS) is None
    assert recorded("r2", other, PLAN, POINTERS) is None
