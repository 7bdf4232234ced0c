"""Table: what operators see."""

from __future__ import annotations

import datetime
import math
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.state import Table, Value, bind, schema_of

DAY = datetime.date(2026, 11, 21)


def counts() -> Table:
    return Table(key=pa.string(), n=pa.int64())


def test_add_returns_changed_rows_by_first_appearance() -> None:
    table = counts()
    table.add(["b"], n=10)
    changed = table.add(pa.array(["c", "b", "c", "a"]), n=pa.array([1, 2, 3, 4]))
    assert changed.to_pydict() == {"key": ["c", "b", "a"], "n": [4, 12, 4]}
    assert table.scan().to_pydict() == {"key": ["b", "c", "a"], "n": [12, 4, 4]}
    assert len(table) == table.rows == 3


def test_add_takes_chunks_and_counts_null_amounts_as_nothing() -> None:
    table = counts()
    keys = pa.chunked_array([["a"], [], ["b", "a"]], pa.string())
    amounts = pa.chunked_array([[1], [None, 5]], pa.int64())
    assert table.add(keys, n=amounts).to_pydict() == {"key": ["a", "b"], "n": [6, 0]}
    assert table.add(pa.chunked_array([], pa.string()), n=1).num_rows == 0


def test_add_leaves_columns_that_are_not_numbers_null() -> None:
    table = Table(key=pa.int32(), n=pa.float64(), at=pa.timestamp("us"), ok=pa.bool_())
    row = table.add([1], n=0.5).to_pylist()
    assert row == [{"key": 1, "n": 0.5, "at": None, "ok": None}]


def test_upsert_keeps_the_last_row_of_a_key_and_unnamed_columns() -> None:
    table = Table(key=pa.string(), n=pa.int64(), s=pa.string(), day=pa.date32())
    table.upsert(["a", "b", "a"], n=[1, 2, 3], s="x")
    changed = table.upsert(["b", "c"], day=[DAY, None])
    assert changed.to_pylist() == [
        {"key": "b", "n": 2, "s": "x", "day": DAY},
        {"key": "c", "n": None, "s": None, "day": None},
    ]
    assert table.lookup(["a"]).to_pylist()[0]["n"] == 3


def test_null_is_overwritten_by_upsert_and_counts_as_zero_for_add() -> None:
    table = counts()
    assert table.upsert(["a"], n=None).to_pydict() == {"key": ["a"], "n": [None]}
    assert table.add(["a"], n=7).to_pydict() == {"key": ["a"], "n": [7]}
    table.upsert(["a"], n=None)
    assert table.upsert(["a"], n=1).to_pydict() == {"key": ["a"], "n": [1]}


def test_min_and_max_keep_the_extremes_by_first_appearance() -> None:
    table = Table(key=pa.string(), low=pa.int64(), high=pa.float64(), at=pa.timestamp("ms"))
    assert table.min(["b", "a", "b"], low=[3, 5, 2])["low"].to_pylist() == [2, 5]
    times = [datetime.datetime(2026, 1, day) for day in (2, 1, 3)]
    changed = table.fold(["a", "c", "a"], min={"low": [9, -1, 4]}, max={"high": -2.5, "at": times})
    assert changed.to_pydict() == {
        "key": ["a", "c"], "low": [4, -1], "high": [-2.5, -2.5], "at": [times[2], times[1]],
    }  # fmt: skip
    assert table.lookup(["b"]).to_pylist()[0]["high"] is None
    assert table.max(["b"], high=-7).to_pylist()[0]["high"] == -7


def test_min_and_max_pass_over_null_and_nan() -> None:
    table = Table(key=pa.string(), f=pa.float64())
    nan = math.nan
    assert table.max(["a", "a", "b"], f=[nan, None, nan])["f"].to_pylist() == [None, None]
    assert table.max(["a", "b", "b"], f=[-1.0, nan, 2.0])["f"].to_pylist() == [-1.0, 2.0]
    assert table.min(["a", "b"], f=[None, nan])["f"].to_pylist() == [-1.0, 2.0]
    table.upsert(["a", "b"], f=nan)
    assert math.isnan(table.min(["a"], f=None)["f"][0].as_py())
    assert table.min(["a", "b"], f=[math.inf, 3])["f"].to_pylist() == [math.inf, 3.0]


