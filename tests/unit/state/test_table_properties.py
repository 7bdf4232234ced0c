"""Table against a plain dictionary, and base plus deltas against the live table, in any order."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.state import Table
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

TTL_MS = 2000
KEYS = st.lists(st.integers(0, 30).map(str), max_size=12)
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), max_size=8)
AMOUNT = st.none() | st.integers(-5, 5) | st.just(math.nan)


def step(keys: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[tuple[Any, ...]]:
    rows = keys.flatmap(
        lambda chosen: st.tuples(
            st.just(chosen), st.lists(AMOUNT, min_size=len(chosen), max_size=len(chosen))
        )
    )
    names = ["add", "upsert", "delete", "min", "max"]
    return st.one_of(
        *(st.tuples(st.just(name), rows) for name in names),
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("rollback"), st.integers(0, 3)),
        st.tuples(st.just("mark"), st.just(0)),
    )


def new_table(composite: bool, ttl: bool = False) -> Table:
    key: Any = {"i": pa.int16(), "j": pa.string()} if composite else pa.string()
    return Table(
        key=key, ttl=timedelta(milliseconds=TTL_MS) if ttl else None,
        n=pa.int64(), f=pa.float64(), s=pa.string(),
    )  # fmt: skip


def as_keys(keys: list[Any], composite: bool) -> Any:
    if not composite:
        return pa.array(keys, pa.string())
    return {
        "i": pa.array([k[0] for k in keys], pa.int16()),
        "j": pa.array([k[1] for k in keys], pa.string()),
    }


def whole(amounts: list[Any]) -> list[int | None]:
    """The amounts for an integer column."""
    return [None if a is None or math.isnan(a) else a for a in amounts]


@dataclass
class Model:
    """What a table is, row by row: (n, f, s) by key, in the order in which the keys came."""

    rows: dict[Any, tuple[Any, Any, Any]] = field(default_factory=dict)
    written: dict[Any, int] = field(default_factory=dict)
    now: int = 0

    def write(self, key: Any, n: Any, f: Any, s: Any) -> None:
        self.rows[key] = (n, f, s)
        self.written[key] = self.now

    def expire(self) -> list[Any]:
        gone = [key for key in self.rows if self.written[key] <= self.now - TTL_MS]
        return [(key, *self.rows.pop(key)) for key in gone]

    def fold(self, name: str, key: Any, amount: Any) -> None:
        n, f, s = self.rows.get(key, (None, None, None))
        if name == "add":
            n = (n or 0) + (whole([amount])[0] or 0)
        elif name == "upsert":
            n, f, s = whole([amount])[0], amount, str(amount)
        elif amount is not None and not math.isnan(amount):
            better = min if name == "min" else max
            f = amount if f is None or math.isnan(f) else better(f, amount)
        self.write(key, n, f, s)


def run(table: Table, model: Model, name: str, rows: Any, composite: bool) -> None:
    """One operation on both; the answer of the table must be the model's."""
    chosen, amounts = rows
    keys = as_keys(chosen, composite)
    if name == "delete":
        there = {key for key in chosen if model.rows.pop(key, None) is not None}
        assert table.delete(keys) == len(there)
        return
    for key, amount in zip(chosen, amounts, strict=True):
        model.fold(name, key, amount)
    n, f = pa.array(whole(amounts), pa.int64()), pa.array(amounts, pa.float64())
    if name == "add":
        changed = table.add(keys, n=n)
    elif name == "upsert":
        changed = table.upsert(keys, n=n, f=f, s=pa.array(map(str, amounts), pa.string()))
    else:
        changed = {"min": table.min, "max": table.max}[name](keys, f=f)
    assert rows_of(changed, composite) == plain((k, *model.rows[k]) for k in dict.fromkeys(chosen))


def plain(rows: Any) -> list[Any]:
    """Rows that can be compared: every NaN is the same."""
    return [tuple("NaN" if v is not None and is_nan(v) else v for v in row) for row in rows]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def rows_of(table: pa.Table, composite: bool) -> list[Any]:
    columns = [table[name].to_pylist() for name in table.schema.names]
    if composite:
        columns = [list(zip(columns[0], columns[1], strict=True)), *columns[2:]]
    return plain(zip(*columns, strict=True))


def divergences(now: Model, then: Model) -> dict[str, float]:
    """All distances between two models, from scratch."""
    keys = now.rows.keys() | then.rows.keys()
    nothing = (None, None, None)
    pairs = [(now.rows.get(k, nothing), then.rows.get(k, nothing)) for k in keys]
    apart = [distance(a[i], b[i]) for a, b in pairs for i in (0, 1)]
    differ = sum(
        plain([now.rows.get(k, ())]) != plain([then.rows.get(k, ())]) for k in keys
    )  # fmt: skip
    return {
        "manhattan": sum(apart), "euclidean": math.sqrt(sum(a * a for a in apart)),
        "maximum": max(apart, default=0.0), "keys": float(differ),
    }  # fmt: skip


