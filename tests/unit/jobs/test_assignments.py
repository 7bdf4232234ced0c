"""A plan is refused under which an operator partition would run twice or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.errors import PermanentError
from perseid.jobs.model.assignments import check, cut, tasks_of
from perseid.jobs.model.layout import Layout, Task
from perseid.jobs.model.spread import Share, Spread
from perseid.records import Assignment, Plan

LAYOUT = Layout(
    1,
    (
        Task(0, "counts", 0, 1, stateful=True, ledger=0),
        Task(1, "counts", 1, 1, stateful=True, ledger=1),
        Task(2, "sums", 0, 2, stateful=True, ledger=None),
    ),
)
WHOLE = Plan.fused("shop", "u1", 7, "w1-a", "r1", "a1", 1, 0, 0)


def plan(*assignments: Assignment) -> Plan:
    return replace(WHOLE, assignments=assignments)


def part(fragment: str, *gids: int, role: str = "primary", split: int | None = None) -> Assignment:
    """`split`: else that of the fragments a, b and c, in this order."""
    at = "abc".index(fragment) if split is None else split
    return Assignment(fragment, gids, None, 7, role, split=at)


@pytest.mark.parametrize(
    "fits",
    [
        WHOLE,
        plan(part("a", 0, 1, 2)),
        plan(replace(WHOLE.only, gids=(0, 1, 2))),
        plan(part("a", 0, 2), part("b", 1)),
        plan(part("b", 1), part("a", 0, 2)),
        plan(part("a", 0, 2), part("b", 1), part("c", 0, 1, role="replica")),
    ],
)
def test_each_partition_has_one_primary(fits: Plan) -> None:
    check(fits, LAYOUT)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (plan(part("a", 0, 1), part("b", 1, 2)), "counts-1 is in a and b"),
        (plan(part("a", 0), part("b", 2)), "counts-1 is in none"),
        (plan(part("a", 0, 2), part("b", 1, role="replica")), "counts-1 is in none"),
        (plan(*WHOLE.assignments, part("b", 0)), "counts-0 is in whole and b"),
        (plan(part("a", 0, 1, 2, 3)), r"fragment a has unknown partitions \[3\]"),
        (plan(part("a", 0, 1, 2, 2)), "fragment a names a partition twice"),
        (plan(part("a", 0, 1), part("a", 2)), "fragment a is there 2 times"),
        (plan(), "it has no primary fragment"),
        (
            plan(part("a", 0, 2), part("b", 1, split=0)),
            "the splits 0 to 1 has one reader, but a reads split 0, b reads split 0",
        ),
        (plan(part("a", 0, 2), part("b", 1, split=2)), "a reads split 0, b reads split 2"),
        (
            plan(part("a", 0, 2), replace(part("b", 1), split=None)),
            "a reads split 0, b reads all splits",
        ),
        (plan(part("b", 0, 1, 2)), "b reads split 1"),
    ],
)
def test_another_plan_is_refused_with_what_is_wrong(wrong: Plan, text: str) -> None:
    with pytest.raises(PermanentError, match=f"plan 7 of job shop .*{text}.* --from scratch"):
        check(wrong, LAYOUT)


def test_a_plan_is_cut_as_its_job_is() -> None:
    spread = Spread((Share((0, 2), {"a": (0, 2)}, 0), Share((1,), {"a": (1, 2)}, 0)))
    made = cut(replace(WHOLE, base_epoch=5), spread)
    check(made, LAYOUT)
    assert made.assignments == (
        Assignment("0", (0, 2), None, 7, from_epoch=5, split=0),
        Assignment("1", (1,), None, 7, from_epoch=5, split=1),
    )
    assert cut(made, None).assignments == (Assignment("whole", None, None, 7, from_epoch=5),)


def test_a_layout_without_partitions_needs_a_fragment_too() -> None:
    check(WHOLE, Layout(1, ()))
    with pytest.raises(PermanentError, match="no primary fragment"):
        check(plan(), Layout(1, ()))


def test_the_partitions_of_a_fragment_follow_the_layout() -> None:
    assert tasks_of(WHOLE.only, LAYOUT) == LAYOUT.tasks
    assert [task.gid for task in tasks_of(part("a", 2, 0), LAYOUT)] == [0, 2]