def test_what_cannot_be_folded_is_refused() -> None:
    table = Table(key=pa.string(), n=pa.int64(), s=pa.string(), at=pa.timestamp("ms"))
    with pytest.raises(
        BadInputError, match=r"min\(\) to column 's' of type string: not a number or"
    ):
        table.min(["a"], s="x")
    with pytest.raises(BadInputError, match=r"add\(\) to column 'at'"):
        table.add(["a"], at=DAY)
    with pytest.raises(BadInputError, match="'n' is folded twice"):
        table.fold(["a"], add={"n": 1}, max={"n": 1})
    assert (len(table), table.delta()) == (0, None)


def test_rows_expire_by_the_time_that_the_caller_gives() -> None:
    table = Table(key=pa.string(), ttl=datetime.timedelta(minutes=1), n=pa.int64())
    with pytest.raises(BadInputError, match=r"call advance\(self.now\) before the first write"):
        table.add(["a"], n=1)
    assert table.advance(0).num_rows == 0
    table.add(["a", "b"], n=1)
    table.commit()
    with pytest.raises(BadInputError, match="in an epoch whose time it does not know"):
        table.upsert(["a"], n=1)
    table.advance(59_999)
    assert table.add(["b"], n=1).to_pydict() == {"key": ["b"], "n": [2]}
    assert table.lookup(["a"])["found"].to_pylist() == [True]
    table.commit()
    copy = table.fresh()
    copy.restore(table.snapshot())
    for live in (table, copy):
        assert live.advance(60_000).to_pydict() == {"key": ["a"], "n": [1]}
        assert live.scan().to_pydict() == {"key": ["b"], "n": [2]}
        live.rollback()
        assert live.scan()["key"].to_pylist() == ["a", "b"]
        assert live.advance(119_999)["key"].to_pylist() == ["a", "b"]
        assert live.add(["a"], n=1).to_pydict() == {"key": ["a"], "n": [1]}
    assert table.snapshot().equals(copy.snapshot())


def test_a_time_to_live_is_part_of_the_schema_but_its_length_is_not() -> None:
    minute, hour = (datetime.timedelta(minutes=n) for n in (1, 60))
    assert Table(key=pa.string(), ttl=minute).schema() == Table(key=pa.string(), ttl=hour).schema()
    assert Table(key=pa.string(), ttl=minute).schema() != Table(key=pa.string()).schema()
    with pytest.raises(BadInputError, match="expected a millisecond or more"):
        Table(key=pa.string(), ttl=datetime.timedelta(0))
    with pytest.raises(BadInputError, match="without ttl"):
        counts().advance(0)


@pytest.mark.parametrize("key", [pa.string(), pa.int64()])
def test_rows_that_were_read_stay_what_they_were(key: pa.DataType) -> None:
    table = Table(key=key, n=pa.int64())
    table.add(pa.array([1, 2], pa.int64()).cast(key), n=1)
    read = [table.scan(), table.snapshot(), table.delta()]
    table.add(pa.array([1], pa.int64()).cast(key), n=9)
    assert [rows["n"].to_pylist() for rows in read if rows] == [[1, 1]] * 3


def test_many_writes_of_an_epoch_are_taken_back_at_once() -> None:
    table = Table(key=pa.int64(), n=pa.int64(), s=pa.string())
    table.upsert(range_of(3000), n=range_of(3000), s=pa.array(map(str, range(3000))))
    table.commit()
    before, size = table.snapshot(), table.size_bytes
    for turn in range(5):  # more cells than the table has, so that they are kept as an image
        table.upsert(range_of(4000), n=turn, s="long text")
        table.delete(range_of(3500)[turn::7])
    table.rollback()
    assert table.snapshot().equals(before)
    assert (table.size_bytes, len(table), table.delta()) == (size, 3000, None)
    assert table.lookup(range_of(3500))["found"].to_pylist() == [True] * 3000 + [False] * 500
    table.add([3000, 0], n=5)
    assert table.scan()["n"].to_pylist()[-1] == 5


