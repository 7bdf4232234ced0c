"""The two forms of a delta of rows by key; what they come to is in test_merging.py."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import DamagedFile
from perseid.state import Table
from perseid.state.durability import merging
from perseid.state.primitives import deltas
from perseid.state.primitives.arrow import ipc_bytes


def table(*keys: str) -> Table:
    found = Table(key=pa.string(), n=pa.int64())
    if keys:
        found.upsert(list(keys), n=0)
        found.commit()
    return found


def changed(live: Table, *copies: Table) -> pa.Table:
    """The delta of `live`, which is committed and applied to `copies`."""
    delta = live.delta()
    assert delta is not None
    live.commit()
    for copy in copies:
        copy.apply(delta)
        assert copy.snapshot().equals(live.snapshot())
    return delta


def copy_of(live: Table) -> Table:
    found = live.fresh()
    found.restore(live.snapshot())
    return found


def test_a_row_that_was_there_is_named_by_its_place_and_a_new_one_has_its_key() -> None:
    live = table("a", "b", "c")
    copy = copy_of(live)
    live.add(["c", "x", "a", "y"], n=[3, 4, 1, 5])
    assert changed(live, copy).to_pylist() == [
        {"key": None, "n": 1, "__row": 0},
        {"key": None, "n": 3, "__row": 2},
        {"key": "x", "n": 4, "__row": 3},
        {"key": "y", "n": 5, "__row": 4},
    ]


def test_composite_keys_are_left_out_whole() -> None:
    live = Table(key={"i": pa.int16(), "j": pa.string()}, n=pa.int64())
    live.upsert({"i": [1, 1], "j": ["a", "b"]}, n=[1, 2])
    live.commit()
    live.upsert({"i": [2, 1], "j": ["a", "b"]}, n=[3, 4])
    delta = live.delta()
    assert delta is not None and delta.to_pylist() == [
        {"i": None, "j": None, "n": 4, "__row": 1},
        {"i": 2, "j": "a", "n": 3, "__row": 2},
    ]


def test_long_keys_that_are_known_take_four_bytes() -> None:
    keys = [f"{number:088}" for number in range(10_000)]
    live = table(*keys)
    live.add(keys[:5_000], n=1)
    delta = live.delta()
    assert delta is not None
    assert len(ipc_bytes(delta)) < 5_000 * (4 + 8 + 4 + 1)


def test_an_epoch_that_deletes_is_written_by_key_and_so_are_those_after_it() -> None:
    live = table("a", "b", "c")
    copy = copy_of(live)
    live.delete(["b"])
    live.add(["c"], n=1)
    assert changed(live, copy).to_pylist() == [
        {"key": "b", "n": None, "__deleted": True},
        {"key": "c", "n": 1, "__deleted": False},
    ]
    live.add(["c"], n=1)
    assert changed(live, copy).to_pylist() == [{"key": "c", "n": 2, "__deleted": False}]


def test_a_restore_closes_the_holes_and_a_copy_with_holes_takes_places_all_the_same() -> None:
    """The copy that lived on has three slots for two rows."""
    lived_on = table("a", "b", "c")
    lived_on.delete(["b"])
    changed(lived_on)
    restored = copy_of(lived_on)
    restored.add(["c", "x"], n=[7, 8])
    delta = changed(restored, lived_on)
    assert delta["__row"].to_pylist() == [1, 2]
    lived_on.add(["a", "x"], n=[1, 1])
    assert changed(lived_on, restored).schema.names == ["key", "n", "__deleted"]


def test_a_key_that_came_and_went_within_the_epoch_leaves_a_delta_by_key() -> None:
    live = table("a")
    copy = copy_of(live)
    live.add(["x", "y"], n=1)
    live.delete(["x"])
    assert changed(live, copy).to_pylist() == [{"key": "y", "n": 1, "__deleted": False}]


def test_what_was_taken_back_leaves_no_hole() -> None:
    live = table("a")
    copy = copy_of(live)
    live.add(["x"], n=1)
    live.delete(["a"])
    live.rollback()
    live.add(["y"], n=1)
    assert changed(live, copy)["__row"].to_pylist() == [1]


def both_forms() -> tuple[Table, list[pa.Table]]:
    """By row, by row, by key, by row (after a restore), by row."""
    live = table("a", "b")
    found = []
    for keys in (["b", "x"], ["x", "a", "y"]):
        live.add(keys, n=1)
        found.append(changed(live))
    live.delete(["a"])
    live.add(["b"], n=10)
    found.append(changed(live))
    live = copy_of(live)
    for keys in (["y", "z"], ["z", "a"]):
        live.add(keys, n=100)
        found.append(changed(live))
    return live, found


def test_deltas_of_both_forms_come_to_one_that_does_what_they_do() -> None:
    live, changes = both_forms()
    assert [deltas.is_by_row(d) for d in changes] == [True, True, False, True, True]
    base = table("a", "b")
    one = deltas.net(["key"], changes)
    assert [len(run) for run in deltas.runs(["key"], [one])] == [4, 2, 3]
    again = deltas.net(["key"], [deltas.net(["key"], changes[:3]), *changes[3:]])
    for change in (one, again):
        copy = copy_of(base)
        copy.apply(change)
        assert copy.snapshot().equals(live.snapshot())
        whole = merging.whole(live.schema(), base.snapshot(), [change])
        assert whole.combine_chunks().equals(live.snapshot())


def test_a_log_from_before_deltas_by_row_continues_with_them() -> None:
    """Its deltas are by key even where nothing was deleted."""
    live = table("a", "b")
    base = live.snapshot()
    rows = pa.table({"key": ["b", "x"], "n": pa.array([1, 1])})
    old = deltas.by_key(rows.select(["key"]).slice(0, 0), rows)
    live.apply(old)
    live.add(["x", "y"], n=5)
    changes = [old, changed(live)]
    copy = live.fresh()
    copy.restore(base)
    copy.apply_all(changes)
    assert copy.snapshot().equals(live.snapshot())
    whole = merging.whole(live.schema(), base, changes)
    assert whole.combine_chunks().equals(live.snapshot())


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("new", [["x"], []])
def test_a_delta_by_row_of_another_state_is_refused(rows: int, new: list[str]) -> None:
    live = table("a", "b", "c")
    live.add(["a", *new], n=1)
    first = changed(live)
    live.add(["a"], n=1)
    other = table(*"abcd"[:rows])
    for delta in (first, deltas.net(["key"], [first, changed(live)])):
        with pytest.raises(DamagedFile, match=f"for 3 rows .* for a state of {rows} rows"):
            other.apply(delta)
        with pytest.raises(DamagedFile, match="it was made for another one"):
            merging.whole(other.schema(), other.snapshot(), [delta])


def test_a_delta_by_row_that_adds_a_known_key_is_refused() -> None:
    live = table("a", "b")
    live.add(["x"], n=1)
    delta: Any = changed(live)
    with pytest.raises(DamagedFile, match="adds a row whose key is there"):
        table("a", "x").apply(delta)


def test_deltas_by_row_that_do_not_follow_each_other_are_refused() -> None:
    found = []
    for keys in (["x"], ["y", "z"]):
        live = table("a", "b")
        live.add(keys, n=1)
        found.append(changed(live))
    with pytest.raises(DamagedFile, match="that add the same row"):
        deltas.net(["key"], found)
