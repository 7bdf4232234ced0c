"""Which differences of a gate are approved, record by record, on a model of Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.engine.comparison import Unequal
from perseid.errors import RefusedError
from perseid.records import ApprovedCause
from perseid.replay import approving
from perseid.replay.differences import FOUND_MAX
from perseid.replay.findings import Audit
from support.audit_reports import example
from support.audited_job import ROWS, TASKS, World, changed

OPERATOR = TASKS[0].operator
VALUE_N = ApprovedCause(OPERATOR, "value", ("n",))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "outputs")


def refused(world: World, found: Iterable[Unequal], *approved: ApprovedCause) -> list[str]:
    approval = approving.of_folder(world.columns, world.folder, approved, world.reader)
    return [approval.refused(one, world.ledgers.near(one.epoch)) for one in found]


def test_an_approved_column_may_differ_and_no_other(world: World) -> None:
    one = world.unequal(1, changed(1, 3, n=99))
    assert refused(world, one, VALUE_N) == [""]
    assert refused(world, one, replace(VALUE_N, fields=("x",))) == ["another value of n"]
    assert refused(world, one, replace(VALUE_N, operator="other")) == ["another value of n"]
    assert refused(world, one, replace(VALUE_N, fields=())) == ["another value of n"]
    both = world.unequal(2, changed(2, 3, n=99, x=0.1))
    assert refused(world, both, VALUE_N) == ["another value of n, x"], "a set of columns"


def test_every_difference_has_to_be_approved(world: World) -> None:
    rows = changed(1, 3, n=99)[:-1]
    one = world.unequal(1, rows)
    assert refused(world, one, VALUE_N) == ["a record is missing"]
    assert refused(world, one, VALUE_N, ApprovedCause(OPERATOR, "missing")) == [""]
    more = world.unequal(2, [*ROWS[2], {"k": "more", "n": 1}])
    assert refused(world, more, ApprovedCause(OPERATOR, "missing")) == ["a record is added"]
    order = world.unequal(3, ROWS[3][::-1])
    assert refused(world, order, VALUE_N) == ["records in another order"]
    assert refused(world, order, ApprovedCause(OPERATOR, "order")) == [""]


def test_what_is_not_looked_at_one_by_one_is_of_no_known_columns(world: World) -> None:
    many = [{"k": f"m{i}", "n": i} for i in range(FOUND_MAX + 1)]
    (one,) = world.unequal(1, [*ROWS[1], *many])
    added = ApprovedCause(OPERATOR, "added")
    assert refused(world, [one], added) == [""]
    assert refused(world, [one], replace(added, fields=("n",))) == ["a record is added"]


def test_records_that_the_topic_has_no_more_are_never_approved(world: World) -> None:
    found = world.unequal(1, changed(1, 3, n=99))
    end = world.topics.ends([("out", 0)])["out", 0]
    world.topics.delete_records({("out", 0): end})
    for approved in (VALUE_N, replace(VALUE_N, fields=())):
        (text,) = refused(world, found, approved)
        assert text.startswith("records that cannot be compared (out[0] begins at offset")


def test_outputs_of_earlier_epochs_are_deleted(world: World) -> None:
    for epoch in (1, 2, 3):
        world.unequal(epoch, ROWS[epoch])
    approval = approving.of_folder(world.columns, world.folder, [VALUE_N], world.reader)
    approval.forget(3)
    assert [path.name for path in world.folder.iterdir()] == ["3"]
    approving.of_folder(world.columns, world.folder / "none", [], world.reader).forget(3)


# -- the report ----------------------------------------------------------------------------------


def report(**changes: object) -> Audit:
    found = example()
    known = tuple(cause for cause in found.causes if cause.kind != "order")
    return replace(found, **{"causes": known, **changes})  # type: ignore[arg-type]


def test_a_report_approves_the_causes_that_it_lists() -> None:
    assert approving.causes_of(report()) == (
        ApprovedCause("spent", "value", ("total",)), ApprovedCause("spent", "missing"),
        ApprovedCause("spent", "added"),
    )  # fmt: skip


def test_a_cause_in_a_state_approves_no_output_of_its_kind() -> None:
    (value, *_) = report().causes
    in_state = replace(value, kind="added", fields=("seen",), state="seen", samples=())
    assert approving.causes_of(report(causes=(value, in_state))) == (
        ApprovedCause("spent", "value", ("total",)),
    )
    with pytest.raises(RefusedError, match="differences in states alone"):
        approving.causes_of(report(causes=(in_state,)))


def test_a_report_that_cannot_be_approved_is_refused_with_the_reason() -> None:
    (value, *_) = report().causes
    many = tuple(replace(value, fields=(f"c{i}",)) for i in range(approving.APPROVED_MAX + 1))
    for found, text in (
        (report(verdict="not_deterministic"), "has the verdict not_deterministic"),
        (report(verdict="equal", causes=()), "has the verdict equal"),
        (report(causes=()), "has 0 causes"),
        (report(causes=many), "has 51 causes, and 1 to 50 can be approved"),
        (example(), "differences of operator spent by counts and checksums alone"),
    ):
        with pytest.raises(RefusedError, match=text):
            approving.causes_of(found)