def range_of(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def test_lookup_is_aligned_with_its_keys() -> None:
    table = Table(key=pa.string(), n=pa.int64(), s=pa.string())
    table.upsert(["a", "b"], n=[1, 2], s=["x", None])
    assert table.lookup(pa.array(["z", "b", "a", "b"])).to_pydict() == {
        "key": ["z", "b", "a", "b"],
        "n": [None, 2, 1, 2],
        "s": [None, None, "x", None],
        "found": [False, True, True, True],
    }
    assert counts().lookup(["a"]).to_pylist() == [{"key": "a", "n": None, "found": False}]


def test_delete_counts_what_was_there_and_a_key_that_comes_back_starts_again() -> None:
    table = counts()
    table.add(["a", "b"], n=5)
    assert table.delete(["a", "a", "q"]) == 1
    assert table.scan().to_pydict() == {"key": ["b"], "n": [5]}
    assert table.add(["a"], n=1).to_pydict() == {"key": ["a"], "n": [1]}
    assert table.scan()["key"].to_pylist() == ["b", "a"]


def test_composite_keys() -> None:
    table = Table(key={"user": pa.string(), "day": pa.date32()}, n=pa.int64())
    keys = {"user": ["x", "y", "x", "x"], "day": [DAY, DAY, DAY, datetime.date(2026, 1, 1)]}
    changed = table.add(keys, n=1)
    assert changed["user"].to_pylist() == ["x", "y", "x"]
    assert changed["n"].to_pylist() == [2, 1, 1]
    found = table.lookup(pa.table({"day": [DAY], "user": ["y"], "other": [0]}))
    assert found.to_pylist() == [{"user": "y", "day": DAY, "n": 1, "found": True}]
    assert table.delete(changed) == 3


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string(), ["a", "", "\u00e4"]),
        (pa.large_string(), ["a", "b", "c"]),
        (pa.binary(), [b"\xff", b"", b"\0"]),
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (pa.uint64(), [0, 1, 2**64 - 1]),
        (pa.int8(), [-128, 0, 127]),
        (pa.date32(), [DAY, datetime.date(1969, 1, 1), datetime.date(1970, 1, 1)]),
        (pa.timestamp("ms"), [datetime.datetime(2026, 1, n) for n in (1, 2, 3)]),
    ],
)
def test_key_types_survive_lookup_delta_and_restore(kind: pa.DataType, keys: list[Any]) -> None:
    table = Table(key=kind, n=pa.int64())
    changed = table.add(pa.array([*keys, keys[0]], kind), n=1)
    assert changed["key"].to_pylist() == keys
    assert changed["n"].to_pylist() == [2, 1, 1]
    copies = table.fresh(), table.fresh()
    copies[0].restore(table.snapshot())
    delta = table.delta()
    assert delta is not None
    copies[1].apply(delta)
    for copy in copies:
        assert copy.snapshot().equals(table.snapshot())
        assert copy.lookup(pa.array(keys, kind))["found"].to_pylist() == [True] * 3


def test_value_types_survive_a_restore() -> None:
    types = {
        "f": (pa.float32(), 0.5), "b": (pa.bool_(), True), "s": (pa.string(), "\u00e4"),
        "y": (pa.binary(), b"\0"), "t": (pa.timestamp("us", "UTC"), None),
        "l": (pa.list_(pa.int64()), [1, 2]), "r": (pa.struct({"x": pa.int8()}), {"x": 1}),
        "d": (pa.decimal128(5, 2), None), "u": (pa.duration("s"), datetime.timedelta(1)),
    }  # fmt: skip
    table = Table(key=pa.string(), **{name: kind for name, (kind, _) in types.items()})
    table.upsert(["a", "b"], **{n: pa.array([v, None], kind) for n, (kind, v) in types.items()})
    copy = table.fresh()
    copy.restore(table.snapshot())
    assert copy.snapshot().equals(table.snapshot())
    assert copy.lookup(["a"]).to_pylist()[0]["l"] == [1, 2]
    assert copy.size_bytes == table.size_bytes


def test_null_keys_are_refused_with_their_row() -> None:
    table = Table(key={"user": pa.string(), "day": pa.date32()}, n=pa.int64())
    with pytest.raises(BadInputError, match="'day' is null in row 1"):
        table.add({"user": ["a", "b"], "day": [DAY, None]}, n=1)
    for call in (table.upsert, table.lookup, table.delete):
        with pytest.raises(BadInputError, match="'user' is null in row 0"):
            call({"user": [None], "day": [DAY]})
    assert len(table) == 0


