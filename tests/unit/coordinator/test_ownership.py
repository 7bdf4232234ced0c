"""Doneness is known of each fragment, and the job has done what all of its partitions have done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator.job.ownership import Condition, Ownership
from perseid.coordinator.lifecycle import Phase
from perseid.records import WHOLE, Assignment, Plan

ONE = Plan.fused("shop", "u1", 3, "w1-a", "r1", "a1", 1, 5, 50)
TWO = replace(
    ONE,
    assignments=(
        Assignment("a", (0,), "w1-a", 3, from_epoch=5),
        Assignment("b", (1,), None, 3, from_epoch=7),
        Assignment("c", (1,), "w2-a", 3, "replica", 0),
    ),
)


def test_a_job_without_a_plan_counts_as_one_fragment() -> None:
    begun = Ownership().begun(4)
    assert (Ownership().done, begun.done, begun.owner) == (0, 4, None)
    assert begun.planned(replace(ONE, base_epoch=4)).done == 4
    assert begun.progressed(WHOLE, 6).progressed(WHOLE, 5).done == 6


def test_a_job_has_done_what_its_slowest_fragment_has() -> None:
    job = Ownership().planned(TWO)
    assert job.done == 5
    assert job.progressed("a", 9).done == 7, "a partition without an owner counts"
    assert job.progressed("a", 9).progressed("b", 8).done == 8


def test_replicas_and_unknown_fragments_do_not_count() -> None:
    job = Ownership().planned(TWO).progressed("a", 9).progressed("b", 9)
    assert job.progressed("c", 3).progressed("d", 4).done == 9


def test_what_ledgers_have_is_more_than_what_is_done() -> None:
    job = Ownership().planned(TWO).committed("a", 9)
    assert (job.done, job.ledger_highest) == (7, 9)


def test_a_plan_takes_its_generation_along() -> None:
    job = Ownership(ONE, 3)
    after = job.planned(ONE.handed_to("w2-a", job.next_generation))
    assert (after.owner, after.generation, after.next_generation) == ("w2-a", 4, 5)


WAITING, RESTORING, RUNNING = Condition.WAITING, Condition.RESTORING, Condition.RUNNING


@pytest.mark.parametrize(
    ("a", "b", "phase"),
    [
        (WAITING, WAITING, Phase.WAITING),
        (WAITING, RESTORING, Phase.RESTORING),
        (WAITING, RUNNING, Phase.RESTORING),
        (RESTORING, RESTORING, Phase.RESTORING),
        (RESTORING, RUNNING, Phase.RESTORING),
        (RUNNING, RUNNING, Phase.RUNNING),
    ],
)
def test_the_phase_follows_from_the_fragments(a: Condition, b: Condition, phase: Phase) -> None:
    assert Ownership(TWO, 3).become(a, ["a"]).become(b, ["b"]).phase is phase
    assert Ownership(TWO, 3).become(b, ["a"]).become(a, ["b"]).phase is phase


def test_a_fragment_of_a_new_generation_restores_and_the_others_continue() -> None:
    plan = TWO.placed({"b": "w2-a"}, 3)
    job = Ownership(plan, 3).become(RUNNING, ["a", "b"])
    moved = job.planned(plan.placed({"b": "w3-a"}, 4))
    assert [moved.condition(name) for name in "ab"] == [RUNNING, RESTORING]
    renewed = job.planned(plan.renewed(4))
    assert [renewed.condition(name) for name in "ab"] == [RESTORING, RESTORING]
    assert job.planned(plan.handed_to(None, 4)).phase is Phase.WAITING


def test_a_fragment_that_waits_is_placed_and_not_only_renamed() -> None:
    job = Ownership(TWO, 3).become(RUNNING, ["a"])
    assert job.planned(TWO.renewed(4)).condition("b") is WAITING


def test_fragments_that_another_plan_lacks_are_forgotten() -> None:
    job = Ownership(TWO, 3).progressed("a", 9).progressed("b", 9).become(RUNNING, "ab")
    after = job.planned(replace(ONE.handed_to("w1-a", 4), base_epoch=9).based_on(9, 90))
    assert (after.done, after.phase) == (9, Phase.WAITING)
    assert after.done_by == {}


def test_a_rewind_lowers_fragments_that_were_ahead() -> None:
    job = Ownership(TWO, 3).progressed("a", 9).progressed("b", 8)
    assert job.rewound(8).done_by == {"a": 8, "b": 8}


def test_the_slowest_fragments() -> None:
    job = Ownership(TWO, 3).progressed("a", 7)
    assert [a.fragment for a in job.slowest] == ["a", "b"]
    assert [a.fragment for a in job.progressed("b", 8).slowest] == ["a"]
