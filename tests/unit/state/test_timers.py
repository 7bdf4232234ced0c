"""Timers against a dictionary in plain Python, and the same again after crashes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.state import Timers

KEYS = st.lists(st.sampled_from("abcdefgh"), max_size=5)
STEP = st.tuples(st.sampled_from(["set", "cancel", "due", "commit"]), KEYS, st.integers(0, 20))


def timers(**more: Any) -> Timers:
    return Timers(key=pa.string(), **more)


def array(keys: list[str]) -> pa.Array:
    return pa.array(keys, pa.string())


@given(st.lists(STEP, max_size=40))
def test_due_timers_are_those_of_a_dictionary(steps: list[tuple[str, list[str], int]]) -> None:
    live, copy = timers(), timers()
    model: dict[str, int] = {}
    for kind, keys, at in steps:
        if kind == "set":
            times = [at + i for i in range(len(keys))]
            live.set(array(keys), pa.array(times, pa.int64()))
            model.update(zip(keys, times, strict=True))
        elif kind == "cancel":
            gone = {k for k in keys if model.pop(k, None) is not None}
            assert live.cancel(array(keys)) == len(gone)
        elif kind == "due":
            expected = sorted((t, k) for k, t in model.items() if t <= at)
            found = live.due(at).to_pydict()
            assert sorted(zip(found["at"], found["key"], strict=True)) == expected
            assert found["at"] == sorted(found["at"])
            model = {k: t for k, t in model.items() if t > at}
        else:
            delta = live.delta()
            live.commit()
            if delta is not None:
                copy.apply(delta)
            # Who restores finds the same, in the same order.
            assert copy.snapshot().equals(live.snapshot())
            other = copy.fresh()
            other.restore(copy.snapshot())
            assert other.due(at).equals(_copy(live).due(at))
    assert dict(zip(*live.scan().to_pydict().values(), strict=True)) == model


def _copy(live: Timers) -> Timers:
    fresh = live.fresh()
    fresh.restore(live.snapshot())
    return fresh


def test_equal_times_are_due_in_the_order_in_which_they_came() -> None:
    live = timers()
    live.set(array(["c", "a", "b"]), pa.array([5, 5, 4]))
    assert live.due(5).to_pydict() == {"key": ["b", "c", "a"], "at": [4, 5, 5]}
    assert live.due(99).num_rows == 0


def test_what_is_not_due_costs_no_look_at_the_rows() -> None:
    live = timers()
    live.set(array(["a", "b"]), pa.array([50, 10]))
    assert live.due(10)["key"].to_pylist() == ["b"]
    live.commit()
    live.scan = None  # type: ignore[method-assign, assignment]
    assert live.due(49).num_rows == 0
    live.set(array(["c"]), 20)
    assert live.due(19).num_rows == 0
    del live.scan
    assert live.due(20)["key"].to_pylist() == ["c"]


def test_composite_keys_and_one_time_for_all() -> None:
    live = Timers(key={"user": pa.string(), "day": pa.int64()})
    live.set(pa.table({"user": ["x", "x"], "day": [1, 2]}), 7)
    live.cancel({"user": pa.array(["x"]), "day": pa.array([1])})
    assert live.due(7).to_pylist() == [{"user": "x", "day": 2, "at": 7}]


def test_what_is_refused() -> None:
    with pytest.raises(BadInputError, match="written with set"):
        timers().upsert(array(["a"]), at=1)
    with pytest.raises(BadInputError, match="written with set"):
        timers().add(array(["a"]), at=1)
    with pytest.raises(BadInputError, match="set to null: expected milliseconds"):
        timers().set(array(["a"]), pa.array([None], pa.int64()))
    with pytest.raises(BadInputError, match="expected 'event' or 'token'"):
        timers(time="wall")
    assert timers().schema() != timers(time="token").schema()
