"""Columns of strings and binaries against a list, with a heap that is rewritten all the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.state import Table
from perseid.state.primitives import texts
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.texts import TextColumn

SLOTS = 8
VALUE = st.none() | st.text("aé", max_size=4)
WRITE = st.dictionaries(st.integers(0, SLOTS - 1), VALUE, min_size=1)
STEP = st.one_of(
    st.tuples(st.just("put"), WRITE), st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("rollback"), st.none()),
)  # fmt: skip
KINDS = st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])


@given(st.lists(STEP, max_size=30), KINDS, st.integers(0, 2))
def test_a_column_holds_what_was_put_and_not_taken_back(
    steps: list[tuple[str, Any]], kind: pa.DataType, start: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(texts, "HEAP_MIN", 4)
        column = TextColumn(kind)
        column.grow(SLOTS)
        now, committed = [None] * SLOTS, [None] * SLOTS
        for what, written in steps:
            if what == "put":
                slots = np.array(list(written))
                values = [None, "x", *written.values()]
                column.save(slots)
                column.put(slots, pa.array(values, pa.string())[2:].cast(kind))
                for slot, value in written.items():
                    now[slot] = value
            elif what == "commit":
                column.commit()
                committed = list(now)
            else:
                column.rollback()
                now = list(committed)
            assert listed(column.take(slice(None))) == now
            assert listed(column.committed(np.arange(SLOTS)[start:])) == committed[start:]
            assert column.variable_bytes == sum(len((v or "").encode()) for v in now)
        column.commit()
        assert column._used <= max(4, 2 * column.variable_bytes)


def listed(found: Any) -> list[str | None]:
    found.validate(full=True)
    return [v.decode() if isinstance(v, bytes) else v for v in found.to_pylist()]


def test_a_slot_that_was_never_written_or_was_dropped_is_null() -> None:
    column = TextColumn(pa.string())
    column.grow(2)
    column.put(np.array([0]), pa.array(["a"]))
    column.grow(4)
    assert column.take(slice(None)).to_pylist() == ["a", None, None, None]
    column.weigh(np.array([0]), -1)
    column.drop(np.array([0]))
    assert column.take(slice(0, 1)).to_pylist() == [None]
    assert column.variable_bytes == 0


def test_more_than_one_array_holds_comes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "ARRAY_MAX", 5)
    monkeypatch.setattr(texts, "HEAP_MIN", 1)
    table = Table(key=pa.string(), n=pa.int64())
    names = [f"n{i}" for i in range(20)]
    table.add(names, n=1)
    assert table.snapshot()["key"].num_chunks > 1
    table.delete(names[:15])
    table.commit()  # rewrites the heap, in pieces
    table.add(names[10:], n=2)
    assert table.scan().to_pydict() == {
        "key": [*names[15:], *names[10:15]], "n": [3] * 5 + [2] * 5,
    }  # fmt: skip


def test_keys_with_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    from perseid.state.primitives import keys

    monkeypatch.setattr(keys, "hash_texts", lambda values: np.zeros(len(values), np.int64))
    found = KeyFields(pa.string()).distinct(["b", "a", "b", "", "a"])
    assert found.arrays[0].to_pylist() == ["b", "a", ""]
    assert found.numbers().tolist() == [0, 1, 0, 2, 1]
