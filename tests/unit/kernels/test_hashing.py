"""Hashes of whole arrays, also of slices and of what lies under nulls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from perseid.kernels.hashing import murmur2, xxh64

VALUES = st.lists(st.none() | st.binary(max_size=100), max_size=20)


@given(VALUES, st.integers(0, 3), st.integers(0, 2**64 - 1))
def test_xxh64_is_the_librarys(values: list[bytes | None], start: int, seed: int) -> None:
    array = pa.array(values, pa.binary())[start:]
    seeds = np.arange(len(array), dtype=np.uint64) ^ np.uint64(seed)
    wanted = [xxhash.xxh64_intdigest(v or b"", int(s))
              for v, s in zip(values[start:], seeds, strict=True)]  # fmt: skip
    assert xxh64(array, seeds).tolist() == wanted


@given(VALUES, st.integers(0, 3))
def test_a_value_has_the_same_murmur2_wherever_it_stands(
    values: list[bytes | None], start: int
) -> None:
    array = pa.array(values, pa.binary())
    alone = [int(murmur2(pa.array([v], pa.binary()))[0]) for v in values]
    assert murmur2(array).tolist() == alone
    assert murmur2(array[start:]).tolist() == alone[start:]


def test_what_lies_under_a_null_is_not_hashed() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    array = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x01"), offsets, pa.py_buffer(b"ab")]
    )
    assert array.to_pylist() == [b"a", None]
    for function in (murmur2, lambda a: xxh64(a, np.zeros(len(a), np.uint64))):
        assert function(array).tolist() == function(pa.array([b"a", b""])).tolist()
