"""Value: what operators see, its changes, and how far it is from a backup."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.state import Value
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

NUMBER = st.none() | st.integers(-(2**63), 2**63 - 1)
STEP: st.SearchStrategy[tuple[str, int | None]] = st.one_of(
    st.tuples(st.just("set"), NUMBER),
    st.tuples(st.sampled_from(["commit", "rollback", "mark"]), st.none()),
)


def test_value_delta_is_there_only_after_a_set() -> None:
    value, copy = Value(pa.string(), default="x"), Value(pa.string(), default="x")
    assert value.delta() is None
    value.set("\u00e4b")
    delta = value.delta()
    assert delta is not None
    copy.apply(delta)
    assert copy.get() == "\u00e4b"
    assert (copy.delta(), copy.rows, copy.size_bytes) == (None, 1, 7)
    value.commit()
    assert value.delta() is None
    value.set(None)
    copy.restore(value.snapshot())
    assert copy.get() is None
    with pytest.raises(BadInputError, match="expected string, found int"):
        value.set(1)
    with pytest.raises(BadInputError, match="not of a Value"):
        value.restore(pa.table({"x": [1]}))


def test_value_rolls_back_to_its_last_commit() -> None:
    value = Value(pa.int64(), default=3)
    value.set(4)
    value.rollback()
    assert (value.get(), value.delta()) == (3, None)
    value.set(5)
    value.commit()
    value.set(6)
    value.rollback()
    assert value.get() == 5


@given(st.lists(STEP, max_size=30))
def test_base_and_deltas_are_the_value_at_every_commit(steps: list[tuple[str, Any]]) -> None:
    live, follower = Value(pa.int64(), default=1), Value(pa.int64(), default=1)
    now: int | None = 1
    committed, marked = now, None
    bases: list[tuple[pa.Table, list[pa.Table]]] = [(live.snapshot(), [])]
    values = [now]  # at each base
    for name, number in [*steps, ("commit", None)]:
        if name == "set":
            live.set(number)
            now = number
        elif name == "commit":
            delta = live.delta()
            if delta is not None:
                delta = ipc_table(ipc_bytes(delta))
                follower.apply(delta)
            live.commit()
            committed = now
            for base, deltas in bases:
                if delta is not None:
                    deltas.append(delta)
                assert restored(base, deltas) == now
            bases.append((ipc_table(ipc_bytes(live.snapshot())), []))
            values.append(now)
        else:
            live.rollback()
            now = committed
            if name == "mark":
                live.mark_backup()
                follower.mark_backup()
                marked = committed or 0
        assert live.get() == now
        if marked is not None:
            apart = float(abs((committed or 0) - marked))
            assert live.divergence("difference") == follower.divergence("difference") == apart
    assert [base["value"][0].as_py() for base, _ in bases] == values


def restored(base: pa.Table, deltas: list[pa.Table]) -> Any:
    value = Value(pa.int64())
    value.restore(base)
    value.apply_all(deltas)
    return value.get()


@pytest.mark.parametrize(
    ("kind", "then", "now", "expected"),
    [
        (pa.int64(), 10, 3, 7.0),
        (pa.int64(), -(2**63), 2**63 - 1, float(2**64)),
        (pa.int64(), 2**62, 2**62 + 1, 1.0),
        (pa.uint64(), 0, 2**64 - 1, float(2**64)),
        (pa.float32(), 0.5, None, 0.5),
        (pa.float64(), math.nan, math.nan, 0.0),
        (pa.float64(), math.nan, 1.0, math.inf),
        (pa.float64(), math.inf, math.inf, 0.0),
    ],
)
def test_value_difference(kind: pa.DataType, then: Any, now: Any, expected: float) -> None:
    value = Value(kind)
    value.set(then)
    value.commit()
    value.mark_backup()
    assert value.divergence("difference") == 0
    value.set(now)
    assert value.divergence("difference") == 0  # it is of the last commit
    value.commit()
    assert value.divergence("difference") == expected
    copy = value.fresh()
    copy.mark_backup()
    copy.restore(value.snapshot())
    with pytest.raises(BadInputError, match="again after a restore"):
        copy.divergence("difference")


def test_value_that_is_no_number_has_no_divergence() -> None:
    with pytest.raises(BadInputError, match="value of type string has no divergence 'difference'"):
        Value(pa.string()).divergence("difference")
