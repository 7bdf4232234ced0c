"""Texts by slot against lists, also out of slices of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.kernels import texts

TEXTS = st.lists(st.none() | st.text(max_size=6), max_size=60)
NAMES = st.lists(st.text("ab", max_size=2), min_size=1, max_size=60)


def heaped(values: list[str | None]) -> tuple[Any, Any, Any]:
    """Heap, starts and widths, in which the last text comes first."""
    heap, starts, widths = b"", np.full(len(values), -1), np.zeros(len(values), np.int32)
    for slot in reversed(range(len(values))):
        value = values[slot]
        if value is not None:
            starts[slot], widths[slot] = len(heap), len(value.encode())
            heap += value.encode()
    return np.frombuffer(heap, np.uint8), starts, widths


@given(TEXTS)
def test_taken_texts_are_those_that_were_put_there(values: list[str | None]) -> None:
    found = texts.take(*heaped(values), pa.string())
    found.validate(full=True)
    assert found.to_pylist() == values


@given(NAMES, NAMES, st.integers(0, 3), st.randoms())
def test_equal_is_as_in_python(held: list[str], values: list[str], start: int, chance: Any) -> None:
    array = pa.array(["", *"xyz"[:start], *values])[start + 1 :]
    pairs = [(chance.randrange(len(held)), chance.randrange(len(values))) for _ in range(50)]
    slots, rows = (np.array(c) for c in zip(*pairs, strict=True))
    wanted = [held[s] == values[r] for s, r in pairs]
    assert texts.equal(*heaped(list(held)), slots, array, rows).tolist() == wanted
    for s, r in pairs:
        one, other = np.array([r]), np.array([s % len(values)])
        assert texts.agree(array, one, other) == (values[r] == values[s % len(values)])


def test_a_null_is_equal_to_no_text() -> None:
    zero = np.zeros(1, np.int64)
    assert not texts.equal(*heaped([None]), zero, pa.array([""]), zero)[0]
    assert texts.equal(*heaped([""]), zero, pa.array([""]), zero)[0]


def test_places_out_of_bounds_are_refused() -> None:
    heap, starts, widths = heaped(["ab"])
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    with pytest.raises(AssertionError, match="heap"):
        texts.take(heap, starts, widths + np.int32(1), pa.string())
    with pytest.raises(AssertionError, match="slots"):
        texts.equal(heap, starts, widths, one, pa.array(["ab"]), zero)
    with pytest.raises(AssertionError, match="rows"):
        texts.equal(heap, starts, widths, zero, pa.array(["ab"]), one)
    with pytest.raises(AssertionError, match="rows"):
        texts.agree(pa.array(["ab"]), one, zero)
