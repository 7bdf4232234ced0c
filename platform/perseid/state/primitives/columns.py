"""Growing columns: the values of a table, by slot.

A column of a fixed-width type is a NumPy array and, once a null was written, a mask; strings and
binaries are bytes (`texts`), all other types arrays of Python objects. Capacity grows by half, so a
put has amortised constant cost.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.kernels.library import one
from perseid.state.primitives.undo import Cells, Slots, Undo, Values

type_is = pa.types


def storage(kind: pa.DataType) -> np.dtype[Any]:
    """The NumPy type that holds `kind`; `object` when none does."""
    if type_is.is_integer(kind) or type_is.is_floating(kind) or type_is.is_boolean(kind):
        return cast(np.dtype[Any], np.dtype(kind.to_pandas_dtype()))
    if type_is.is_temporal(kind) and kind.bit_width in (32, 64):
        return np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
    return np.dtype(object)


def conform(values: Any, kind: pa.DataType, what: str) -> pa.Array:
    """`values` (Arrow array, chunked or not, or a sequence) as one array of `kind`.

    BadInputError when they do not fit; its text omits Arrow's message, which quotes values.
    """
    try:
        if isinstance(values, pa.ChunkedArray):
            values = one(values)
        elif not isinstance(values, pa.Array):
            values = from_python(values, kind)
        return values if values.type == kind else values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise BadInputError(
            f"{what}: expected {kind}, found {_kind_of(values)}; cast the values before, or "
            "declare the type that they have"
        ) from None


def _kind_of(values: Any) -> str:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return f"values of {values.type} that do not fit into it"
    return f"{type(values).__name__} that does not fit into it"


def from_python(values: Any, kind: pa.DataType) -> pa.Array:
    """A sequence of Python values as Arrow; its type is `kind` unless a cast must check it."""
    if type_is.is_integer(kind):
        inferred = pa.array(values)
        if type_is.is_floating(inferred.type):  # given the type, Arrow would cut off the fraction
            return inferred
    return pa.array(values, type=kind)


def numbers(values: pa.Array) -> Values:
    """A fixed-width array as its storage numbers, nulls as zero."""
    if type_is.is_temporal(values.type):
        values = values.view(pa.from_numpy_dtype(storage(values.type)))
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(0).cast(values.type))
    return cast(Values, values.to_numpy(zero_copy_only=False))


def objects(values: pa.Array) -> Values:
    """Any array as Python objects, nulls as None."""
    out = np.empty(len(values), dtype=object)
    out[:] = values.to_pylist()
    return out


def is_text(kind: pa.DataType) -> bool:
    return bool(
        type_is.is_string(kind) or type_is.is_large_string(kind)
        or type_is.is_binary(kind) or type_is.is_large_binary(kind)
    )  # fmt: skip


def short_kind(kind: pa.DataType) -> pa.DataType:
    """The type of texts with 32-bit offsets, which the kernels take."""
    is_string = type_is.is_string(kind) or type_is.is_large_string(kind)
    return pa.string() if is_string else pa.binary()


def stored(values: pa.Array) -> Any:
    """Any array in a column's stored form, without its nulls; texts as Arrow."""
    if is_text(values.type):
        return values.cast(short_kind(values.type))
    return objects(values) if storage(values.type).hasobject else numbers(values)


