"""Outputs that differ are looked at record by record, on a model of Kafka with two writers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.replay.looking import by_ledger
from support.audited_job import ROWS, TASKS, World, changed


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "outputs")


def test_a_changed_value_is_found_with_its_column_and_key(world: World) -> None:
    look = world.look()
    assert look.differing(world.unequal(1, ROWS[1]), world.ledgers.near(1)) == []
    found = look.differing(world.unequal(2, changed(2, 3, n=99)), world.ledgers.near(2))
    assert len(found) == 1
    (cause,) = look.causes.found()
    assert (cause.operator, cause.kind, cause.fields) == (TASKS[0].operator, "value", ("n",))
    assert (cause.first_epoch, cause.records, cause.keys) == (2, 1, 1)
    assert cause.keys_share == pytest.approx(1 / 6)
    (sample,) = cause.samples
    assert sample.committed is not None and sample.made is not None
    assert (sample.committed.key, sample.position) == (b"k3", 3)
    assert json.loads(sample.committed.value or b"") == ROWS[2][3]
    assert json.loads(sample.made.value or b"") == ROWS[2][3] | {"n": 99}
    (compared,) = look.compared(world.ledgers.comparison)
    assert (compared.topic, compared.by, compared.why) == ("out", "records", "")


def test_missing_and_added_records_are_found(world: World) -> None:
    look = world.look()
    rows = [*ROWS[1][:2], *ROWS[1][3:], {"k": "more", "n": 1, "x": 0.5}]
    look.differing(world.unequal(1, rows), world.ledgers.near(1))
    kinds = {cause.kind: cause.samples[0] for cause in look.causes.found()}
    assert kinds.keys() == {"missing", "added"}
    missing, added = kinds["missing"].committed, kinds["added"].made
    assert missing is not None and missing.key == b"k2"
    assert added is not None and added.key == b"more"


def test_what_is_within_a_tolerance_is_no_difference(world: World) -> None:
    look = world.look(["x=relative:1e-6"])
    near = world.unequal(1, changed(1, 2, x=0.5 + 1e-9))
    assert len(near) == 1
    assert look.differing(near, world.ledgers.near(1)) == []
    far = world.unequal(2, changed(2, 2, x=0.6))
    assert look.differing(far, world.ledgers.near(2)) == far
    assert {cause.fields for cause in look.causes.found()} == {("x",)}


def test_records_that_the_topic_lost_are_compared_by_the_ledger_alone(world: World) -> None:
    look = world.look()
    world.topics.delete_records({("out", 0): 10})
    found = look.differing(world.unequal(1, changed(1, 3, n=99)), world.ledgers.near(1))
    assert len(found) == 1
    (compared,) = look.compared(world.ledgers.comparison)
    assert compared.by == "ledger"
    assert "out[0] begins at offset 10" in compared.why
    (cause,) = look.causes.found()
    assert (cause.kind, cause.fields, cause.samples[0].committed) == ("value", (), None)


@pytest.mark.parametrize(("made", "kind"), [(6, "value"), (4, "missing"), (8, "added")])
def test_counts_show_the_kind(world: World, made: int, kind: str) -> None:
    (found,) = world.unequal(1, [{"k": "k", "n": i} for i in range(made)])
    (difference,) = by_ledger(found).found
    assert difference.kind == kind
    assert (difference.operator, difference.epoch) == (TASKS[0].operator, 1)
