"""Columns of strings and binaries: their bytes in one heap, a start and a width by slot.

Written texts go to the heap's end and stay there until the commit, so a rollback only restores
starts and widths. The heap is rewritten once no more than half of it is in use. No text becomes a
Python object, which would cost 60 bytes and 100 ns each.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa

from perseid.kernels import texts
from perseid.kernels.library import text_bytes, text_ends
from perseid.state.primitives.columns import Column, is_text, short_kind, stored
from perseid.state.primitives.undo import Cells, Slots, Values

NULL = -1  # the start of a null, and of an unwritten slot
HEAP_MIN = 1 << 16
ARRAY_MAX = (1 << 31) - 1  # bytes of one Arrow array


def column_of(kind: pa.DataType) -> Column:
    """A column for values of `kind`."""
    return TextColumn(kind) if is_text(kind) else Column(kind)


class TextColumn(Column):
    """Texts by slot. Unwritten slots hold null."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._cells = Cells(np.zeros(0, np.int64), None, np.zeros(0, np.int32))
        self._heap = np.zeros(0, np.uint8)
        self._used = 0

    def grow(self, capacity: int) -> None:
        before = len(self._cells.values)
        super().grow(capacity)
        self._cells.values[before:] = NULL

    def put(self, slots: Slots | slice, values: pa.Array, as_stored: Any = None) -> None:
        values = stored(values) if as_stored is None else as_stored
        ends = text_ends(values)
        starts = ends[:-1] + np.int64(self._used - int(ends[0]))
        widths = np.diff(ends)
        self._append(values, int(ends[0]), int(ends[-1]))
        if values.null_count:
            null = values.is_null().to_numpy(zero_copy_only=False)
            starts[null], widths[null] = NULL, 0
        self._cells.values[slots] = starts
        self._account(slots, widths)

    def put_rows(self, slots: Slots, values: pa.Array, as_stored: Any, rows: Slots) -> None:
        self.put(slots, values, as_stored.take(pa.array(rows)))

    def equal(self, slots: Slots, values: Any, rows: Slots) -> Values:
        return texts.equal(self._heap, self._cells.values, self._widths, slots, values, rows)

    def take(self, slots: Slots | slice) -> pa.Array:
        return self._arrow(self._cells.at(slots))

    def drop(self, slots: Slots) -> None:
        self._cells.values[slots] = NULL
        self._widths[slots] = 0

    def commit(self) -> None:
        super().commit()
        self._tidy()

    def rollback(self) -> None:
        super().rollback()
        self._tidy()

    def _arrow(self, cells: Cells) -> Any:
        """One array; a chunked one if that is too small for them."""
        pieces = [piece.cast(self.kind) for piece in self._pieces(cells)]
        return pieces[0] if len(pieces) == 1 else pa.chunked_array(pieces)

    def _pieces(self, cells: Cells) -> list[pa.Array]:
        widths = cast(Values, cells.widths)
        if int(widths.sum()) <= ARRAY_MAX:
            return [texts.take(self._heap, cells.values, widths, short_kind(self.kind))]
        half = len(widths) // 2
        parts = (cells.at(slice(0, half)), cells.at(slice(half, None)))
        return [piece for part in parts for piece in self._pieces(part)]

    def _append(self, values: pa.Array, start: int, stop: int) -> None:
        needed = self._used + stop - start
        if needed > len(self._heap):
            heap = np.empty(max(needed, len(self._heap) * 3 // 2, HEAP_MIN), np.uint8)
            heap[: self._used] = self._heap[: self._used]
            self._heap = heap
        if stop > start:
            data = np.frombuffer(values.buffers()[2], np.uint8, stop - start, start)
            self._heap[self._used : needed] = data
        self._used = needed

    def _tidy(self) -> None:
        """Rewrites the heap when most of it is unused; call it only without uncommitted changes."""
        if self._used <= max(HEAP_MIN, 2 * self._bytes):
            return
        pieces = self._pieces(self._cells)
        self._heap, self._used = np.zeros(0, np.uint8), 0
        for piece in pieces:
            self._append(piece, 0, text_bytes(piece))
        starts = np.cumsum(self._widths, dtype=np.int64) - self._widths
        self._cells.values = np.where(self._cells.values >= 0, starts, NULL)

    @property
    def _widths(self) -> Values:
        return cast(Values, self._cells.widths)
