"""Table against a plain dictionary, and base plus deltas against the live table, in any order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.state import Table
from perseid.state.arrow import ipc_bytes, ipc_table

KEYS = st.lists(st.integers(0, 30).map(str), max_size=12)
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), max_size=8)
AMOUNT = st.integers(-5, 5)


def step(keys: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[tuple[Any, ...]]:
    rows = keys.flatmap(
        lambda chosen: st.tuples(
            st.just(chosen),
            st.lists(st.none() | AMOUNT, min_size=len(chosen), max_size=len(chosen)),
        )
    )
    return st.one_of(
        st.tuples(st.just("add"), rows),
        st.tuples(st.just("upsert"), rows),
        st.tuples(st.just("delete"), rows),
        st.tuples(st.just("commit")),
    )


def new_table(composite: bool) -> Table:
    key: Any = {"i": pa.int16(), "j": pa.string()} if composite else pa.string()
    return Table(key=key, n=pa.int64(), s=pa.string())


def as_keys(keys: list[Any], composite: bool) -> Any:
    if not composite:
        return pa.array(keys, pa.string())
    return {
        "i": pa.array([k[0] for k in keys], pa.int16()),
        "j": pa.array([k[1] for k in keys], pa.string()),
    }


Model = dict[Any, tuple[int | None, str | None]]


def run(table: Table, model: Model, name: str, rows: Any, composite: bool) -> None:
    """One operation on both; the answer of the table must be the model's."""
    chosen, amounts = rows
    keys = as_keys(chosen, composite)
    if name == "delete":
        there = {key for key in chosen if model.pop(key, None) is not None}
        assert table.delete(keys) == len(there)
        return
    if name == "add":
        for key, amount in zip(chosen, amounts, strict=True):
            n, s = model.get(key, (0, None))
            model[key] = ((n or 0) + (amount or 0), s)
        changed = table.add(keys, n=pa.array(amounts, pa.int64()))
    else:
        for key, amount in zip(chosen, amounts, strict=True):
            model[key] = (amount, str(amount))
        texts = pa.array(map(str, amounts), pa.string())
        changed = table.upsert(keys, n=pa.array(amounts, pa.int64()), s=texts)
    assert rows_of(changed, composite) == [(key, *model[key]) for key in dict.fromkeys(chosen)]


def rows_of(table: pa.Table, composite: bool) -> list[Any]:
    columns = [table[name].to_pylist() for name in table.schema.names]
    if composite:
        columns = [list(zip(columns[0], columns[1], strict=True)), *columns[2:]]
    return list(zip(*columns, strict=True))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_base_and_deltas_are_the_state_at_every_commit(
    data: st.DataObject, composite: bool
) -> None:
    steps = data.draw(st.lists(step(PAIRS if composite else KEYS), max_size=25))
    live, follower, model = new_table(composite), new_table(composite), dict[Any, Any]()
    snapshots: list[tuple[pa.Table, list[pa.Table]]] = [(live.snapshot(), [])]
    base_keys: set[Any] = set()
    for name, *rows in [*steps, ("commit",)]:
        if name != "commit":
            run(live, model, name, rows[0], composite)
            continue
        delta = live.delta()
        if delta is not None:
            delta = ipc_table(ipc_bytes(delta))
            assert_net(delta, base_keys, set(model), composite)
            follower.apply(delta)
            for _, later in snapshots:
                later.append(delta)
        live.commit()
        assert live.delta() is None
        assert rows_of(live.scan(), composite) == [(k, *v) for k, v in model.items()]
        assert follower.scan().equals(live.scan())
        assert follower.delta() is None
        assert follower.size_bytes == live.size_bytes
        snapshots.append((ipc_table(ipc_bytes(live.snapshot())), []))
        base_keys = set(model)
    for base, deltas in snapshots:
        restored = new_table(composite)
        restored.restore(base)
        restored.apply_all(deltas)
        assert restored.scan().equals(live.scan())
        assert restored.size_bytes == live.size_bytes


def assert_net(delta: pa.Table, before: set[Any], after: set[Any], composite: bool) -> None:
    """Each deleted key was in the base, each changed key is in the state, none comes twice."""
    gone = [row[0] for row in rows_of(delta, composite) if row[-1]]
    changed = [row[0] for row in rows_of(delta, composite) if not row[-1]]
    assert len(set(gone)) == len(gone) and set(gone) <= before
    assert len(set(changed)) == len(changed) and set(changed) <= after
    assert before - after <= set(gone)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(40, 400)), max_size=30), st.booleans())
def test_a_sliding_window_of_keys_stays_right_through_compactions(
    moves: list[tuple[int, int]], commits: bool
) -> None:
    live, follower, model = new_table(False), new_table(False), dict[Any, Any]()
    first = last = 0
    for gone, come in moves:
        fresh = [str(k) for k in range(last, last + come)]
        run(live, model, "add", (fresh, [1] * come), False)
        old = [str(k) for k in range(first, first + gone * 8)]
        run(live, model, "delete", (old, []), False)
        first, last = first + gone * 8, last + come
        if commits:
            delta = live.delta()
            if delta is not None:
                follower.apply(delta)
            live.commit()
    delta = live.delta()
    if delta is not None:
        follower.apply(delta)
    assert rows_of(live.scan(), False) == [(k, *v) for k, v in model.items()]
    assert follower.scan().equals(live.scan())
    assert follower.size_bytes == live.size_bytes
