"""Differences of two states against a plain comparison, whatever their order and encoding."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.replay import differences, state_rows, tolerances
from perseid.replay.differences import Place
from perseid.replay.findings import Difference
from perseid.replay.state_rows import same_columns, state_differences
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector
from perseid.state.primitives.primitive import Primitive

PLACE = Place("sums", 3, 40, "", 0, "total")
KEY = {"user": pa.string(), "day": pa.int64()}
Key = tuple[str, int]
Cells = tuple[int | None, float | None]

KEYS = st.tuples(st.sampled_from(["ann", "bob", ""]), st.integers(-2, 2))
NUMBERS = st.sampled_from([0.0, -0.0, 1.5, math.nan, None])
ROWS = st.dictionaries(KEYS, st.tuples(st.none() | st.integers(0, 2), NUMBERS), max_size=8)


def table(rows: Mapping[Key, Cells]) -> Table:
    made = Table(key=KEY, n=pa.int64(), x=pa.float64())
    if rows:
        keys = {"user": [k[0] for k in rows], "day": [k[1] for k in rows]}
        made.upsert(keys, n=[c[0] for c in rows.values()], x=[c[1] for c in rows.values()])
    return made


def encoded_otherwise(rows: pa.Table, seed: int) -> pa.Table:
    """The same rows in another order, in other chunks, columns in another order and encoding."""
    order = np.random.default_rng(seed).permutation(len(rows))
    rows = rows.take(pa.array(order))
    for name in rows.column_names:
        if pa.types.is_string(rows.schema.field(name).type):
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, rows[name].dictionary_encode())
    rows = rows.select(rows.column_names[::-1])
    parts = [rows.slice(at, 2) for at in range(0, len(rows), 2)]
    return pa.concat_tables(parts) if parts else rows


def found(one: Primitive, other: pa.Table, **options: Any) -> list[Difference]:
    differs = state_differences(PLACE, one.schema(), one.snapshot(), other, **options)
    assert differs.rest == {}
    return list(differs.found)


def plain(one: dict[Key, Cells], other: dict[Key, Cells]) -> Counter[Any]:
    expected: Counter[Any] = Counter()
    for key in one.keys() | other.keys():
        name = f"user={key[0]},day={key[1]}"
        if key not in other:
            expected["missing", name, ()] += 1
        elif key not in one:
            expected["added", name, ()] += 1
        else:
            pairs = zip("nx", one[key], other[key], strict=True)
            fields = tuple(name for name, a, b in pairs if repr(a) != repr(b))
            if fields:
                expected["value", name, fields] += 1
    return expected


@pytest.mark.parametrize("bucket_rows", [1 << 20, 3])
@settings(max_examples=120, deadline=None)
@given(one=ROWS, other=ROWS, seed=st.integers(0, 9))
def test_tables_are_compared_by_key(
    bucket_rows: int, one: dict[Key, Cells], other: dict[Key, Cells], seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_rows, "BUCKET_ROWS", bucket_rows)
        differs = found(table(one), encoded_otherwise(table(other).snapshot(), seed))
    seen = Counter(
        (d.kind, (d.committed or d.made).key.decode(), tuple(sorted(d.fields)))  # type: ignore[union-attr]
        for d in differs
    )
    assert seen == plain(one, other)
    assert {(d.operator, d.partition, d.epoch, d.topic, d.state) for d in differs} <= {
        ("sums", 3, 40, "", "total")
    }


def test_a_sample_has_key_and_columns_of_both_sides() -> None:
    one, other = table({("ann", 1): (3, 1.5)}), table({("ann", 1): (4, 1.5)})
    (differs,) = found(one, other.snapshot())
    assert differs.committed is not None and differs.made is not None
    assert differs.committed.key == differs.made.key == b"user=ann,day=1"
    assert json.loads(differs.committed.value or b"") == {"n": 3, "x": 1.5}
    assert json.loads(differs.made.value or b"") == {"n": 4, "x": 1.5}
    assert differs.fields == ("n",)


@settings(max_examples=60, deadline=None)
@given(
    one=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), max_size=8),
    other=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), max_size=8),
    seed=st.integers(0, 9),
)
def test_pools_are_bags(
    one: list[tuple[int, str]], other: list[tuple[int, str]], seed: int
) -> None:
    def pool(rows: list[tuple[int, str]]) -> Pool:
        made = Pool({"at": pa.int64(), "user": pa.string()}, time="at", key=["user"])
        columns = pa.array([a for a, _ in rows], pa.int64()), pa.array([u for _, u in rows])
        made.append({"at": columns[0], "user": columns[1].cast(pa.string())})
        return made

    differs = found(pool(one), encoded_otherwise(pool(other).snapshot(), seed))
    sides = {"missing": Counter(one) - Counter(other), "added": Counter(other) - Counter(one)}
    for kind, left in sides.items():
        records = [d.committed or d.made for d in differs if d.kind == kind]
        seen = Counter((json.loads(r.value)["at"], r.key.decode()) for r in records)  # type: ignore[union-attr, arg-type]
        assert seen == left
    assert {d.kind for d in differs} <= sides.keys()


def primitives() -> list[tuple[Primitive, Primitive, list[tuple[str, bytes | None, Any, Any]]]]:
    """Two states of each other kind, with kind, key and values of what differs."""
    users, others = Set(pa.string()), Set(pa.string())
    users.add(pa.array(["ann", "bob"]))
    others.add(pa.array(["eve", "bob"]))
    timers, later = Timers(key=pa.string()), Timers(key=pa.string())
    timers.set(pa.array(["ann", "bob"]), at=pa.array([1, 2]))
    later.set(pa.array(["bob", "ann"]), at=pa.array([2, 5]))
    value, text = Value(pa.int64(), default=0), Value(pa.int64(), default=0)
    text.set(7)
    vector, second = Vector(pa.float64(), 5), Vector(pa.float64(), 5)
    second.set_at([3], [2.5])
    matrix, cells = Matrix(pa.float64(), 2, 3), Matrix(pa.float64(), 2, 3)
    cells.set_row(1, [0.0, 4.0, 0.0])
    return [
        (users, others, [("missing", b"ann", {}, None), ("added", b"eve", None, {})]),
        (timers, later, [("value", b"ann", {"at": 1}, {"at": 5})]),
        (value, text, [("value", None, {"value": 0}, {"value": 7})]),
        (vector, second, [("value", b"3", {"value": 0.0}, {"value": 2.5})]),
        (matrix, cells, [("value", b"row=1,column=1", {"value": 0.0}, {"value": 4.0})]),
    ]


@pytest.mark.parametrize("number", range(5))
def test_other_primitives(number: int) -> None:
    one, other, expected = primitives()[number]
    assert found(one, one.snapshot()) == []
    seen = [
        (d.kind, (d.committed or d.made).key,  # type: ignore[union-attr]
         *(None if r is None else json.loads(r.value or b"") for r in (d.committed, d.made)))
        for d in found(one, other.snapshot())
    ]  # fmt: skip
    assert seen == expected


def test_columns_with_a_tolerance_may_differ_within_it() -> None:
    one = table({("ann", 1): (1, 1.0), ("bob", 1): (1, 1.0), ("eve", 1): (1, 1.0)})
    other = table({("ann", 1): (1, 1.0 + 1e-12), ("bob", 1): (1, 1.1), ("eve", 1): (2, 1.0)})
    allowed = tolerances.of_options(["x=relative:1e-9"])
    differs = found(one, other.snapshot(), tolerances=allowed)
    assert [(d.committed.key, d.fields) for d in differs if d.committed] == [
        (b"user=bob,day=1", ("x",)), (b"user=eve,day=1", ("n",)),
    ]  # fmt: skip


def test_of_many_differences_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_rows, "FOUND_MAX", 3)
    monkeypatch.setattr(differences, "FOUND_MAX", 3)
    one: dict[Key, Cells] = {("ann", day): (1, 0.5) for day in range(20)}
    other: dict[Key, Cells] = {key: (2, 0.5) for key in list(one)[:-4]}
    other["bob", 1] = 1, None
    differs = state_differences(
        PLACE, table({}).schema(), table(one).snapshot(), table(other).snapshot()
    )
    assert len(differs.found) == 3
    assert {kind: len(keys) for kind, keys in differs.rest.items()} == {
        "value": 13, "missing": 4, "added": 1,
    }  # fmt: skip
    assert differs.rest["added"].to_pylist() == [b"user=bob,day=1"]
    assert len(differs) == 21


def test_nested_columns_are_compared_too() -> None:
    def lists(last: list[int] | None) -> Table:
        made = Table(key=pa.string(), n=pa.list_(pa.int64()))
        made.upsert(pa.array(["a", "b"]), n=pa.array([[1, 2], last], pa.list_(pa.int64())))
        return made

    assert found(lists([3]), lists([3]).snapshot()) == []
    (differs,) = found(lists([3]), lists(None).snapshot())
    assert (differs.fields, differs.committed and differs.committed.key) == (("n",), b"b")


def test_columns_are_the_same_whatever_their_encoding() -> None:
    rows = table({("ann", 1): (1, 1.0)}).snapshot()
    assert same_columns(rows, encoded_otherwise(rows, 1))
    assert not same_columns(rows, rows.drop_columns(["x"]))
    assert not same_columns(rows, rows.set_column(2, "n", rows["n"].cast(pa.int32())))
