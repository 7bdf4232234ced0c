"""Set: what operators see, and that it is a set of Python's at every commit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.state import Set
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

MEMBERS = st.lists(st.integers(-3, 12), max_size=10)
STEP: st.SearchStrategy[tuple[str, list[int]]] = st.one_of(
    st.tuples(st.sampled_from(["add", "discard", "contains"]), MEMBERS),
    st.tuples(st.sampled_from(["commit", "rollback", "mark"]), st.just([])),
)


def test_add_returns_which_rows_brought_a_new_member() -> None:
    seen = Set(pa.string())
    assert seen.add(["b", "a", "b"]).to_pylist() == [True, True, False]
    batch = pa.table({"id": ["c", "a", "c"], "n": [1, 2, 3]})
    assert batch.filter(seen.add(batch["id"])).to_pylist() == [{"id": "c", "n": 1}]
    assert seen.scan().to_pydict() == {"key": ["b", "a", "c"]}
    assert (len(seen), seen.size_bytes) == (3, 3 * (4 + 1))


def test_members_of_several_fields() -> None:
    pairs = Set({"user": pa.string(), "page": pa.int32()})
    visits = pa.table({"user": ["x", "y", "x"], "page": [1, 1, 1], "other": [0, 0, 0]})
    assert pairs.add(visits).to_pylist() == [True, True, False]
    assert pairs.contains({"user": ["x", "x"], "page": [1, 2]}).to_pylist() == [True, False]
    with pytest.raises(BadInputError, match="'user' is null in row 1"):
        pairs.add({"user": ["x", None], "page": [1, 1]})


def test_duplicates_within_a_time() -> None:
    seen = Set(pa.string(), ttl=timedelta(seconds=10))
    with pytest.raises(BadInputError, match=r"call advance\(self.now\) before the first write"):
        seen.add(["a"])
    seen.advance(1000)
    seen.add(["a", "b"])
    seen.commit()
    seen.advance(9000)
    assert seen.add(["a"]).to_pylist() == [False]  # and is seen again, so it lives on
    seen.commit()
    assert seen.advance(11_000).to_pydict() == {"key": ["b"]}
    delta = seen.delta()
    assert delta is not None
    assert delta.select(["key", "__deleted"]).to_pylist() == [{"key": "b", "__deleted": True}]
    assert seen.add(["b"]).to_pylist() == [True]


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_it_is_a_set_at_every_commit(steps: list[tuple[str, list[int]]]) -> None:
    live, follower = Set(pa.int64()), Set(pa.int64())
    model: dict[int, None] = {}
    committed: dict[int, None] = {}
    marked: set[int] | None = None
    bases: list[tuple[pa.Table, list[pa.Table]]] = [(live.snapshot(), [])]
    for name, members in [*steps, ("commit", [])]:
        if name == "add":
            brought = [m not in (*model, *members[:i]) for i, m in enumerate(members)]
            assert live.add(pa.array(members, pa.int64())).to_pylist() == brought
            model.update(dict.fromkeys(members))
        elif name == "discard":
            there = {m for m in members if m in model}
            assert live.discard(pa.array(members, pa.int64())) == len(there)
            model = {m: None for m in model if m not in there}
        elif name == "contains":
            found = live.contains(pa.array(members, pa.int64()))
            assert found.to_pylist() == [m in model for m in members]
        elif name == "commit":
            delta = live.delta()
            if delta is not None:
                delta = ipc_table(ipc_bytes(delta))
                follower.apply(delta)
                for _, later in bases:
                    later.append(delta)
            live.commit()
            committed = dict(model)
            bases.append((ipc_table(ipc_bytes(live.snapshot())), []))
        else:
            live.rollback()
            model = dict(committed)
            if name == "mark":
                live.mark_backup()
                follower.mark_backup()
                marked = set(model)
        assert listed(live) == list(model)
        if marked is not None:
            apart = len(marked ^ set(committed))
            assert live.divergence("keys") == follower.divergence("keys") == apart
    assert listed(follower) == list(model)
    for base, deltas in bases:  # through any of them the same members in the same order
        restored = Set(pa.int64())
        restored.restore(base)
        restored.apply_all(deltas)
        assert restored.snapshot().equals(live.snapshot())


def listed(members: Set) -> list[Any]:
    found: list[Any] = members.scan()["key"].to_pylist()
    return found


def test_a_set_has_no_distance_but_its_keys() -> None:
    members = Set(pa.int64())
    with pytest.raises(BadInputError, match="has no divergence 'manhattan'; choose one of keys"):
        members.divergence("manhattan")
    with pytest.raises(BadInputError, match=r"no backup to compare with; call mark_backup\(\)"):
        members.divergence("keys")
