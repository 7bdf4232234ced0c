"""Doneness is known of each fragment, and the job has done what all of its partitions have done."""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator.job.ownership import Ownership
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