@pytest.mark.parametrize(
    ("keys", "amounts", "message"),
    [
        (["a"], {"m": 1}, "no column 'm'; the table has"),
        (["a"], {"s": 1}, "not a number"),
        (["a"], {"n": [1, 2]}, "2 rows, the keys have 1"),
        (["a"], {"n": 0.5}, "column 'n': expected int64"),
        (["a"], {"n": "x"}, "column 'n': expected int64"),
        ([1.5], {"n": 1}, "key column 'key': expected string"),
        ({"user": ["a"]}, {"n": 1}, r"key columns \['key'\] are missing"),
        (["a"], {"n": 2**63 - 1}, "does not fit into int64"),
        (["b", "b"], {"n": 2**62}, "does not fit into int64"),
        (["b", "a", "b"], {"n": [-(2**63), 0, -1]}, "does not fit into int64"),
    ],
)
def test_refused_input_changes_nothing(keys: Any, amounts: dict[str, Any], message: str) -> None:
    table = Table(key=pa.string(), n=pa.int64(), s=pa.string())
    table.add(["a"], n=1)
    table.commit()
    before = table.snapshot()
    with pytest.raises(BadInputError, match=message):
        table.add(keys, **amounts)
    assert table.snapshot().equals(before)
    assert table.delta() is None


def test_large_amounts_that_cancel_out_are_not_refused() -> None:
    table = counts()
    table.add(["a", "a", "a"], n=[2**62, -(2**62), 2**62])
    assert table.scan()["n"].to_pylist() == [2**62]


def test_declarations_that_cannot_work_are_refused() -> None:
    with pytest.raises(BadInputError, match="of type double"):
        Table(key=pa.float64())
    with pytest.raises(BadInputError, match="no key column"):
        Table(key={})
    with pytest.raises(BadInputError, match="names are taken"):
        Table(key=pa.string(), found=pa.bool_())
    with pytest.raises(BadInputError, match="names are taken"):
        Table(key={"n": pa.string()}, n=pa.int64())


def test_state_of_another_table_is_refused() -> None:
    other = Table(key=pa.string(), m=pa.int64())
    other.add(["a"], m=1)
    delta = other.delta()
    assert delta is not None
    with pytest.raises(BadInputError, match="not of a table with"):
        counts().restore(other.snapshot())
    with pytest.raises(BadInputError, match="not of a table with"):
        counts().apply(delta)


def test_size_follows_the_rows() -> None:
    table = Table(key=pa.string(), s=pa.string(), n=pa.int64())
    assert table.size_bytes == 0
    table.upsert(["ab"], s="xyz", n=1)
    assert table.size_bytes == 2 + 4 + 3 + 4 + 8
    table.upsert(["ab"], s="x")
    assert table.size_bytes == 2 + 4 + 1 + 4 + 8
    table.delete(["ab"])
    assert table.size_bytes == 0


def test_compaction_keeps_rows_order_and_the_change_set() -> None:
    table = counts()
    names = [f"k{i}" for i in range(5000)]
    table.add(names, n=1)
    table.commit()
    table.add(["k4999", "k0", "new"], n=1)
    table.delete(names[1:4999])
    assert table.scan().to_pydict() == {"key": ["k0", "k4999", "new"], "n": [2, 2, 1]}
    assert table.add(["k4999"], n=1).to_pydict() == {"key": ["k4999"], "n": [3]}
    base = counts()
    base.add(names, n=1)
    base.commit()
    delta = table.delta()
    assert delta is not None
    assert delta.num_rows == 4998 + 3
    base.apply(delta)
    assert base.scan().equals(table.scan())


class Base:
    total = counts()
    seen = Value(pa.int64(), default=0)


class Derived(Base):
    seen = None  # type: ignore[assignment]  # what the test is about
    last = Value(pa.string())


def test_bind_gives_each_instance_its_own_state() -> None:
    one, two = Base(), Base()
    live = bind(one)
    bind(two)
    assert list(live) == ["total", "seen"]
    assert live["total"] is one.total
    one.total.add(["a"], n=1)
    one.seen.set(3)
    assert (len(one.total), one.seen.get()) == (1, 3)
    assert (len(two.total), two.seen.get()) == (0, 0)
    assert len(Base.total) == 0


def test_schema_of_follows_inheritance() -> None:
    total = {"kind": "table", "key": {"key": "string"}, "columns": {"n": "int64"}}
    assert schema_of(Base) == {"total": total, "seen": {"kind": "value", "type": "int64"}}
    assert schema_of(Derived) == {"total": total, "last": {"kind": "value", "type": "string"}}


def test_memory_of_a_key() -> None:
    keys = pa.array([f"key{n:07d}" for n in range(100_000)])  # ten characters
    tracemalloc.start()
    try:
        table = counts()
        for start in range(0, len(keys), 5000):
            table.add(keys.slice(start, 5000), n=1)
            table.commit()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 59 < used / len(keys) < 150  # a string of ten characters alone is 59 bytes
