"""Numbers in a fixed number of cells: the common part of `Vector` and `Matrix`.

NumPy in and out. The delta of an epoch is sparse: the changed cells, or all of them when that is
smaller. Divergence needs a copy of the cells at the mark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.columns import Column, conform, numbers, objects, type_is
from perseid.state.primitives.divergence import (
    Distance,
    chosen,
    differences,
    distance,
    same_bits,
    unmarked,
)
from perseid.state.primitives.folds import FOLDS
from perseid.state.primitives.primitive import Primitive
from perseid.state.primitives.undo import Slots, Values

INDEX, VALUE = "index", "value"
INDEX_BYTES = 8
DISTANCES = (Distance.MANHATTAN, Distance.EUCLIDEAN, Distance.MAXIMUM)


class Dense(Primitive):
    """Cells of one number type in a given shape, all zero at first. A subclass sets its `kind`."""

    kind: str

    _column: Column
    _marked: Values | None  # the cells as the backup has them
    _apart: Values  # distance of each cell from that; negative: not measured yet

    def __init__(self, of: pa.DataType, shape: tuple[int, ...], *, nonfinite: bool) -> None:
        self._type = of
        self._shape = shape
        self._nonfinite = nonfinite
        if not (type_is.is_integer(of) or type_is.is_floating(of)):
            raise BadInputError(f"{self.kind} of {of}: expected an integer or floating type")
        if min(shape) < 1:
            raise BadInputError(f"{self.kind} of the shape {shape}: expected 1 or more")
        self._clear()

    # What operators call ------------------------------------------------------------------------

    @property
    def values(self) -> Values:
        """All cells, as a read-only view that follows later changes."""
        view = self._cells().reshape(self._shape)
        view.flags.writeable = False
        return view

    def set(self, values: Any) -> None:
        """Replaces all cells; a single number fills all."""
        new = self._conformed(values, self._shape, "set()")
        self._column.save_all()
        self._write(slice(0, self.rows), new)

    def add(self, amounts: Any) -> None:
        """Adds to all cells; a single number is added to all."""
        cells = np.arange(self.rows)
        self._fold("add", cells, None, self._conformed(amounts, self._shape, "add()"))

    # For subclasses -----------------------------------------------------------------------------

    def _take(self, cells: Slots) -> Values:
        """A copy of the cells, in the shape of the index."""
        taken: Values = self._cells()[cells]
        return taken

    def _set_at(self, cells: Slots, values: Any) -> None:
        new = self._conformed(values, cells.shape, "set_at()")
        flat = cells.reshape(-1)
        last, _ = self._distinct(flat)
        self._column.save(flat[last])
        self._write(flat[last], new.take(pa.array(last)))

    def _fold_at(self, how: str, cells: Slots, amounts: Any) -> None:
        flat = self._conformed(amounts, cells.shape, f"{how}_at()")
        cells = cells.reshape(-1)
        if len(cells) >= self.rows:  # cheaper than finding the distinct cells
            self._fold(how, np.arange(self.rows), cells, flat)
        else:
            last, rows = self._distinct(cells)
            self._fold(how, cells[last], rows, flat)

    def _index(self, index: Any, size: int, what: str) -> Slots:
        """An index as int64, checked; any shape."""
        plain = np.asarray(index)
        flat = conform(plain.reshape(-1), pa.int64(), f"{self.kind}: {what}")
        found: Slots = numbers(flat).reshape(plain.shape)
        wrong = ((found < 0) | (found >= size)).reshape(-1)
        if flat.null_count or wrong.any():
            nulls = flat.is_null().to_numpy(zero_copy_only=False)
            at = int(np.flatnonzero(nulls if flat.null_count else wrong)[0])
            raise BadInputError(f"{self.kind}: {what} in place {at} is not from 0 to {size - 1}")
        return found

    # What the worker calls ----------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return int(np.prod(self._shape))

    @property
    def size_bytes(self) -> int:
        return self.rows * self._column.row_bytes

    def delta(self) -> pa.Table | None:
        changed = self._changed()
        if not len(changed):
            return None
        width = self._column.row_bytes
        if len(changed) * (INDEX_BYTES + width) >= self.rows * width:
            return self.snapshot()
        return pa.table({INDEX: changed, VALUE: self._column.take(changed)})

    def commit(self) -> None:
        if self._marked is not None:
            self._apart[self._changed()] = -1.0  # measured on demand
        self._column.commit()

    def rollback(self) -> None:
        self._column.rollback()

    def apply(self, delta: pa.Table) -> None:
        assert not self._column.changed, "apply on uncommitted changes"
        if delta.schema.names == [VALUE] and len(delta) == self.rows:
            self._load(delta)
        elif delta.schema.names == [INDEX, VALUE]:
            cells = self._index(delta[INDEX], self.rows, INDEX)
            self._column.save(cells)
            self._column.put(cells, conform(delta[VALUE], self._type, VALUE))
        else:
            raise self._foreign(delta)
        self.commit()

    def snapshot(self) -> pa.Table:
        return pa.table({VALUE: self._column.take(slice(0, self.rows))})

    def restore(self, snapshot: pa.Table) -> None:
        if snapshot.schema.names != [VALUE] or len(snapshot) != self.rows:
            raise self._foreign(snapshot)
        self._clear()
        self._load(snapshot)
        self._column.commit()

    def fits(self, snapshot: pa.Table) -> bool:
        return super().fits(snapshot) and len(snapshot) == self.rows

    def mark_backup(self) -> None:
        assert not self._column.changed, "mark_backup on uncommitted changes"
        self._marked = self._cells().copy()
        self._apart = np.zeros(self.rows)

    def divergence(self, kind: str) -> float:
        wanted = chosen(kind, DISTANCES, self.kind)
        if self._marked is None:
            raise unmarked(self.kind)
        stale = np.flatnonzero(self._apart < 0)
        now = self._column.committed(stale).to_numpy(zero_copy_only=False)
        self._apart[stale] = differences(now, self._marked[stale])
        return distance(wanted, [self._apart])

    # Cells --------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._column = Column(self._type)
        self._column.grow(self.rows)
        self._marked, self._apart = None, np.zeros(0)

    def _cells(self) -> Values:
        return self._column.cells(slice(0, self.rows)).values

    def _changed(self) -> Slots:
        """Cells whose value differs from the last commit, sorted."""
        cells = np.sort(self._column.saved())
        before = self._column.committed(cells).to_numpy(zero_copy_only=False)
        found: Slots = cells[~same_bits(self._cells()[cells], before)]
        return found

    def _distinct(self, cells: Slots) -> tuple[Slots, Slots | None]:
        """The last position of each distinct cell, and each row's index among those.

        The index is None if all cells differ.
        """
        order = np.arange(len(cells))
        place = np.empty(self.rows, np.int64)  # entries of other cells are never read
        place[cells] = order  # of a repeated cell the last value stays
        last = np.flatnonzero(place[cells] == order)
        if len(last) == len(cells):
            return last, None
        place[cells[last]] = order[: len(last)]
        return last, place[cells]

    def _fold(self, how: str, cells: Slots, rows: Slots | None, amounts: pa.Array) -> None:
        """`cells` are distinct; `rows` maps each amount to one of them."""
        old = self._column.save(cells)
        new, _ = FOLDS[how](amounts, rows, len(cells), old, slice(None))
        self._write(cells, pa.array(new, self._type))

    def _write(self, cells: Slots | slice, values: pa.Array) -> None:
        """Writes saved cells; BadInputError for a value that is not finite, unless declared."""
        plain = values.to_numpy(zero_copy_only=False)
        if not self._nonfinite and not np.isfinite(plain).all():
            at = int(np.flatnonzero(~np.isfinite(plain))[0])
            cell = at if isinstance(cells, slice) else int(cells[at])
            place = ", ".join(map(str, np.unravel_index(cell, self._shape)))
            raise BadInputError(
                f"{self.kind}: the value at [{place}] would be {plain[at]}; keep such numbers out, "
                "or declare the state with nonfinite=True"
            )
        self._column.put_numbers(cells, plain)

    def _conformed(self, values: Any, shape: tuple[int, ...], what: str) -> pa.Array:
        """Values, broadcast to `shape`, as one flat array without nulls."""
        what = f"{self.kind}: {what}"
        if isinstance(values, pa.Array | pa.ChunkedArray):
            values = conform(values, self._type, what)
            plain = objects(values) if values.null_count else numbers(values)
        else:
            plain = np.asarray(values)
        try:
            full = np.broadcast_to(plain, shape).reshape(-1)
        except ValueError as error:
            raise BadInputError(f"{what}: expected the shape {shape}: {error}") from error
        array = conform(full, self._type, what)
        if array.null_count:
            raise BadInputError(f"{what} with {array.null_count} nulls; fill them first")
        return array

    def _load(self, rows: pa.Table) -> None:
        self._column.save_all()
        self._column.put(slice(0, self.rows), conform(rows[VALUE], self._type, VALUE))

    def _foreign(self, rows: pa.Table) -> BadInputError:
        return BadInputError(
            f"state of {len(rows)} rows with the columns {rows.schema.names} is not of a "
            f"{self.kind} of the shape {self._shape}"
        )
