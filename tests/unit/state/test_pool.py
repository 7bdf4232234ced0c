"""Pool: what operators see, and that it is a list of rows at every commit."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.state import Pool
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.chunks import CHUNK_ROWS

TYPES = {"at": pa.timestamp("us", "UTC"), "user": pa.string(), "n": pa.int64()}
ROW = st.tuples(st.integers(0, 20), st.sampled_from("abc"), st.integers(0, 2))
ROWS = st.lists(ROW, max_size=6)
STEP: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.sampled_from(["expire", "between"]), st.integers(0, 20)),
    st.tuples(st.just("match"), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)))),
    st.tuples(st.sampled_from(["commit", "rollback", "mark"]), st.none()),
)


def at(second: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(1_800_000_000 + second, datetime.UTC)


def clicks() -> Pool:
    pool = Pool(TYPES, time="at", key=["user"])
    pool.append({"at": [at(3), at(1), at(2)], "user": ["x", "y", "x"], "n": [1, 2, 3], "more": []})
    return pool


def test_rows_stay_in_the_order_in_which_they_came() -> None:
    pool = clicks()
    assert pool.scan()["n"].to_pylist() == [1, 2, 3]
    assert pool.between(at(2), at(4))["n"].to_pylist() == [1, 3]
    assert pool.between(at(1), at(3))["n"].to_pylist() == [2, 3]
    assert pool.expire(at(2)) == 1
    assert (pool.scan()["n"].to_pylist(), len(pool)) == ([1, 3], 2)
    assert pool.expire(at(2)) == 0


def test_match_gives_pairs_side_by_side() -> None:
    pool = clicks()
    batch = pa.table({"user": ["x", "z", "y", "x"], "m": [10, 20, 30, 40]})
    places, rows = pool.match(batch["user"])
    joined = batch.take(places).append_column("n", rows["n"])
    assert joined.to_pydict() == {
        "user": ["x", "x", "y", "x", "x"], "m": [10, 10, 30, 40, 40], "n": [1, 3, 2, 1, 3],
    }  # fmt: skip
    assert pool.match(pa.array([], pa.string()))[1].num_rows == 0


def test_a_bound_is_a_time_or_milliseconds() -> None:
    ms = 1_800_000_000_000
    for kind, later in (("s", 1), ("ms", 500), ("us", 500), ("ns", 500)):
        pool = Pool({"at": pa.timestamp(kind)}, time="at")
        pool.append(
            {"at": pa.array([ms, ms + 1000], pa.timestamp("ms")).cast(f"timestamp[{kind}]")}
        )
        assert pool.between(ms, ms + later).num_rows == 1
        assert pool.expire(ms + 500) == 1
        assert pool.expire(ms + 1000) == 0
    numbers = Pool({"sequence": pa.int32()}, time="sequence")
    numbers.append({"sequence": [5, 7]})
    assert numbers.between(6, 8).num_rows == 1


def test_a_delta_is_what_came_and_a_bound() -> None:
    pool = clicks()
    pool.commit()
    pool.append({"at": [at(0), at(9)], "user": ["y", "y"], "n": [4, 5]})
    pool.expire(at(3))
    pool.append({"at": [at(0)], "user": ["late"], "n": [6]})  # stays until the next expiry
    delta = pool.delta()
    assert delta is not None
    assert delta["n"].to_pylist() == [5, 6]
    copy = clicks()
    copy.commit()
    copy.apply(ipc_table(ipc_bytes(delta)))
    assert copy.scan()["n"].to_pylist() == pool.scan()["n"].to_pylist() == [1, 5, 6]
    pool.commit()
    pool.expire(at(0))
    assert pool.delta() is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.append({"at": [at(0)], "n": [1]}), r"columns \['user'\] are missing"),
        (lambda p: p.append({"at": [at(0)], "user": ["a"], "n": [1, 2]}), r"lengths \[1, 2\]"),
        (lambda p: p.append({"at": [at(0), None], "user": ["a"] * 2, "n": [1] * 2}),
         "'at' is null in row 1"),
        (lambda p: p.append({"at": [at(0)], "user": [None], "n": [1]}), "'user' is null in row 0"),
        (lambda p: p.append({"at": [at(0)], "user": ["a"], "n": ["x"]}), "'n': expected int64"),
        (lambda p: p.match([1.5]), "key column 'user': expected string"),
        (lambda p: p.expire("yesterday"), "bound of the time column 'at': expected timestamp"),
        (lambda p: p.between(None, at(1)), "a bound in time is null"),
        (lambda p: p.restore(pa.table({"x": [1]})), "is not of a pool with"),
        (lambda p: p.divergence("maximum"), "a pool has no divergence 'maximum'"),
        (lambda p: p.divergence("keys"), r"call mark_backup\(\)"),
        (lambda p: Pool(TYPES, time="at").match(["a"]), "pool without a key"),
        (lambda p: Pool(TYPES, time="when"), r"\['when'\] must be among them"),
        (lambda p: Pool(TYPES, time="user"), "expected a timestamp or an integer"),
    ],
)  # fmt: skip
def test_refused_input_changes_nothing(call: Any, message: str) -> None:
    pool = clicks()
    with pytest.raises(BadInputError, match=message):
        call(pool)
    assert pool.scan().equals(clicks().scan())


def test_many_rows_go_through_several_chunks() -> None:
    count = 5 * CHUNK_ROWS // 2
    chance = np.random.default_rng(5)
    times, users = chance.integers(0, 1000, count), chance.integers(0, 3000, count)
    pool = Pool({"at": pa.int64(), "user": pa.int64(), "row": pa.int64()}, "at", ["user"])
    for part in np.array_split(np.arange(count), 7):
        pool.append({"at": times[part], "user": users[part], "row": part})
        pool.commit()
    alive = times >= 300
    assert pool.expire(300) == count - alive.sum()
    assert pool.scan()["row"].to_numpy().tolist() == np.flatnonzero(alive).tolist()
    wanted = chance.integers(0, 4000, 500)
    places, rows = pool.match(pa.array(wanted))
    expected = [(i, r) for i, w in enumerate(wanted) for r in np.flatnonzero(alive & (users == w))]
    assert list(zip(places.tolist(), rows["row"].to_pylist(), strict=True)) == expected
    inside = np.flatnonzero(alive & (times >= 400) & (times < 420))
    assert pool.between(400, 420)["row"].to_pylist() == inside.tolist()
    assert pool.size_bytes == 24 * alive.sum()


def test_a_pool_does_not_keep_alive_the_batch_that_its_rows_are_of() -> None:
    batch = pa.table({"at": np.arange(100_000), "text": ["x" * 50] * 100_000})
    pool = Pool({"at": pa.int64(), "text": pa.string()}, time="at")
    pool.append(batch.slice(70_000, 100))
    assert pool.scan().get_total_buffer_size() < 100 * (8 + 4 + 50) + 200


def new_pool() -> Pool:
    types = {"at": pa.int64(), "user": pa.string(), "day": pa.int8(), "id": pa.int64()}
    return Pool(types, time="at", key=["user", "day"])


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_it_is_a_list_of_rows_at_every_commit(steps: list[tuple[str, Any]]) -> None:
    live, follower = new_pool(), new_pool()
    model: list[tuple[Any, ...]] = []
    committed: list[tuple[Any, ...]] = []
    marked: set[int] | None = None
    bases: list[tuple[pa.Table, list[pa.Table]]] = [(live.snapshot(), [])]
    came = 0
    for name, value in [*steps, ("commit", None)]:
        if name == "append":
            rows = [(*row, came + i) for i, row in enumerate(value)]
            came += len(rows)
            live.append(as_columns(rows))
            model = model + rows
        elif name == "expire":
            kept = [row for row in model if row[0] >= value]
            assert live.expire(value) == len(model) - len(kept)
            model = kept
        elif name == "between":
            inside = [row for row in model if value <= row[0] < value + 5]
            assert listed(live.between(value, value + 5)) == inside
        elif name == "match":
            places, found = live.match(
                {"user": [u for u, _ in value], "day": [d for _, d in value]}
            )
            pairs = [(i, row) for i, key in enumerate(value) for row in model if row[1:3] == key]
            assert list(zip(places.tolist(), listed(found), strict=True)) == pairs
        elif name == "commit":
            delta = live.delta()
            if delta is not None:
                delta = ipc_table(ipc_bytes(delta))
                assert len(delta) == sum(row not in committed for row in model)
                follower.apply(delta)
                for _, later in bases:
                    later.append(delta)
            live.commit()
            committed = model
            bases.append((ipc_table(ipc_bytes(live.snapshot())), []))
        else:
            live.rollback()
            model = committed
            if name == "mark":
                live.mark_backup()
                follower.mark_backup()
                marked = {row[3] for row in model}
        assert listed(live.scan()) == model
        if marked is not None:
            expected = len(marked ^ {row[3] for row in committed})
            assert live.divergence("keys") == follower.divergence("keys") == expected
    for base, deltas in bases:
        restored = new_pool()
        restored.restore(base)
        restored.apply_all(deltas)
        assert listed(restored.scan()) == listed(follower.scan()) == model
        assert restored.rows == live.rows


def as_columns(rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(("at", "user", "day", "id"))}


def listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [rows[name].to_pylist() for name in rows.schema.names]
    return list(zip(*columns, strict=True))
