"""Strings and binaries by slot (`state.texts`), a whole array at once."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.kernels.library import binary, kernels, validity

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


def take(heap: Bytes, starts: Int64s, widths: Int32s, kind: pa.DataType) -> pa.Array:
    """The texts at `starts` as an array of `kind`, string or binary; a negative start is a null.

    Their total size must be below 2 GiB.
    """
    assert len(starts) == len(widths), "a width for each start"
    offsets = np.zeros(len(starts) + 1, np.int32)
    ends = np.cumsum(widths, dtype=np.int64)
    assert not len(ends) or ends[-1] <= np.iinfo(np.int32).max, "less than 2 GiB"
    offsets[1:] = ends
    assert (starts + widths).max(initial=0) <= len(heap), "all of them in the heap"
    starts, widths = np.ascontiguousarray(starts), np.ascontiguousarray(widths)
    data = np.empty(offsets[-1], np.uint8)
    kernels().perseid_texts_take(
        heap.ctypes.data, starts.ctypes.data, widths.ctypes.data, len(starts),
        offsets.ctypes.data, data.ctypes.data,
    )  # fmt: skip
    there = validity((starts >= 0).view(np.uint8))
    buffers = [there, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(starts), buffers)


def equal(
    heap: Bytes, starts: Int64s, widths: Int32s, slots: Int64s, values: pa.Array, rows: Int64s
) -> npt.NDArray[np.bool_]:
    """For each i, whether slot `slots[i]` has the text `values[rows[i]]`, which is not null."""
    assert len(slots) == len(rows), "a row for each slot"
    same = np.empty(len(slots), np.bool_)
    if not len(slots):
        return same
    assert 0 <= slots.min() <= slots.max() < len(starts) == len(widths), "slots"
    assert 0 <= rows.min() <= rows.max() < len(values), "rows"
    slots, rows = np.ascontiguousarray(slots), np.ascontiguousarray(rows)
    kernels().perseid_texts_equal(
        heap.ctypes.data, starts.ctypes.data, widths.ctypes.data, slots.ctypes.data, len(slots),
        byref(binary(values)), rows.ctypes.data, same.ctypes.data,
    )  # fmt: skip
    return same


def agree(values: pa.Array, rows: Int64s, others: Int64s) -> bool:
    """Whether, for every i, the values in `rows[i]` and `others[i]` are equal; none is null."""
    assert len(rows) == len(others), "another row for each"
    if not len(rows):
        return True
    for chosen in (rows, others):
        assert 0 <= chosen.min() <= chosen.max() < len(values), "rows"
    rows, others = np.ascontiguousarray(rows), np.ascontiguousarray(others)
    agreed = kernels().perseid_texts_agree(
        byref(binary(values)), rows.ctypes.data, others.ctypes.data, len(rows)
    )
    return bool(agreed)