class Column:
    """Values of one type by slot. Unwritten slots hold zero, or null for objects."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._storage = storage(kind)
        self._is_object = self._storage.hasobject
        widths = np.zeros(0, np.int32) if self._is_object else None
        self._cells = Cells(np.zeros(0, self._storage), None, widths)
        self._undo = Undo()
        self._bytes = 0

    @property
    def is_number(self) -> bool:
        return bool(type_is.is_integer(self.kind) or type_is.is_floating(self.kind))

    @property
    def is_ordered(self) -> bool:
        """Whether its values have a minimum."""
        return self.is_number or (type_is.is_temporal(self.kind) and not self._is_object)

    @property
    def row_bytes(self) -> int:
        """Bytes of each row; `variable_bytes` has those that depend on the value."""
        return 4 if self._is_object else self._storage.itemsize

    @property
    def variable_bytes(self) -> int:
        return self._bytes

    def grow(self, capacity: int) -> None:
        cells = self._cells
        cells.values = grown(cells.values, capacity)
        if cells.nulls is not None:
            cells.nulls = grown(cells.nulls, capacity)
        if cells.widths is not None:
            cells.widths = grown(cells.widths, capacity)

    # Write --------------------------------------------------------------------------------------

    def save(self, slots: Slots) -> Cells:
        """The contents of `slots`, saved for `rollback`: call it before they are written."""
        return self._undo.save(slots, self._cells)

    def save_all(self) -> None:
        """Like `save`, for every slot."""
        self._undo.save_all(self._cells)

    def put(self, slots: Slots | slice, values: pa.Array, as_stored: Values | None = None) -> None:
        """Writes `values` (of this column's type) into distinct `slots`.

        `as_stored`: the result of `stored` for them, if the caller has it.
        """
        plain = stored(values) if as_stored is None else as_stored
        if self._is_object:
            self._cells.values[slots] = plain
            width = values.nbytes // max(1, len(values))
            self._account(slots, np.full(len(values), width, np.int32))
            return
        nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        self.put_numbers(slots, plain, nulls)

    def put_rows(self, slots: Slots, values: pa.Array, as_stored: Values, rows: Slots) -> None:
        """Like `put`, for some of the `values`."""
        self.put(slots, values.take(pa.array(rows)), as_stored[rows])

    def put_null(self, slots: Slots) -> None:
        self.put(slots, pa.nulls(len(slots), self.kind))

    def put_numbers(
        self, slots: Slots | slice, values: Values, nulls: Values | None = None
    ) -> None:
        """Like `put`, for a column without objects: values as stored, and which are null."""
        cells = self._cells
        cells.values[slots] = values
        if nulls is not None and cells.nulls is None:
            cells.nulls = np.zeros(len(cells.values), bool)
        if cells.nulls is not None:
            cells.nulls[slots] = False if nulls is None else nulls

    # Read ---------------------------------------------------------------------------------------

    def equal(self, slots: Slots, values: Values, rows: Slots) -> Values:
        """Whether `slots` hold `rows` of `values` (as stored, none of them null)."""
        return cast(Values, self._cells.values[slots] == values[rows])

    def cells(self, slots: Slots | slice) -> Cells:
        """The values of `slots` as stored; of a slice they are views."""
        return self._cells.at(slots)

    def take(self, slots: Slots | slice) -> pa.Array:
        """The values of `slots` as Arrow; later writes do not change them."""
        found = self._cells.at(slots)
        shared = isinstance(slots, slice) and not self._is_object
        return self._arrow(found.copy() if shared else found)

    def committed(self, slots: Slots) -> pa.Array:
        """Like `take` for distinct slots, at the last commit."""
        return self._arrow(self._undo.committed(slots, self._cells))

    @property
    def changed(self) -> bool:
        """Whether anything was saved since the last commit."""
        return bool(self._undo)

    def saved(self) -> Slots:
        """Slots that were saved since the last commit."""
        return self._undo.slots()

    def _arrow(self, cells: Cells) -> pa.Array:
        if self._is_object:
            return pa.array(cells.values, type=self.kind, from_pandas=False)
        if type_is.is_temporal(self.kind):
            plain = pa.from_numpy_dtype(self._storage)
            return pa.array(cells.values, type=plain, mask=cells.nulls).view(self.kind)
        return pa.array(cells.values, type=self.kind, mask=cells.nulls)

    # Slots that are removed
    # ------------------------------------------------------------------------------

    def weigh(self, slots: Slots, sign: int) -> None:
        """Subtracts the bytes of `slots` from the total (-1), or adds them again (+1)."""
        if self._cells.widths is not None:
            self._bytes += sign * int(self._cells.widths[slots].sum())

    def drop(self, slots: Slots) -> None:
        """Clears the values of slots that are no longer used and are subtracted by `weigh`."""
        if self._is_object:
            self._cells.values[slots] = None
        if self._cells.widths is not None:
            self._cells.widths[slots] = 0

    def keep(self, slots: Slots) -> None:
        """Moves the values of `slots` to the front, in that order, and drops all others."""
        self._cells, self._undo = self._cells.at(slots), Undo()

    # Commit -------------------------------------------------------------------------------------

    def commit(self) -> None:
        self._undo.forget()

    def rollback(self) -> None:
        """Restores every saved slot to its value at the last commit."""
        if self._undo:
            before = self._weight()
            self._undo.rewind(self._cells)
            self._bytes += self._weight() - before
            self._undo.forget()

    def _weight(self) -> int:
        return 0 if self._cells.widths is None else int(self._cells.widths.sum())

    def _account(self, slots: Slots | slice, new: Values) -> None:
        """Updates the total by the bytes put into `slots`."""
        widths = self._cells.widths
        assert widths is not None
        self._bytes += int(new.sum()) - int(widths[slots].sum())
        widths[slots] = new


def grown(values: Values, capacity: int) -> Values:
    """A copy of `values` with room for `capacity`; new places hold zero or None."""
    objects_held = values.dtype.hasobject
    out = np.empty(capacity, object) if objects_held else np.zeros(capacity, values.dtype)
    out[: len(values)] = values
    return out