def distance(a: Any, b: Any) -> float:
    a, b = a or 0.0, b or 0.0
    if math.isnan(a) or math.isnan(b):
        return 0.0 if math.isnan(a) and math.isnan(b) else math.inf
    return abs(float(a) - float(b))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_base_and_deltas_are_the_state_at_every_commit(
    data: st.DataObject, composite: bool, ttl: bool
) -> None:
    steps = data.draw(st.lists(step(PAIRS if composite else KEYS), max_size=25))
    live, follower, model = new_table(composite, ttl), new_table(composite, ttl), Model()
    snapshots: list[tuple[pa.Table, list[pa.Table]]] = [(live.snapshot(), [])]
    committed, marked = copy.deepcopy(model), None

    def begin(elapsed_ms: int) -> None:
        model.now += elapsed_ms
        if ttl:
            assert rows_of(live.advance(model.now), composite) == plain(model.expire())

    begin(0)
    for name, given_rows in [*steps, ("commit", 1)]:
        if name not in ("commit", "rollback", "mark"):
            run(live, model, name, given_rows, composite)
            continue
        if name != "commit":
            live.rollback()
            model = copy.deepcopy(committed)
            assert live.delta() is None
            if name == "mark":
                live.mark_backup()
                follower.mark_backup()
                marked = copy.deepcopy(model)
        else:
            delta = live.delta()
            if delta is not None:
                delta = ipc_table(ipc_bytes(delta))
                assert_net(delta, list(committed.rows), set(model.rows), composite)
                follower.apply(delta)
                for _, later in snapshots:
                    later.append(delta)
            live.commit()
            committed = copy.deepcopy(model)
            snapshots.append((ipc_table(ipc_bytes(live.snapshot())), []))
        assert live.delta() is None
        assert rows_of(live.scan(), composite) == plain((k, *v) for k, v in model.rows.items())
        assert rows_of(follower.snapshot(), composite) == rows_of(live.snapshot(), composite)
        assert follower.delta() is None
        assert follower.size_bytes == live.size_bytes
        if marked is not None:
            expected = divergences(model, marked)
            assert {kind: live.divergence(kind) for kind in expected} == expected
            assert {kind: follower.divergence(kind) for kind in expected} == expected
        begin(given_rows * 700)
    live.rollback()
    for base, deltas in snapshots:
        restored = new_table(composite, ttl)
        restored.restore(base)
        restored.apply_all(deltas)
        assert rows_of(restored.snapshot(), composite) == rows_of(live.snapshot(), composite)
        assert restored.size_bytes == live.size_bytes


def assert_net(delta: pa.Table, then: list[Any], after: set[Any], composite: bool) -> None:
    """Each deleted key was in the base, each changed key is in the state, none comes twice."""
    rows, before = rows_of(delta, composite), set(then)
    if "__row" in delta.schema.names:
        places = [row[-1] for row in rows]
        new = [row[0] for row in rows if row[-1] >= len(then)]
        assert places == sorted(places) and places[len(rows) - len(new) :] == list(
            range(len(then), len(then) + len(new))
        )
        assert not set(new) & before
        unnamed = (None, None) if composite else None
        assert {row[0] for row in rows if row[-1] < len(then)} <= {unnamed}
        gone, changed = [], [*(then[p] for p in places if p < len(then)), *new]
    else:
        gone = [row[0] for row in rows if row[-1]]
        changed = [row[0] for row in rows if not row[-1]]
    assert len(set(gone)) == len(gone) and set(gone) <= before
    assert len(set(changed)) == len(changed) and set(changed) <= after
    assert before - after <= set(gone)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(40, 400), st.booleans()), max_size=30),
    st.booleans(),
)
def test_a_sliding_window_of_keys_stays_right_through_compactions(
    moves: list[tuple[int, int, bool]], commits: bool
) -> None:
    live, follower, model = new_table(False), new_table(False), Model()
    live.mark_backup()
    first = last = 0
    for gone, come, taken_back in moves:
        fresh = [str(k) for k in range(last, last + come)]
        old = [str(k) for k in range(first, first + gone * 8)]
        if taken_back and commits:
            live.add(fresh, n=7)
            live.delete(old)
            live.rollback()
        run(live, model, "add", (fresh, [1] * come), False)
        run(live, model, "delete", (old, []), False)
        first, last = first + gone * 8, last + come
        if commits:
            follow(live, follower)
    follow(live, follower)
    assert rows_of(live.scan(), False) == plain((k, *v) for k, v in model.rows.items())
    assert follower.scan().equals(live.scan())
    assert follower.size_bytes == live.size_bytes
    assert live.divergence("keys") == live.divergence("manhattan") == len(model.rows)


def follow(live: Table, follower: Table) -> None:
    delta = live.delta()
    if delta is not None:
        follower.apply(delta)
    live.commit()
