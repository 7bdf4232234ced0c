"""The vectorised hash against the xxhash library."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from perseid.state.primitives import xxh64

SEEDS = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(st.binary(max_size=80), SEEDS), max_size=30), st.integers(0, 3))
def test_bytes(rows: list[tuple[bytes, int]], skip: int) -> None:
    values = pa.array([value for value, _ in rows], pa.large_binary()).slice(skip)
    seeds = np.array([seed for _, seed in rows][skip:], np.uint64)
    wanted = [xxhash.xxh64_intdigest(value, seed) for value, seed in rows][skip:]
    assert xxh64.of_bytes(values, seeds).tolist() == wanted


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), SEEDS), max_size=20))
def test_integers(rows: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in rows], np.int64)
    seeds = np.array([seed for _, seed in rows], np.uint64)
    eight = [xxhash.xxh64_intdigest(v.to_bytes(8, "little", signed=True), s) for v, s in rows]
    assert xxh64.of_int64(values, seeds).tolist() == eight
    low = [(v & 0xFFFFFFFF).to_bytes(4, "little") for v, _ in rows]
    four = [xxhash.xxh64_intdigest(v, s) for v, (_, s) in zip(low, rows, strict=True)]
    assert xxh64.of_int32(values, seeds).tolist() == four
